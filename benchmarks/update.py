"""What one iteration of learning costs on this device, recipe by recipe: all its updates, without environments."""

from concurrent.futures import ThreadPoolExecutor
import contextlib
import dataclasses
import statistics
import tempfile
import time
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache
import jax.numpy as jnp
from jaxtyping import Array
import numpy as np

from fcritic.agents.base import AbstractAgent
from fcritic.agents.recipes import find_recipe
from fcritic.config import TrainConfig
from fcritic.envs import task_spec
from fcritic.errors import require_at_least
from fcritic.networks.precision import Precision, on_gpu
from fcritic.startup.backend import prepare
from fcritic.training.cost import flops_per_iteration
from fcritic.training.device import Device, Learning, TrainState
from fcritic.training.replay import empty, pack
from fcritic.training.saving import learning_of
from fcritic.types import EnvSpec, Transition

UNIT = "sac"


@dataclasses.dataclass(frozen=True)
class Options:
    """Time of one iteration of learning (all its updates, without environments), recipe by recipe."""

    recipes: tuple[str, ...] = ("sac", "td3", "sac+", "td3+", "fac-shared", "fac")
    """Which recipes; sac is always measured."""
    seeds: tuple[int, ...] | None = None
    """Seeds side by side; by default 1, 4 and 10 on a GPU, 1 elsewhere."""
    precision: Precision = "auto"
    """Precision of all recipes."""
    task: str = "cheetah-run"
    """Decides the sizes of observations and actions."""
    envs: int = 1
    """Environments per seed, whose steps are stored."""
    rounds: int = 5
    """Rounds; in each every program has one turn."""
    seconds: float = 1.0
    """Least time of one turn."""
    compilers: int = 1
    """Programs compiled at a time; more than one makes their compile times longer than alone."""
    cached: bool = True
    """Compile every program a second time, from the cache."""
    cache: str | None = None
    """Folder of compiled programs to use; by default an empty one, so that the first compilation is a cold one."""
    out: str | None = None
    """File for the JSON."""
    json: bool = False
    """Print JSON."""

    def __post_init__(self) -> None:
        require_at_least(1, rounds=self.rounds, compilers=self.compilers, envs=self.envs)
        require_at_least(1, seeds=min(self.seeds or (1,)))
        require_at_least(0, seconds=self.seconds)
        for recipe in self.recipes:
            find_recipe(recipe)


class Turns:
    """The compiled iterations of one recipe for so many seeds, ready to be timed."""

    def __init__(self, recipe: str, seeds: int, options: Options, spec: EnvSpec, single: TrainState):
        self.recipe, self.seeds, self.spec = recipe, seeds, spec
        agent = dataclasses.replace(find_recipe(recipe), precision=options.precision)
        self.config = TrainConfig(agent, recipe=recipe, task=options.task, envs=options.envs, seeds=seeds)
        self.agent: AbstractAgent = agent
        learning = learning_of(self.config, spec)
        self._device = Device(learning, _repeated(single, learning, seeds))
        self.agent_bytes = seeds * sum(leaf.nbytes for leaf in jax.tree.leaves(single.agent))
        draw = np.random.default_rng(0).normal
        rows = lambda *rest: draw(size=(seeds, options.envs, *rest)).astype(np.float32)
        self._step = Transition(rows(spec.obs_dim), rows(spec.act_dim), rows(), rows() * 0 + 1, rows(spec.obs_dim))
        self._count = 0
        self._lowered: list[jax.stages.Lowered] = []
        self._programs: list[jax.stages.Compiled] = []
        self.trace_seconds, self.cold_seconds = 0.0, 0.0
        self.again: tuple[float, float] | None = None

    def trace(self) -> float:
        """Seconds to make the programs of the iterations, which differ where the actor is not updated in each."""
        start = time.perf_counter()
        due = [self.agent.actor_due(number) for number in range(self.agent.actor_delay)]
        self._lowered = [self._device.lowered(cycles) for cycles in due]
        return time.perf_counter() - start

    def compile(self) -> float:
        """Seconds to compile them, or to find them in the cache."""
        start = time.perf_counter()
        self._programs = [lowered.compile() for lowered in self._lowered]
        return time.perf_counter() - start

    @property
    def memory_bytes(self) -> int:
        """Arguments and what lives beside them while a program runs."""
        sizes = [program.memory_analysis() for program in self._programs]
        return max(0 if size is None else size.argument_size_in_bytes + size.temp_size_in_bytes for size in sizes)

    def milliseconds(self, iterations: int) -> float:
        """Per iteration, over so many of them.

        What the host hands over lies on the device before the clock starts; in a training it arrives while acting.
        """
        numbers = np.arange(self._count, self._count + iterations, dtype=np.uint32)
        row, *places = jax.block_until_ready(jax.device_put([pack(self._step), *numbers]))
        leaves = self._device.leaves
        start = time.perf_counter()
        for place in places:
            leaves = self._programs[self._count % len(self._programs)](leaves, row, place)
            self._count += 1
        jax.block_until_ready(leaves)
        self._device.leaves = leaves
        return 1000 * (time.perf_counter() - start) / iterations


