"""What is said when a training begins: what it costs on this device, and what would cost less."""

import dataclasses
import time
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from fcritic.agents.base import AbstractAgent, update
from fcritic.config import TrainConfig
from fcritic.training.console import duration
from fcritic.training.flops import count_flops
from fcritic.types import EnvSpec, Transition

if TYPE_CHECKING:
    from fcritic.training.loop import Training

LAPS = 9
"""Iterations whose median is taken for the cost of one."""

LONG = 3600.0
"""Seconds from which on a job is called long and cheaper choices are listed."""


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


class Announcer:
    """Tells the person who watches what a training costs, once its own iterations have shown it."""

    def __init__(self, training: "Training"):
        self._training = training
        self._since: float | None = None
        self._laps: list[float] = []

    def begin(self) -> None:
        """What is known before a training begins or goes on; starts its clock."""
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
