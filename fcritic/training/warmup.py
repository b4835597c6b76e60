"""The frames before learning begins: actions by chance, drawn on the host, and steps that are stored in blocks.

The device is asked for nothing but to take in a block now and then. Actions depend on their seed and iteration
alone, not on where a block of them begins: a training that was stopped continues exactly.
"""

from typing import Any

from jaxtyping import Float, Int, UInt32
import numpy as np

from fcritic import randomness
from fcritic.training import replay
from fcritic.training.learning import Learning
from fcritic.training.train_state import Flat
from fcritic.types import Transition

BLOCK = 128
"""Iterations whose actions are drawn, and steps that are stored, at a time."""


class Warmup:
    """Actions by chance for a training with these random streams, and its steps that are not in the replay yet."""

    def __init__(self, learning: Learning, streams: UInt32[np.ndarray, "seeds 2"]):
        self._learning, self._streams = learning, streams
        self._first, self._actions = 0, np.zeros((0, 0, 0, 0), np.float32)
        self._block, self._used = self._empty_block(), 0

    def _empty_block(self) -> Float[np.ndarray, "seeds steps envs width"]:
        learning = self._learning
        steps = min(BLOCK, learning.capacity)
        width = replay.width_of(learning.spec)
        return np.zeros((len(self._streams), steps, learning.envs, width), np.float32)

    def actions(self, iteration: int) -> Float[np.ndarray, "seeds envs act"]:
        """Uniform in [-1, 1], for all environments."""
        if not self._first <= iteration < self._first + len(self._actions):
            learning, self._first = self._learning, iteration
            shape = (BLOCK, learning.envs, learning.spec.act_dim)
            self._actions = uniform_actions(self._streams, iteration, shape)
        return self._actions[iteration - self._first]

    def memories(self, begun: Int[np.ndarray, "seeds envs"]) -> Any:
        """What the environments remember of episodes that began in these iterations."""
        envs = self._learning.envs
        keys, own = _env_keys(self._streams, begun, envs), np.arange(envs)
        return self._learning.remember(keys[:, own, own, 0])

    def keep(self, state: Flat, step: Transition) -> Flat:
        """Takes in a step of all environments; the state is another one when that fills the block."""
        self._block[:, self._used] = replay.pack(step)
        self._used += 1
        return self.stored(state) if self._used == self._block.shape[1] else state

    def stored(self, state: Flat) -> Flat:
        """The state with all that was kept in its replay."""
        if not self._used:
            return state
        full, used = self._block, self._used
        self._block, self._used = self._empty_block(), 0  # the device may read the old one for a while
        return self._learning.store_block(state, full, used)


def uniform_actions(
    streams: UInt32[np.ndarray, "seeds 2"], first: int, shape: tuple[int, int, int]
) -> Float[np.ndarray, "iterations seeds envs act"]:
    """Actions in [-1, 1) of iterations from `first` on; `shape` is (iterations, envs, act)."""
    iterations, envs, act_dim = shape
    act_keys = _env_keys(streams, np.arange(first, first + iterations)[None], envs)[..., 1, :]
    bits = np.bitwise_xor.reduce(randomness.split_all(act_keys, act_dim), axis=-1)
    # As JAX has it: 23 random bits behind the point of a number between 1 and 2.
    mantissa = (bits >> np.uint32(9)) | np.float32(1).view(np.uint32)
    return np.moveaxis((mantissa.view(np.float32) - 1) * 2 - 1, 1, 0)


def _env_keys(
    streams: UInt32[np.ndarray, "seeds 2"], iterations: Int[np.ndarray, "#seeds steps"], envs: int
) -> UInt32[np.ndarray, "seeds steps envs 2 2"]:
    """For each environment the key of an episode that begins then and that of its action, as in `Learning.act`."""
    numbers = iterations.astype(np.uint32)
    folded = np.stack(randomness.threefry(streams, np.zeros_like(numbers), numbers), axis=-1)
    acting = randomness.split_all(folded, 2)[:, :, 0]
    return randomness.split_all(randomness.split_all(acting, envs), 2)