def measure(options: Options, say=lambda line: None) -> dict[str, Any]:
    """Rows, one per recipe and number of seeds, with the floor of the same work and the measured ceilings."""
    with contextlib.ExitStack() as stack:
        folder = options.cache or stack.enter_context(tempfile.TemporaryDirectory())
        stack.callback(compilation_cache.reset_cache)  # it holds on to its folder
        # Small programs are kept too, so that their second compilation is one from the cache.
        changed = {"jax_compilation_cache_dir": folder, "jax_persistent_cache_min_compile_time_secs": 0.0}
        for name, value in changed.items():
            stack.callback(jax.config.update, name, getattr(jax.config, name))
            jax.config.update(name, value)
        compilation_cache.reset_cache()
        prepare()
        rates = _ceilings()
        turns = _compiled(options, say)
        times = _timed(turns, options, say)
    flops = {
        turn.recipe: flops_per_iteration(turn.agent, turn.spec) for turn in turns if turn.seeds == turns[0].seeds
    }
    rows = [_row(turn, times, rates, turn.seeds * flops[turn.recipe]) for turn in turns]
    device = jax.devices()[0].device_kind
    report = {"device": device, "jax": jax.__version__, "task": options.task, "ceilings": rates}
    return report | {"compilers": options.compilers, "rows": [{"device": device} | row for row in rows]}


def _ceilings() -> dict[str, float]:
    """The rates from which floors follow: FLOP per second of a large product in each precision; bytes per second of
    a large copy, read and written."""
    side, numbers = (8192, 2**29) if on_gpu() else (1024, 2**25)
    matrix = jax.random.normal(jax.random.key(0), (side, side))  # zeros would run faster
    vector = jax.random.normal(jax.random.key(1), (numbers,))
    product = jax.jit(lambda x: x @ x)
    rates = {
        f"{name}_flop_per_second": 2 * side**3 / _seconds_of(product, matrix.astype(name))
        for name in ("float32", "bfloat16")
    }
    return rates | {"bytes_per_second": 2 * vector.nbytes / _seconds_of(jax.jit(lambda x: x + 1), vector)}


def _seconds_of(function, argument: Array) -> float:
    elapsed = []
    for _ in range(12):
        start = time.perf_counter()
        jax.block_until_ready(function(argument))
        elapsed.append(time.perf_counter() - start)
    return statistics.median(elapsed[2:])


def _compiled(options: Options, say) -> list[Turns]:
    spec = task_spec(options.task)
    seeds = options.seeds or ((1, 4, 10) if on_gpu() else (1,))
    names = [UNIT, *(name for name in options.recipes if name != UNIT)]
    singles = {
        name: learning_of(TrainConfig.of(name, task=options.task, envs=options.envs), spec).start([0])
        for name in names
    }
    turns = [Turns(name, count, options, spec, singles[name]) for name in names for count in seeds]

    def compile_cold(turn: Turns) -> None:
        turn.trace_seconds, turn.cold_seconds = turn.trace(), turn.compile()
        say(f"{turn.recipe}, {turn.seeds} seeds: compiled in {turn.cold_seconds:.1f} s")

    with ThreadPoolExecutor(options.compilers) as pool:  # what takes longest begins first
        list(pool.map(compile_cold, sorted(turns, key=lambda turn: -turn.agent_bytes)))
    for turn in turns if options.cached else ():
        jax.clear_caches()  # those in memory; what is on disk stays
        turn.again = (turn.trace(), turn.compile())
    return turns


