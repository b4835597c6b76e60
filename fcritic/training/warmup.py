"""The iterations before learning begins, in which actions are drawn at random, on the host.

Actions depend on their seed and iteration alone, not on where a block of them begins, so a stopped training
continues exactly.
"""

from jaxtyping import Float, Int, UInt32
import numpy as np

from fcritic import randomness

BLOCK = 128
"""Iterations whose actions are drawn at a time."""


class Chance:
    """Uniform actions for all environments of a training with these random streams."""

    def __init__(self, streams: UInt32[np.ndarray, "seeds 2"], envs: int, act_dim: int):
        self._streams, self._shape = streams, (BLOCK, envs, act_dim)
        self._first, self._actions = 0, np.zeros((0, 0, 0, 0), np.float32)

    def actions(self, iteration: int) -> Float[np.ndarray, "seeds envs act"]:
        """Uniform in [-1, 1), for all environments."""
        if not self._first <= iteration < self._first + len(self._actions):
            self._first = iteration
            self._actions = uniform_actions(self._streams, iteration, self._shape)
        return self._actions[iteration - self._first]

    def episode_keys(self, begun: Int[np.ndarray, "seeds envs"]) -> UInt32[np.ndarray, "seeds envs 2"]:
        """The keys from which a policy would have drawn its episodes, if they began in these iterations."""
        envs = begun.shape[1]
        own = np.arange(envs)
        return _env_keys(self._streams, begun, envs)[:, own, own, 0]


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
    """For each environment the key of an episode that begins then and that of its action, as in `Device.act`."""
    numbers = iterations.astype(np.uint32)
    folded = np.stack(randomness.threefry(streams, np.zeros_like(numbers), numbers), axis=-1)
    acting = randomness.split_all(folded, 2)[:, :, 0]
    return randomness.split_all(randomness.split_all(acting, envs), 2)
