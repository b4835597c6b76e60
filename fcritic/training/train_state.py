"""What a training changes on the device, for all seeds at once, and the form in which the loop carries it."""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
from jax import vmap
from jaxtyping import Array, Int, UInt32
import numpy as np

from fcritic.kernels import SEEDS
from fcritic.kernels.packing import unpack_stack
from fcritic.training.replay import Normalizer, Replay
from fcritic.types import Metrics


class TrainState(eqx.Module):
    """Everything that training changes on the device; leading axis `seeds`."""

    agent: Any
    normalizer: Normalizer
    replay: Replay
    keys: UInt32[Array, "2"]
    """One random stream per seed, as bare key data. Iteration t uses fold_in(key, t): no position is needed."""
    tally: tuple[Metrics, Metrics]
    """Sums of the critic updates' and of the actor updates' metrics since they were last read."""
    tallied: Int[Array, "2"]
    """How many critic and how many actor updates these are."""


class Acting(eqx.Module):
    """The little that acting needs of the state: handing over less makes the call shorter."""

    policy: Any
    normalizer: Normalizer
    keys: UInt32[Array, "2"]


@dataclasses.dataclass(frozen=True)
class Flat:
    """A `TrainState` as a tuple of arrays: what the loop carries from iteration to iteration.

    JAX takes a tuple apart by itself. For a tree of modules it calls Python for every node, at each call and
    return, and small agents on fast devices would wait for that.
    """

    leaves: tuple[Array, ...]
    structure: Any
    acting: tuple[int, ...]
    """Places of the leaves of `Acting`."""
    acting_structure: Any
    ring: tuple[int, int]
    """Places of the replay's rows and of its cursor."""
    packed: bool
    """Whether networks are vectors."""

    @property
    def shapes(self) -> "Flat":
        """The same with shapes, types and devices in place of arrays: all that a compiler needs."""
        like = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding) for leaf in self.leaves)
        return dataclasses.replace(self, leaves=like)

    @property
    def carried(self) -> TrainState:
        """The state as it is carried; to look at numbers, whatever their names."""
        return jax.tree.unflatten(self.structure, self.leaves)

    @property
    def tree(self) -> TrainState:
        """The state itself."""
        state = self.carried
        return eqx.tree_at(lambda s: s.agent, state, unpack_stack(state.agent)) if self.packed else state


def bound(tree: Any) -> Any:
    """The same arrays, bound to the device that they are on.

    What `fcritic.startup.programs` calls returns such arrays, and a program is compiled again
    for those that are not.
    """
    return jax.device_put(tree, jax.tree.map(lambda leaf: leaf.sharding, tree))


SEED_AXES = TrainState(0, 0, Replay(0, None), 0, 0, None)
"""Where a `TrainState` has its seeds: ring cursor and tally count are common to all."""


def over_seeds(function):
    """vmap over the seeds of a `TrainState`, which the function changes."""
    mapped = partial(vmap, function, out_axes=SEED_AXES, axis_name=SEEDS)
    return lambda state, *rest: mapped(in_axes=(SEED_AXES, *[0] * len(rest)))(state, *rest)


def mean_metrics(state: TrainState) -> dict[str, np.ndarray]:
    """The mean of each metric over the updates since the tally was cleared, one entry per seed."""
    sums, counts = jax.device_get((state.tally, state.tallied))
    return {
        name: total / count
        for kind, count in zip(sums, counts, strict=True)
        for name, total in kind.items()
        if count
    }