def _repeated(single: TrainState, learning: Learning, seeds: int) -> TrainState:
    """The state of one seed so many times: for timing, seeds need not differ, and drawing them takes a while."""
    # A tree at a time: one call for each of its arrays took longer than all else.
    repeat = lambda tree: jax.device_put(
        jax.tree.map(lambda leaf: np.repeat(leaf, seeds, axis=0), jax.device_get(tree))
    )
    ring = empty(learning.spec, learning.envs, learning.capacity, seeds)
    parts = (repeat(part) for part in (single.agent, single.normalizer))
    return TrainState(*parts, ring, repeat(single.keys), repeat(single.tally), jnp.copy(single.tallied))


def _timed(turns: list[Turns], options: Options, say) -> dict[tuple[str, int], list[float]]:
    """Times in rounds, so that a slow minute of the machine hits all of them."""
    # As many iterations as last `seconds`, an even number because TD3's differ in pairs.
    lengths = []
    for turn in turns:
        turn.milliseconds(2)
        lengths.append(2 * max(1, round(500 * options.seconds / turn.milliseconds(2))))
    times: dict[tuple[str, int], list[float]] = {(turn.recipe, turn.seeds): [] for turn in turns}
    for number in range(options.rounds):
        for turn, length in zip(turns, lengths, strict=True):
            times[turn.recipe, turn.seeds].append(turn.milliseconds(length))
        say(f"round {number + 1}: " + ", ".join(f"{name}/{n} {v[-1]:.2f} ms" for (name, n), v in times.items()))
    return times


def _row(
    turn: Turns, times: dict[tuple[str, int], list[float]], rates: dict[str, float], flop: int
) -> dict[str, Any]:
    agent, own = turn.agent, times[turn.recipe, turn.seeds]
    ratios = [one / unit for one, unit in zip(own, times[UNIT, turn.seeds], strict=True)]
    # The fewest bytes: what is learned is read and written once, every sampled transition read once.
    sampled = agent.batches_per_iteration * agent.batch_size * (2 * turn.spec.obs_dim + turn.spec.act_dim + 2)
    floor_bytes = 2 * turn.agent_bytes + 4 * turn.seeds * sampled
    milliseconds = statistics.median(own)
    arithmetic = 1000 * flop / rates[f"{agent.compute_dtype.name}_flop_per_second"]
    traffic = 1000 * floor_bytes / rates["bytes_per_second"]
    return {
        "recipe": turn.recipe,
        "seeds": turn.seeds,
        "precision": agent.compute_dtype.name,
        "ms_per_iteration": round(milliseconds, 3),
        "ms_spread": [round(min(own), 3), round(max(own), 3)],
        "times_sac": round(statistics.median(ratios), 2),
        "times_sac_spread": [round(min(ratios), 2), round(max(ratios), 2)],
        "critic_updates": agent.cycles * agent.critic_steps,
        "actor_updates": agent.cycles / agent.actor_delay,
        "gigaflop": round(flop / 1e9, 3),
        "floor_megabytes": round(floor_bytes / 1e6, 1),
        "floor_ms_of_arithmetic": round(arithmetic, 4),
        "floor_ms_of_traffic": round(traffic, 4),
        "share_of_floor": round(max(arithmetic, traffic) / milliseconds, 5),
        "trace_seconds": round(turn.trace_seconds, 1),
        "compile_seconds_cold": round(turn.cold_seconds, 1),
        "trace_seconds_cached": None if turn.again is None else round(turn.again[0], 1),
        "compile_seconds_cached": None if turn.again is None else round(turn.again[1], 1),
        "peak_megabytes": round(turn.memory_bytes / 1e6, 1),
    }


def report_text(report: dict[str, Any]) -> str:
    """A table for a person."""
    head = (
        f"{'recipe':<12} {'seeds':>5} {'updates':>8} {'GFLOP':>8} {'ms':>9} {'floor':>6} {'compile':>13} {'MB':>7}"
    )
    lines = [f"one iteration of learning on {report['device']}, JAX {report['jax']}", f"{head}   times sac"]
    for row in report["rows"]:
        low, high = row["times_sac_spread"]
        updates = f"{row['critic_updates']} + {row['actor_updates']:g}"
        seconds = f"{row['compile_seconds_cold']}, {row['compile_seconds_cached'] or '-'} s"
        lines.append(
            f"{row['recipe']:<12} {row['seeds']:>5} {updates:>8} {row['gigaflop']:>8.2f} "
            f"{row['ms_per_iteration']:>9.2f} {row['share_of_floor']:>6.1%} {seconds:>13} "
            f"{row['peak_megabytes']:>7.0f}   {row['times_sac']:.2f} ({low:.2f} to {high:.2f})"
        )
    return "\n".join(lines)
