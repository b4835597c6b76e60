"""Code of the user's own that a training runs after each of its evaluations."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fcritic import code, ensembles
from fcritic.agents.base import net
from fcritic.api.load import TrainedAgent
from fcritic.api.valuation import critics_of
from fcritic.config import TrainConfig
from fcritic.envs import task_units
from fcritic.errors import UsageError
from fcritic.training.device import TrainState
from fcritic.training.evaluate import Evaluation
from fcritic.training.loop import AfterEvaluation


class Moment:
    """A training right after an evaluation. What a callback does with it does not change what is learned."""

    def __init__(
        self, config: TrainConfig, directory: Path, frame: int, evaluations: list[Evaluation], state: TrainState
    ):
        self.config, self.directory, self.frame = config, directory, frame
        self.evaluations = dict(zip(config.seed_numbers, evaluations, strict=True))
        """The returns of each seed's actors, by its number."""
        self.stopped = False
        self._state = state

    def agent(self, seed: int | None = None) -> TrainedAgent:
        """Returns the present agent of a seed, by default the first; later training does not change it.

        Call it during the callback only.
        """
        config, seed = self.config, self.config.seed if seed is None else seed
        if seed not in config.seed_numbers:
            raise UsageError(f"there is no seed {seed} in {self.directory}")
        of_seed = lambda tree: ensembles.member(tree, config.seed_numbers.index(seed))
        learned, seen = of_seed(self._state.agent), of_seed(self._state.normalizer)
        policies = net(config.agent.evaluation_policies(learned))
        place = (config, *task_units(config.task), seed, self.frame, self.directory)
        return TrainedAgent(policies, critics_of(learned), seen, seen, *place)

    def stop(self) -> None:
        """Ends the training here: it is saved, and the same command would go on."""
        self.stopped = True


Callback = Callable[[Moment], Any]


def find_callback(name: str) -> Callback:
    """The function that a user has typed, ``path/to/file.py:function``; runs its code."""
    code.require_name(name, "callback")
    if not code.is_name(name):
        raise UsageError(f"{name} is not a callback; name your function as path/to/file.py:function")
    found = code.find(name)
    if found is None:
        raise code.missing(name)
    if not callable(found):
        raise UsageError(f"{name} is a {type(found).__name__}; name a function that takes a moment")
    return found


def after_evaluation(callback: Callback, config: TrainConfig, directory: str | Path) -> AfterEvaluation:
    """The callback as the loop calls it; one that fails ends the training, which is saved."""

    def call(frame: int, evaluations: list[Evaluation], state: TrainState) -> bool:
        moment = Moment(config, Path(directory), frame, evaluations, state)
        try:
            callback(moment)
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(f"the callback failed: {code.told(error)}") from error
        return moment.stopped

    return call
