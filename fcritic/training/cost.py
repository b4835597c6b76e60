"""The cost of a training on this device: estimated before it begins, measured once it learns; cheaper variants."""

from collections.abc import Callable
import dataclasses
import functools
import math
import time
from typing import Any

import jax
from jax.extend import core
import jax.numpy as jnp

from fcritic.agents.base import AbstractAgent, update
from fcritic.config import TrainConfig
from fcritic.envs import task_spec
from fcritic.errors import UsageError
from fcritic.networks.precision import on_gpu
from fcritic.training.console import duration
from fcritic.types import EnvSpec, Transition

LONG = 3600.0
"""Seconds from which on a job is called long and cheaper choices are listed."""

DAY = 86_400.0
"""Seconds of an estimate above which a job is only started where that was asked for (`--yes`)."""

MEASURED = "a measured estimate follows once learning has begun"

_HOST_SECONDS = 1e-3
"""What an iteration takes besides its arithmetic, roughly."""
_BOUND_RATE = {"cpu": 2.7e11, "gpu": 2e14}
"""`_most_flops` per second as recorded: 1.8 to 4.3e11 for all recipes on two CPU cores, .8 to 5e14 on an H200."""
_SHARE = 0.25
"""The share of the speed of a large product that updates reach: `fac` on two CPU cores, 16 s an iteration."""


def estimated_seconds(config: TrainConfig, spec: EnvSpec, begun: int = 0) -> float | None:
    """Seconds from iteration `begun` to the end, from the arithmetic; None where it is far below a day.

    To count the arithmetic takes a second or two, so a bound decides first whether that is worth it.
    """
    left = max(config.iterations - begun, 0)
    updates = config.seeds * max(config.iterations - max(begun, config.warmup_iterations), 0)
    slowest = 1e13 if on_gpu() else 1e10  # operations per second
    if left * _HOST_SECONDS + updates * _most_flops(config.agent, spec) / slowest < DAY / 4:
        return None
    flops = flops_per_iteration(config.agent, spec)
    return left * _HOST_SECONDS + updates * flops / (_SHARE * _product_rate(config.agent.compute_dtype))


def rough_seconds(config: TrainConfig, spec: EnvSpec, begun: int = 0) -> float:
    """The time from iteration `begun` to the end within a factor of two or three, without counting arithmetic."""
    left = max(config.iterations - begun, 0)
    updates = config.seeds * max(config.iterations - max(begun, config.warmup_iterations), 0)
    rate = _BOUND_RATE["gpu" if on_gpu() else "cpu"]
    return left * _HOST_SECONDS + updates * _most_flops(config.agent, spec) / rate


def require_agreed(seconds: float | None, what: str, yes: bool) -> None:
    """Refuses a job that is estimated to take more than a day, unless its user has agreed."""
    if seconds is not None and seconds > DAY and not yes:
        raise UsageError(
            f"{what} is estimated to take {duration(seconds)} on this {_device()}; add --yes to start it "
            "anyway, lower --steps, or choose a smaller --recipe such as fac-small"
        )


def estimate_line(seconds: float | None, rough: float) -> str:
    """The line with the estimate before a training: from its arithmetic or, where that was not counted, roughly."""
    if seconds is not None:
        return f"estimated time to the end: {duration(seconds)} on this {_device()}; {MEASURED}"
    recorded = "an H200" if on_gpu() else "two CPU cores"
    return f"roughly {duration(max(rough, 1.0))} to the end, judging by {recorded}; {MEASURED}"


def _device() -> str:
    return f"GPU ({jax.devices()[0].device_kind})" if on_gpu() else "CPU"


@functools.cache
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
    patterns = [agent.actor_due(iteration) for iteration in range(agent.actor_delay)]  # they repeat after these
    counts = [
        count_flops(lambda s, b, k, due=due: update(agent, s, b, k, due)[0], state, batches, key)
        for due in patterns
    ]
    return sum(counts) // len(counts)


