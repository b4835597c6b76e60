"""THE training loop. It mentions no algorithm; what happens on the device is in `learning`."""

from pathlib import Path
import signal
import threading
from types import FrameType
from typing import Any

import jax
import numpy as np

from fcritic import checkpoint, envs
from fcritic.backend import prepare
from fcritic.config import TrainConfig
from fcritic.console import TrainingConsole
from fcritic.cost import announce_cost
from fcritic.errors import Diverged, UsageError
from fcritic.evaluate import Evaluator
from fcritic.learning import TrainState, mean_metrics
from fcritic.logs import JSONLog, TensorBoardLog
from fcritic.retention import prune
from fcritic.runs import RunDirectory
from fcritic.saving import Progress, clear_tally, learning_of, pack, unpack

FREE_FIELDS = frozenset(
    {"steps", "eval_every", "log_every", "save_every", "keep", "env_processes", "env_timeout", "on_fault"}
)
"""What may change when a run continues: how long it is, how often it is looked at, where environments run."""


class Interrupted(Exception):
    """The training was asked to stop; everything is saved."""

    def __init__(self, signal_number: int, frame: int):
        super().__init__(signal_number)
        self.signal_number, self.frame = signal_number, frame


def train(config: TrainConfig, out: str | Path, command: str = "", quiet: bool = False) -> RunDirectory:
    """Trains in a directory, or continues what is there, to the last frame; returns the directory."""
    # An unusable task must not leave a directory behind.
    envs.make(config.task, seed=0, action_repeat=config.action_repeat).close()
    prepare()
    _refuse_shorter(config, Path(out))
    complete = lambda stored: TrainConfig.from_json(stored).to_json()
    with RunDirectory.create_or_open(out, config.to_json(), command, FREE_FIELDS, complete) as run:
        Training(config, run, quiet).run()
    return run


def _refuse_shorter(config: TrainConfig, out: Path) -> None:
    newest = RunDirectory(out).latest_checkpoint()
    frame = 0 if newest is None else int(newest.name.removeprefix("step-"))
    if frame > config.iterations * config.frames_per_iteration:
        raise UsageError(f"{out} is already at frame {frame:,}; --steps {config.steps} would cut it short")


