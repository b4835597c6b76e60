"""The cost of a training on this device: estimated before it begins, measured once it learns; cheaper variants."""

from collections.abc import Iterable
import dataclasses
import functools
import time
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from fcritic.agents.base import AbstractAgent, update
from fcritic.config import TrainConfig
from fcritic.errors import UsageError
from fcritic.networks.precision import on_gpu
from fcritic.training.console import duration
from fcritic.training.flops import count_flops
from fcritic.types import EnvSpec, Transition

if TYPE_CHECKING:
    from fcritic.training.loop import Training

LAPS = 9
"""Iterations whose median is taken for the cost of one."""

LONG = 3600.0
"""Seconds from which on a job is called long and cheaper choices are listed."""

DAY = 86_400.0
"""Seconds of an estimate above which a job is only started where that was asked for (`--yes`)."""

_HOST_SECONDS = 1e-3
"""What an iteration takes besides its arithmetic, roughly."""
_SHARE = 0.25
"""The share of the speed of a large product that updates reach: `fac` on two CPU cores, 16 s an iteration."""


def estimated_seconds(config: TrainConfig, spec: EnvSpec, begun: int = 0) -> float | None:
    """The time from iteration `begun` to the end, by the arithmetic; None where it is far below a day.

    To count the arithmetic takes a second or two, so a bound decides first whether that is worth it.
    """
    left = max(config.iterations - begun, 0)
    updates = config.seeds * max(config.iterations - max(begun, config.warmup_iterations), 0)
    slowest = 1e13 if on_gpu() else 1e10  # operations per second
    if left * _HOST_SECONDS + updates * _most_flops(config.agent, spec) / slowest < DAY / 4:
        return None
    flops = flops_per_iteration(config.agent, spec)
    return left * _HOST_SECONDS + updates * flops / (_SHARE * _product_rate(config.agent.compute_dtype))


def require_agreed(seconds: float | None, what: str, yes: bool) -> None:
    """Refuses a job that is estimated to take more than a day, unless its user has agreed."""
    if seconds is not None and seconds > DAY and not yes:
        raise UsageError(
            f"{what} is estimated to take {duration(seconds)} on this {_device()}; add --yes to start it all the "
            "same, lower --steps, or choose a smaller --recipe such as fac-small"
        )


def estimate_line(seconds: float) -> str:
    """The estimate, as it is said before a training begins."""
    return f"estimated time to the end: {duration(seconds)} on this {_device()}; measured once learning begins"


def _device() -> str:
    return f"GPU ({jax.devices()[0].device_kind})" if on_gpu() else "CPU"


def _most_flops(agent: AbstractAgent, spec: EnvSpec) -> float:
    """A bound of `flops_per_iteration` without tracing an update: each number of the state meets each row.

    For functional critics an actor's neurons count as its rows.
    """
    state = jax.eval_shape(lambda key: agent.init(spec, key), jax.eval_shape(lambda: jax.random.key(0)))
    rows = agent.batch_size * getattr(agent, "members", 1)
    return 6.0 * agent.batches_per_iteration * rows * sum(leaf.size for leaf in jax.tree.leaves(state))


@functools.cache
def _product_rate(dtype: jnp.dtype) -> float:
    """Floating-point operations per second of a large matrix product on this device."""
    side = 4096 if on_gpu() else 1024
    matrix, product = jnp.ones((side, side), dtype), jax.jit(lambda x: x @ x)
    jax.block_until_ready(product(matrix))
    start = time.perf_counter()
    jax.block_until_ready([product(matrix) for _ in range(5)])
    return 5 * 2 * side**3 / (time.perf_counter() - start)


@functools.cache
def flops_per_iteration(agent: AbstractAgent, spec: EnvSpec) -> int:
    """Arithmetic of one iteration of one seed: all its updates, without compiling them.

    Counted in float32, where every product stands in the program: a kernel does the same ones, out of sight.
    """
    agent = dataclasses.replace(agent, precision="float32")
    key = jax.eval_shape(lambda: jax.random.key(0))
    state = jax.eval_shape(lambda k: agent.init(spec, k), key)
    shape = (agent.batches_per_iteration, agent.batch_size)
    number = lambda *rest: jax.ShapeDtypeStruct((*shape, *rest), jnp.float32)
    batches = Transition(number(spec.obs_dim), number(spec.act_dim), number(), number(), number(spec.obs_dim))
    if agent.numbered:
        batches = batches._replace(number=jax.ShapeDtypeStruct(shape, jnp.uint32))
    patterns = [agent.actor_due(iteration) for iteration in range(agent.actor_delay)]  # they repeat after these
    counts = [
        count_flops(lambda s, b, k, due=due: update(agent, s, b, k, due)[0], state, batches, key)
        for due in patterns
    ]
    return sum(counts) // len(counts)


class Announcer:
    """Tells the person who watches what a training costs, once its own iterations have shown it."""

    def __init__(self, training: "Training"):
        self._training = training
        self._since: float | None = None
        self._laps: list[float] = []

    def begin(self, notes: Iterable[str]) -> None:
        """Says what is known before a training begins or goes on, and starts its clock."""
        training, config = self._training, self._training.config
        begun, say = training.progress.iteration, training.console.say
        if begun:
            say(f"continuing {training.directory.path} at frame {training.frame:,}")
        if changes := training.directory.version_changes() if begun else []:
            say(f"note: other versions than at the start, so results may differ: {', '.join(changes)}")
        if config.iterations <= config.warmup_iterations and not begun:
            say(
                f"note: the warm-up of {config.warmup:,} frames covers the whole run, so nothing is learned; "
                "lower --warmup or raise --steps"
            )
        for note in notes:
            say(note)
        training.console.restart_clock(training.frame)

    def learned(self) -> None:
        """Another iteration with updates is over. The first of them starts the clock anew: it may have compiled."""
        if len(self._laps) == LAPS:
            return
        training = self._training
        if self._since is None:
            jax.block_until_ready(training.flat.leaves)
            training.console.restart_clock(training.frame)
        else:
            self._laps.append(time.perf_counter() - self._since)
        self._since = time.perf_counter()
        if len(self._laps) == LAPS:
            training.console.say(cost_line(training, float(np.median(self._laps))))


def cost_line(training: "Training", seconds: float) -> str:
    """How long the rest will take where an iteration takes so many seconds."""
    config = training.config
    learning = config.iterations - training.progress.iteration
    critic, actor = config.agent.critic_steps * config.agent.cycles, config.agent.cycles
    device = jax.devices()[0]
    seeds = f" for {config.seeds} seeds" if config.seeds > 1 else ""
    line = (
        f"one iteration ({critic} critic + {actor} actor updates per {config.frames_per_iteration} frames{seeds}) "
        f"takes {1000 * seconds:.3g} ms on {device.device_kind}: "
        f"about {duration(seconds * learning)} of learning to the end"
    )
    quiet = training.console.quiet
    return line + (_cheaper(config, training.vector.spec) if seconds * learning > LONG and not quiet else "")


def _cheaper(config: TrainConfig, spec: EnvSpec) -> str:
    """Variants that do less arithmetic, as a share of this config's."""
    now = flops_per_iteration(config.agent, spec)
    shares = {option: flops_per_iteration(agent, spec) / now for option, agent in config.agent.cheaper().items()}
    offers = [f"{option} ({share:.0%} of the arithmetic)" for option, share in shares.items() if share < 0.9]
    if jax.default_backend() == "cpu":
        offers.append("a GPU (pip install -e '.[gpu]')")
    return f"\nthat is long; cheaper: {', '.join(offers)}" if offers else ""
