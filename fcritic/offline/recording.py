"""Policies let loose on their environment: to record a dataset, or to measure what they are worth."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fcritic import envs
from fcritic.envs.base import EPISODE_LIMIT
from fcritic.errors import UsageError
from fcritic.offline.candidates import Candidate
from fcritic.offline.dataset import FIELDS, Dataset
from fcritic.offline.storage import room
from fcritic.types import Transition

COPIES = 8
"""Environments side by side at most."""

Act = Callable[[np.ndarray, np.random.Generator], np.ndarray]


class Piece(NamedTuple):
    """An episode, or its beginning."""

    transitions: Transition
    ended: bool

    def value(self, gamma: float) -> float:
        """The sum of its rewards, discounted per action.

        Where it did not terminate, the rest is taken to go on as its second half did, since a value knows no time
        limit.
        """
        reward, discount = self.transitions.reward, self.transitions.discount
        steps = len(reward)
        rest = discount[-1] * gamma**steps * reward[steps // 2 :].mean() / (1 - gamma)
        return float(gamma ** np.arange(steps) @ reward + rest)


class Stage:
    """A task on which policies are played, one after the other."""

    def __init__(self, task: str, action_repeat: int, copies: int, seed: int = 0):
        self.task, self._seed = task, seed
        self._copies = max(1, min(copies, COPIES))
        self._vector = envs.make_vector(
            task, seeds=[seed], envs=self._copies, action_repeat=action_repeat, salt="begin"
        )
        self.spec = self._vector.spec

    def play(self, act: Act, salt: str, episodes: int | None = None, steps: int | None = None) -> Iterator[Piece]:
        """Yields so many episodes, or episodes of so many actions together, of which the last ones may be cut off.

        Every environment has its share of them, so that short ones are not preferred. Another `salt` means other
        start states.
        """
        copies, vector = self._copies, self._vector
        rng = np.random.default_rng(self._seed)
        total = (episodes or 0) if steps is None else steps
        left = [total // copies + (copy < total % copies) for copy in range(copies)]
        vector.restart(envs.copy_seeds([self._seed], copies, salt))
        tapes: list[list[Transition]] = [[] for _ in range(copies)]
        while any(left):
            if max(map(len, tapes)) > EPISODE_LIMIT:
                raise UsageError(
                    f"the episodes of {self.task} do not end within {EPISODE_LIMIT:,} actions; give --steps, "
                    "or the task a time limit"
                )
            step, over = vector.step(act(vector.obs[0], rng)[None])
            ended = {episode.env_index for episode in over}
            for copy in range(copies):
                if not left[copy]:
                    continue
                tapes[copy].append(Transition(*(array[0, copy] for array in step)))
                left[copy] -= steps is not None or copy in ended
                if copy in ended or not left[copy]:
                    yield Piece(Transition(*map(np.stack, zip(*tapes[copy], strict=True))), copy in ended)
                    tapes[copy] = []

    def close(self) -> None:
        """Closes the environments."""
        self._vector.close()


def noisy(candidate: Candidate, scale: float) -> Act:
    """Returns what a candidate does, with normal noise of this deviation, within the bounds [-1, 1]."""

    def act(obs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        found = candidate.act(obs, rng)
        if scale:
            found = np.clip(found + scale * rng.standard_normal(found.shape), -1, 1)
        return found.astype(np.float32)

    return act


def at_random(task: str, action_repeat: int, steps: int = 64) -> Dataset:
    """Returns a few steps with uniform actions: observations on which policies of a task can be tried."""
    stage = Stage(task, action_repeat, 1)
    act = lambda obs, rng: rng.uniform(-1, 1, (len(obs), stage.spec.act_dim)).astype(np.float32)
    pieces = list(stage.play(act, "random", steps=steps))
    stage.close()
    return as_dataset(pieces, task, action_repeat, ["uniform actions"])


def as_dataset(pieces: Sequence[Piece], task: str, action_repeat: int, sources: Sequence[str]) -> Dataset:
    """Returns episodes as a dataset."""
    spec, units = envs.task_units(task)
    count = sum(len(piece.transitions.reward) for piece in pieces)
    wide = {"obs": spec.obs_dim, "next_obs": spec.obs_dim, "act": spec.act_dim}
    arrays = {
        name: room((count, wide[name]) if name in wide else (count,), dtype) for name, dtype in FIELDS.items()
    }
    place = 0
    for piece in pieces:
        stop = place + len(piece.transitions.reward)
        for name, array in piece.transitions._asdict().items():
            arrays[name][place:stop] = array
        arrays["first"][place] = arrays["last"][stop - 1] = True
        arrays["ended"][stop - 1] = piece.ended
        place = stop
    return Dataset(**arrays, sources=tuple(sources), units=units, task=task, action_repeat=action_repeat)
