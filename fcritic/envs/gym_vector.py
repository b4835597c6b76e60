"""Gymnasium's vector environments, whichever way they begin the episode after the last.

Gymnasium has three ways, and a vector environment declares its own in ``metadata["autoreset_mode"]``:

- same step: the last observation of an episode is in the infos, and in its place stands the first of the next,
- next step: the next call of `step` ignores the action for what is over and begins an episode instead,
- disabled: what is over waits for a `reset` with a mask.

Read wrongly, the first bootstraps from another episode and the second learns from steps that never were.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fcritic.envs.answers import WrongAnswer, numbers, parts, success_in
from fcritic.envs.base import EnvState
from fcritic.envs.group import AbstractGroup, Board, Trouble
from fcritic.envs.gym import Spaces
from fcritic.envs.local import Hang, Watch, in_words
from fcritic.errors import UsageError

if TYPE_CHECKING:
    import gymnasium

ANSWER = ("observations", "rewards", "terminations", "truncations", "infos")
"""What a step returns."""


class GymVectorGroup(AbstractGroup):
    """The sub-environments of a ``gymnasium.vector.VectorEnv``, in step and with every transition true.

    All modes become one: what has ended begins anew at once. A vector environment that does not do that in
    the same step is reset by ``reset(options={"reset_mask": ...})``, which Gymnasium's own understand.
    Single sub-environments cannot be rebuilt, and their states cannot be saved.
    """

    def __init__(self, env: "gymnasium.vector.VectorEnv", timeout: float = 60.0):
        self._env, self._watch = env, Watch(timeout)
        name = env.spec.id if env.spec else type(env.unwrapped).__name__
        self._same_step = _same_step(name, env.metadata)
        self._spaces = Spaces(name, env.single_observation_space, env.single_action_space)
        self.spec, self.units = self._spaces.spec, self._spaces.units
        self.names = [name] * env.num_envs
        self.board = Board(env.num_envs, self.spec)
        self._seeds: dict[int, int] = {}  # given but not yet used

    def step(self, actions: np.ndarray, rows: Iterable[int] | None = None) -> list[Trouble]:
        """Takes `actions` in all sub-environments; then begins what has ended."""
        if rows is not None:
            raise NotImplementedError("a vector environment takes its steps together")
        scaled = np.stack([self._spaces.scale(action) for action in actions])
        try:
            with self._watch as watch:
                watch.begin(0)
                answer = self._env.step(scaled)
            observations, rewards, terminated, truncated, infos = parts("step", answer, ANSWER)
            count = (len(self.names),)
            terminated = _flags("terminations", terminated, count)
            self.board.reward[:] = numbers("reward", rewards, count)
            self.board.discount[:] = ~terminated
            self.board.last[:] = terminated | _flags("truncations", truncated, count)
        except (Exception, SystemExit, Hang) as error:
            return self._all("step", error)
        return self._observe_step(observations, infos)

    def _observe_step(self, observations: Any, infos: dict) -> list[Trouble]:
        """Sorts last observations from first ones."""
        ended = np.flatnonzero(self.board.last).tolist()
        told = infos.get("final_info", infos) if self._same_step else infos
        for row in ended:
            self.board.success[row] = success_in(_info(told, row))
        if not self._same_step:
            troubles = self._write(self.board.next_obs, "step", observations, range(len(self.names)))
            return troubles + (self.reset(ended) if ended else [])
        going = np.flatnonzero(~self.board.last).tolist()
        troubles = self._write(self.board.next_obs, "step", observations, going)
        if ended:
            final = infos.get("final_obs", [None] * len(self.names))
            troubles += self._write(self.board.next_obs, "step", final, ended)
            troubles += self._write(self.board.first_obs, "reset", observations, ended)
        return troubles

    def _write(self, into: np.ndarray, during: str, observations: Any, rows: Iterable[int]) -> list[Trouble]:
        """Writes the observations of some rows, and returns those that are not what they should be."""
        troubles = []
        for row in rows:
            try:
                into[row] = self._spaces.flatten(_row(observations, row))
            except (WrongAnswer, LookupError, TypeError) as error:
                troubles.append(Trouble(row, during, str(error)))
        return troubles

    def reset(self, rows: Iterable[int]) -> list[Trouble]:
        """Begins an episode in each of the rows, and leaves the others alone."""
        mask = np.zeros(len(self.names), bool)
        mask[list(rows)] = True
        seeds = [self._seeds.pop(row, None) if begins else None for row, begins in enumerate(mask)]
        options = None if mask.all() else {"reset_mask": mask.copy()}
        if all(seed is None for seed in seeds):
            seeds = None
        try:
            with self._watch as watch:
                watch.begin(0)
                answer = self._env.reset(seed=seeds, options=options)
            observations, _ = parts("reset", answer, ("observations", "infos"))
        except (Exception, SystemExit, Hang) as error:
            return self._all("reset", error)
        return self._write(self.board.first_obs, "reset", observations, np.flatnonzero(mask)) + (
            [] if options is None else self._moved(observations, mask)
        )

    def _moved(self, observations: Any, mask: np.ndarray) -> list[Trouble]:
        """The rows outside the mask whose observation is no longer that of their last step."""
        what = "a reset with a mask moved it too; make the vector environment with the autoreset mode SAME_STEP"
        seen = {int(row): self._spaces.flatten(_row(observations, row)) for row in np.flatnonzero(~mask)}
        return [
            Trouble(row, "reset", what)
            for row, obs in seen.items()
            if not np.array_equal(obs, self.board.next_obs[row], equal_nan=True)
        ]

    def _all(self, during: str, error: BaseException) -> list[Trouble]:
        """The same trouble for every row, since it is not known whose it is."""
        what = in_words(during, error, self._watch.limit)
        whose = f"{what} (in this or another of the {len(self.names)} sub-environments)"
        return [Trouble(row, during, whose) for row in range(len(self.names))]

    def reseed(self, seeds: Mapping[int, int]) -> None:
        """Gives new seeds, by row; they hold from the next `reset` on."""
        self._seeds |= seeds

    def rebuild(self, seeds: Mapping[int, int]) -> list[Trouble]:
        """Gives new seeds: single sub-environments cannot be built anew."""
        self.reseed(seeds)
        return []

    def states(self) -> tuple[list[EnvState | None], list[Trouble]]:
        """Returns no states: a vector environment has no way to save them."""
        return [None] * len(self.names), []

    def restore(self, states: Mapping[int, EnvState]) -> list[Trouble]:
        """Never called with states, since none can be saved."""
        if states:
            raise UsageError(f"{self.names[0]} is a vector environment and cannot be put back to a saved state")
        return []

    def close(self) -> None:
        """Closes the vector environment."""
        self._env.close()


def _same_step(name: str, metadata: dict[str, Any]) -> bool:
    """Whether the declared mode is the one that begins episodes in the same step."""
    from gymnasium.vector import AutoresetMode

    declared = metadata.get("autoreset_mode")
    try:
        return AutoresetMode(declared) is AutoresetMode.SAME_STEP
    except ValueError:
        known = ", ".join(str(mode) for mode in AutoresetMode)
        raise UsageError(
            f"{name} declares the autoreset mode {declared}; set metadata['autoreset_mode'] to one of {known}"
        ) from None


def _row(observations: Any, row: int) -> Any:
    """One sub-environment's part of batched observations."""
    if isinstance(observations, dict):
        return {key: _row(part, row) for key, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(_row(part, row) for part in observations)
    return observations[row]


def _info(infos: Any, row: int) -> dict[str, Any]:
    """One sub-environment's part of batched infos, in which ``_name`` is the mask of ``name``."""
    if not isinstance(infos, Mapping):
        return {}
    names = [name for name in ("is_success", "success") if np.ndim(infos.get(name)) == 1]
    told = lambda name: np.ndim(infos.get(f"_{name}")) != 1 or infos[f"_{name}"][row]
    return {name: infos[name][row] for name in names if told(name)}


def _flags(field: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = numbers(field, values, shape)
    if array.dtype.kind != "b":
        raise WrongAnswer(f"{field} are {array.dtype}, not True or False")
    return array