class Training:
    """One training in progress: the device's state, the environments, the logs."""

    def __init__(self, config: TrainConfig, run: RunDirectory, quiet: bool = False):
        self.config, self.directory = config, run
        self.vector = envs.make_vector(config.task, envs=config.envs, **config.env_options)
        self.learning = learning_of(config, self.vector.spec)
        self.evaluator = Evaluator(config, config.eval_episodes)
        self.progress = Progress()
        self.pending = None
        self.stop_signal = 0
        self.console = TrainingConsole(config, 0, quiet)
        self._restore_or_start()
        resume_step = self.frame if self.progress.iteration else None
        self.log = JSONLog(run.metrics_path)
        self.log.truncate(self.progress.log_position)
        self.sinks = [self.log, TensorBoardLog(run.path / "tensorboard", resume_step)]

    @property
    def state(self) -> TrainState:
        """Everything on the device, by its names."""
        return self.flat.tree

    @state.setter
    def state(self, state: TrainState) -> None:
        self.flat = self.learning.flat(state)

    @property
    def frame(self) -> int:
        """Frames taken so far, summed over the environments of a seed."""
        return self.progress.iteration * self.config.frames_per_iteration

    def run(self) -> None:
        """Iterates to the end, or until a signal asks to stop."""
        main = threading.current_thread() is threading.main_thread()  # only it may handle signals
        numbers = (signal.SIGINT, signal.SIGTERM) if main else ()
        handlers = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            with self.console:
                self._announce()
                self.advance(self.config.iterations - self.progress.iteration)
                self._save()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self._close()
        if self.stop_signal:
            raise Interrupted(self.stop_signal, self.frame)

    def advance(self, iterations: int) -> None:
        """So many iterations with all that falls due in them, unless a signal asks to stop."""
        for _ in range(iterations):
            if self.stop_signal:
                return
            self._iterate()
            self._after_iteration()

    def _iterate(self) -> None:
        """One step in every environment, taken while the device learns from the step before.

        Acting comes first in the queue, so its actions do not wait for the update that follows them.
        """
        iteration, warm = self.progress.iteration, self.progress.iteration < self.config.warmup_iterations
        vector, learning = self.vector, self.learning
        actions, self.memory = learning.act(
            self.flat,
            self.memory,
            vector.obs,
            vector.fresh,
            iteration,
            uniform=warm and self.config.warmup_actions == "uniform",
        )
        if self.pending is not None:
            self.flat = (
                learning.store(self.flat, self.pending)
                if warm
                else learning.learn(self.flat, self.pending, iteration)
            )
        self.pending, episodes = vector.step(self._finite(np.asarray(actions)))
        self.progress.iteration += 1
        if episodes:
            self._write_episodes(episodes)

    def _finite(self, actions: np.ndarray) -> np.ndarray:
        """The actions, unless a seed has diverged."""
        sick = np.flatnonzero(~np.isfinite(actions).all(axis=(1, 2)))
        if sick.size:
            raise Diverged(
                f"seed {self.config.seed + sick[0]} diverged by frame {self.frame:,}: its actions are no numbers; "
                "lower --learning-rate"
            )
        return actions

    def _after_iteration(self) -> None:
        config, iteration = self.config, self.progress.iteration
        last = iteration == config.iterations
        self.console.update(self.frame)
        if iteration == config.warmup_iterations + 1:
            jax.block_until_ready(self.flat.leaves)  # compiled by now
            self.console.restart_clock(self.frame)
        if iteration > config.warmup_iterations and (last or self._due(config.log_every)):
            self._write_losses()
        if last or self._due(config.eval_every):
            self._evaluate()
        if not last and self._due(config.save_every):
            self._save()

    def _due(self, every: int) -> bool:
        """Whether the last iteration crossed a multiple of `every` frames."""
        return self.frame // every > (self.frame - self.config.frames_per_iteration) // every

    def _write_episodes(self, episodes: list[envs.Episode]) -> None:
        told = lambda e: {"env": e.env_index, "return": e.total_reward, "length": e.length_in_steps}
        self._write("episode", [(e.seed_index, told(e)) for e in episodes])
        self.console.update(self.frame, rollout=float(np.mean([e.total_reward for e in episodes])))

    def _write_losses(self) -> None:
        means, agent, config = mean_metrics(self.state), self.config.agent, self.config
        self.state = clear_tally(self.state)
        before = agent.actor_updates_before(min(self.progress.iteration, config.warmup_iterations))
        updates = agent.actor_updates_before(self.progress.iteration) - before
        rows = [
            (seed, {name: float(values[seed]) for name, values in means.items()} | {"actor_updates": updates})
            for seed in range(self.config.seeds)
        ]
        self._write("train", rows)
        loss = means.get("critic_loss")
        self.console.update(self.frame, **({} if loss is None else {"loss": float(loss.mean())}))

    def _evaluate(self) -> None:
        policies = jax.vmap(self.config.agent.evaluation_policies)(self.state.agent)
        results = self.evaluator.evaluate(policies, self.state.normalizer, str(self.frame))
        self._write("evaluation", [(seed, result.to_json()) for seed, result in enumerate(results)])
        mean = float(np.mean([result.mean_actor for result in results]))
        self.console.evaluated(self.frame, mean, float(np.mean([result.best_actor for result in results])))

    def _write(self, kind: str, rows: list[tuple[int, dict[str, Any]]]) -> None:
        """Rows of one kind, each for a seed index, to all logs."""
        head = lambda index: {"seed": self.config.seed + index, "env_steps": self.frame, "kind": kind}
        for sink in self.sinks:
            sink.write([head(index) | values for index, values in rows])

    def _announce(self) -> None:
        if changes := self.directory.version_changes() if self.progress.iteration else []:
            self.console.say(f"note: other versions than at the start: {', '.join(changes)}")
        if self.config.iterations <= self.config.warmup_iterations and not self.progress.iteration:
            self.console.say(
                f"note: the warm-up of {self.config.warmup:,} frames covers the whole run, so nothing is learned; "
                "lower --warmup or raise --steps"
            )
        elif self.progress.iteration < self.config.iterations and not self.console.quiet:
            self.console.say(announce_cost(self))
        self.console.restart_clock(self.frame)

    def _save(self) -> None:
        """Writes a checkpoint from which training continues exactly."""
        self.progress.log_position = self.log.position()
        path = self.directory.checkpoint_path(self.frame)
        if path == self.newest:  # nothing has happened since, as in a run that was already finished
            return
        facts = vars(self.progress) | {"env_steps": self.frame, "task": self.config.task}
        checkpoint.save(path, pack(self.state, self.memory, self.pending, self.vector.state()), facts)
        prune(self.directory.checkpoints, self.config.keep)
        self.newest = path

    def _restore_or_start(self) -> None:
        self.newest = self.directory.latest_checkpoint()
        if self.newest is None:
            self.state = self.learning.start(self.config.seed_numbers)
            self.memory = self.learning.begin(self.state)
            return
        groups, facts = checkpoint.load(self.newest)
        parts = unpack(self.learning, self.config.seed_numbers, groups)
        self.state, self.memory, self.pending, environments = parts
        restarted = self.vector.restore(environments)
        self.progress = Progress(facts["iteration"], facts["log_position"])
        self.console.say(f"continuing {self.directory.path} at frame {self.frame:,}")
        if restarted:
            self.console.say(f"note: {restarted} environments cannot tell their state and begin a new episode")

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.stop_signal:  # asked twice: at once, without saving
            raise KeyboardInterrupt
        self.stop_signal = number

    def _close(self) -> None:
        for sink in self.sinks:
            sink.close()
        self.evaluator.close()
        self.vector.close()