def cost_line(config: TrainConfig, learning: int, seconds: float) -> str:
    """How long so many iterations with updates will take, where one takes so many seconds."""
    critic, actor = config.agent.critic_steps * config.agent.cycles, config.agent.cycles
    device = jax.devices()[0]
    seeds = f" for {config.seeds} seeds" if config.seeds > 1 else ""
    frames = f"{config.frames_per_iteration} frames" if config.frames_per_iteration > 1 else "frame"
    return (
        f"one iteration ({critic} critic + {actor} actor updates per {frames}{seeds}) takes {1000 * seconds:.3g} "
        f"ms on {device.device_kind}: about {duration(seconds * learning)} of learning to the end"
    )


def cheaper_line(config: TrainConfig, spec: EnvSpec) -> str:
    """Variants that do less arithmetic, as a share of this config's; empty where there are none."""
    now = flops_per_iteration(config.agent, spec)
    shares = {option: flops_per_iteration(agent, spec) / now for option, agent in config.agent.cheaper().items()}
    offers = [f"{option} ({share:.0%} of the arithmetic)" for option, share in shares.items() if share < 0.9]
    if jax.default_backend() == "cpu":
        offers.append("a GPU (pip install -e '.[gpu]')")
    return f"that is long; cheaper: {', '.join(offers)}" if offers else ""


def count_flops(function: Callable, *args: Any) -> int:
    """Floating-point operations of all matrix products in one call; arguments may be shapes.

    Element-wise work is left out: it costs memory traffic rather than arithmetic.
    """
    return _count(jax.make_jaxpr(function)(*args).jaxpr)


def _count(jaxpr: core.Jaxpr) -> int:
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            total += _product(equation)
            continue
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        inner = [_count(sub) for sub in _inner_programs(equation.params)]
        # Only one branch of a conditional runs; the most expensive one is the honest bound.
        total += times * (max(inner, default=0) if equation.primitive.name == "cond" else sum(inner))
    return total


def _product(equation: Any) -> int:
    (contracted, _), _ = equation.params["dimension_numbers"]
    left = equation.invars[0].aval.shape
    return 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)


def _inner_programs(params: dict[str, Any]) -> list[core.Jaxpr]:
    found = []
    for value in params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, core.ClosedJaxpr):
                found.append(item.jaxpr)
            elif isinstance(item, core.Jaxpr):
                found.append(item)
    return found


def describe(config: TrainConfig) -> dict[str, Any]:
    """The facts; nothing is trained and no parameter is made."""
    agent, spec = config.agent, task_spec(config.task)
    state = jax.eval_shape(lambda key: agent.init(spec, key), jax.eval_shape(lambda: jax.random.key(0)))
    flops = flops_per_iteration(agent, spec)
    critic, actor = config.updates_per_frame
    return {
        "recipe": config.recipe,
        "task": config.task,
        "observation_width": spec.obs_dim,
        "action_width": spec.act_dim,
        **agent.describe(spec),
        "parameters": {part: count(tree) for part, tree in agent.parts(state).items()},
        "envs": config.envs,
        "action_repeat": config.action_repeat,
        "flops_per_iteration": flops,
        "flops_per_frame": flops / config.frames_per_iteration,
        "updates_per_frame": {"critic": critic, "actor": actor},
        "warmup": config.warmup,
        "replay_per_env": config.replay,
        "normalize": config.normalize,
    }


def count(tree: Any) -> int:
    """Numbers in a pytree of arrays or shapes."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def describe_text(facts: dict[str, Any], line: str) -> str:
    """The facts for a person."""
    rows = [f"{facts['recipe']}: {line}"]
    for name, value in facts.items():
        label = name.replace("_", " ")
        if name == "parameters":
            rows += [f"  {'parameters of ' + part.replace('_', ' '):<38} {size:,}" for part, size in value.items()]
        elif name == "updates_per_frame":
            rows += [f"  {kind + ' updates per frame':<38} {rate:g}" for kind, rate in value.items()]
        elif name != "recipe":
            rows.append(f"  {label:<38} {_plain(value)}")
    return "\n".join(rows)


def _plain(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value)
    if isinstance(value, float) and value >= 1e6:
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
