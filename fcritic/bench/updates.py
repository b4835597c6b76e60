"""What the updates of each recipe cost on this device, as a multiple of SAC's."""

import dataclasses
import statistics
import time
from typing import Any

import jax
import numpy as np

from fcritic.agents.recipes import find_recipe
from fcritic.backend import prepare
from fcritic.cost import flops_per_iteration
from fcritic.envs import task_spec
from fcritic.errors import require_at_least
from fcritic.learning import Flat, Learning
from fcritic.types import EnvSpec, Transition

UNIT = "sac"


@dataclasses.dataclass(frozen=True)
class UpdatesOptions:
    """Time of one iteration of learning (all its updates, without environments), recipe by recipe."""

    recipes: tuple[str, ...] = ("sac", "td3", "sac+", "td3+", "fac-shared", "fac")
    """Which recipes; sac is always measured."""
    task: str = "cheetah-run"
    """Decides the sizes of observations and actions."""
    rounds: int = 5
    """Rounds; in each every recipe has one turn."""
    seconds: float = 1.0
    """Least time of one turn."""
    out: str | None = None
    """File for the JSON."""
    json: bool = False
    """Print JSON."""

    def __post_init__(self) -> None:
        require_at_least(1, rounds=self.rounds)
        require_at_least(0, seconds=self.seconds)
        for recipe in self.recipes:
            find_recipe(recipe)


class Turns:
    """One recipe's learning, ready to be timed."""

    def __init__(self, recipe: str, spec: EnvSpec):
        self.agent = find_recipe(recipe)
        self._learning = Learning(self.agent, spec, envs=1, capacity=10_000, normalize=True, recency=8.0)
        self._state: Flat = self._learning.flat(self._learning.start([0]))
        draw = lambda *shape: np.random.default_rng(0).normal(size=(1, 1, *shape)).astype(np.float32)
        self._step = Transition(draw(spec.obs_dim), draw(spec.act_dim), draw(), draw() * 0 + 1, draw(spec.obs_dim))
        self._count = 0
        self.milliseconds(2)  # compiles

    def milliseconds(self, iterations: int) -> float:
        """Per iteration, over so many of them."""
        start = time.perf_counter()
        for _ in range(iterations):
            self._state = self._learning.learn(self._state, self._step, self._count)
            self._count += 1
        jax.block_until_ready(self._state.leaves)
        return 1000 * (time.perf_counter() - start) / iterations


def measure(options: UpdatesOptions, say=lambda line: None) -> dict[str, Any]:
    """Milliseconds per iteration with their spread, updates in it, arithmetic, and multiples of SAC."""
    prepare()
    spec = task_spec(options.task)
    names = [UNIT, *(name for name in options.recipes if name != UNIT)]
    turns = {name: Turns(name, spec) for name in names}
    # As many iterations as last `seconds`, an even number because TD3's differ in pairs.
    lengths = {
        name: 2 * max(1, round(500 * options.seconds / turn.milliseconds(2))) for name, turn in turns.items()
    }
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(options.rounds):
        for name, turn in turns.items():
            times[name].append(turn.milliseconds(lengths[name]))
        say(f"round {number + 1}: " + ", ".join(f"{name} {values[-1]:.1f} ms" for name, values in times.items()))
    rows = {name: _row(turns[name], times[name], times[UNIT], spec) for name in names}
    return {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "task": options.task, "recipes": rows}


def _row(turn: Turns, times: list[float], unit: list[float], spec: EnvSpec) -> dict[str, Any]:
    agent = turn.agent
    ratios = [own / theirs for own, theirs in zip(times, unit, strict=True)]
    return {
        "milliseconds": round(statistics.median(times), 3),
        "times_sac": round(statistics.median(ratios), 2),
        "times_sac_spread": [round(min(ratios), 2), round(max(ratios), 2)],
        "critic_updates": agent.cycles * agent.critic_steps,
        "actor_updates": agent.cycles / agent.actor_delay,
        "gigaflop": round(flops_per_iteration(agent, spec) / 1e9, 3),
    }


def report_text(report: dict[str, Any]) -> str:
    """A table for a person."""
    head = f"{'recipe':<12} {'updates':>10} {'GFLOP':>8} {'ms':>9}   times sac (lowest to highest)"
    lines = [f"one iteration of learning on {report['device']}, JAX {report['jax']}", head]
    for name, row in report["recipes"].items():
        low, high = row["times_sac_spread"]
        updates = f"{row['critic_updates']} + {row['actor_updates']:g}"
        lines.append(
            f"{name:<12} {updates:>10} {row['gigaflop']:>8.2f} {row['milliseconds']:>9.2f}"
            f"   {row['times_sac']:.2f} ({low:.2f} to {high:.2f})"
        )
    return "\n".join(lines)
