"""THE training loop. It mentions no algorithm; what happens on the device is in `learning`."""

from collections.abc import Iterable
import dataclasses
from pathlib import Path

import jax
import numpy as np

from fcritic import envs
from fcritic.config import TrainConfig
from fcritic.errors import CannotWrite, CheckpointError, Diverged, EnvironmentFault, UsageError
from fcritic.logs.trackers import require_tracker
from fcritic.runs import CONFIG
from fcritic.runs.directory import RunDirectory
from fcritic.startup.backend import prepare, wake_device
from fcritic.startup.garbage import search_put_off
from fcritic.training.ahead import Ahead
from fcritic.training.behaviour import behaviour
from fcritic.training.best import Best
from fcritic.training.console import TrainingConsole
from fcritic.training.cost import Announcer, estimate_line, estimated_seconds, require_agreed
from fcritic.training.evaluate import Evaluator
from fcritic.training.health import require_room, require_sane_metrics, require_sane_parameters, sane_actions
from fcritic.training.reporting import Reporter
from fcritic.training.saving import (
    Checkpoints,
    Progress,
    Snapshot,
    clear_tally,
    learning_of,
    require_trainable,
    restore_environments,
    with_new_episodes,
    with_other_numbers,
)
from fcritic.training.signals import Interrupted, StopSignal
from fcritic.training.train_state import TrainState, mean_metrics
from fcritic.training.warmup import Warmup

HOW_OFTEN = ("eval_every", "log_every", "save_every", "keep")
FREE_FIELDS = frozenset(("steps", *HOW_OFTEN, "value_limit", "on_fault", "env_processes", "env_timeout", "log"))
"""What may change when a run continues: its length, how often and by whom it is looked at, what ends it, where."""

MOST_ROLLBACKS = 3
"""How often a training goes back to the same checkpoint before it gives up."""


def train(
    config: TrainConfig,
    out: str | Path,
    command: str = "",
    quiet: bool = False,
    yes: bool = False,
    note: str = "",
) -> RunDirectory:
    """Trains in a directory, or continues what is there, to the last frame; returns the directory.

    What is estimated to take more than a day is refused, unless `yes` agrees to it. `note` is said first.
    """
    prepare(config.deterministic)
    wake_device()
    # An unusable task must not leave a directory behind.
    spec, _ = envs.task_units(config.task, config.action_repeat)
    require_tracker(config.log)
    require_trainable(config, RunDirectory(out))
    seconds = estimated_seconds(config, spec, RunDirectory(out).newest_frame() // config.frames_per_iteration)
    require_agreed(seconds, f"{config.recipe} on {config.task} to frame {config.steps:,}", yes)
    complete = lambda stored: TrainConfig.from_json(stored).to_json()
    known = (RunDirectory(out).path / CONFIG).exists()
    with RunDirectory.create_or_open(out, config.to_json(), command, FREE_FIELDS, complete) as run:
        notes = [note, "" if seconds is None else estimate_line(seconds)]
        Training(config, run, quiet, known).run([line for line in notes if line])
    return run


class Training:
    """One training in progress: the device's state, the environments, the logs."""

    @search_put_off()
    def __init__(self, config: TrainConfig, run: RunDirectory, quiet: bool = False, known: bool = False):
        self.config, self.directory = config, run
        self.console = TrainingConsole(config, 0, quiet)
        self.vector = self._environments()
        self.evaluator = Evaluator(config, config.eval_episodes)
        self.stop, self._retries = StopSignal(), 0
        try:
            require_room(config, self.vector.spec)
            self.learning = learning_of(config, self.vector.spec)
            self.checkpoints = Checkpoints(run, config, self.learning)
            snapshot, faults = self.checkpoints.restore()
            self.reporter = Reporter(config, run, self.console)
            for fault in faults:
                self.reporter.warn(fault)
            if known and snapshot is None:
                self._say_from_the_beginning()
            restarted = self._adopt(snapshot)
            first = max(self.progress.iteration, config.warmup_iterations)
            self.ahead = Ahead(self.learning, self.flat, first, config.iterations)
            self.announcer = Announcer(self)
            if restarted:
                self.console.say(f"note: {restarted} environments cannot tell their state and begin a new episode")
        except BaseException:
            self.vector.close()  # its processes would live on
            raise

    @property
    def state(self) -> TrainState:
        """Everything on the device, by its names; what the warm-up has kept back is stored first."""
        self.flat = self.warmup.stored(self.flat)
        return self.flat.tree

    @state.setter
    def state(self, state: TrainState) -> None:
        self.flat = self.learning.flat(state)
        self.warmup = Warmup(self.learning, np.asarray(state.keys))

    @property
    def frame(self) -> int:
        """Frames taken so far, summed over the environments of a seed."""
        return self.progress.iteration * self.config.frames_per_iteration

    def run(self, notes: Iterable[str] = ()) -> None:
        """Iterates to the end, or until a signal asks to stop; says some lines before."""
        try:
            with self.stop, self.console, self.reporter.journal:
                self.announcer.begin(notes)
                try:
                    self._run_to_the_end()
                except (CannotWrite, CheckpointError):
                    raise
                except (EnvironmentFault, Diverged, UsageError) as fault:
                    raise type(fault)(f"{fault}; {self._salvaged(fault)}") from fault
        finally:
            self.close()
        if self.stop:
            raise Interrupted(self.stop.number, self.frame)

    def _run_to_the_end(self) -> None:
        while not self._finished():
            try:
                self.advance(self.config.iterations - self.progress.iteration)
            except (EnvironmentFault, Diverged) as fault:
                self._roll_back(fault)
        self.save()

    def _salvaged(self, fault: Exception) -> str:
        """Saves what a fault has left sane, and returns the words for what is kept."""
        lost = ""
        if self.progress.iteration and not isinstance(fault, Diverged):
            try:
                self.save(episodes=False)  # those of a broken environment cannot be continued
                return f"all up to frame {self.frame:,} is saved, a resume goes on from there with new episodes"
            except (CannotWrite, Diverged) as error:
                lost = f" ({error})"
        kept = self.directory.latest_checkpoint()
        return f"{kept} is kept{lost}" if kept else f"there is no checkpoint{lost}: a resume begins at frame 0"

    def _say_from_the_beginning(self) -> None:
        """A known run without a checkpoint: says that it begins at frame 0, and why."""
        path, every = self.directory.path, f"--save-every {self.config.save_every:,}"
        if self.directory.metrics_path.stat().st_size:
            self.reporter.warn(
                f"{path} has no checkpoint: its last process ended before the first one ({every}), so what it did "
                "is lost; beginning at frame 0"
            )
        else:
            self.console.say(f"note: {path} has no checkpoint yet ({every}); beginning at frame 0")

    def _finished(self) -> bool:
        return bool(self.stop) or self.progress.iteration >= self.config.iterations

    def advance(self, iterations: int) -> None:
        """So many iterations with all that falls due in them, unless a signal asks to stop."""
        for _ in range(iterations):
            if self.stop:
                return
            self._iterate()
            self._after_iteration()

    def _iterate(self) -> None:
        """One step in every environment, taken while the device learns from the step before.

        Acting comes first in the queue, so its actions do not wait for the update that follows them.
        """
        iteration = self.progress.iteration
        actions = self._act(iteration)
        if self.pending is not None and iteration < self.config.warmup_iterations:
            self.flat = self.warmup.keep(self.flat, self.pending)
        elif self.pending is not None:
            self.ahead.wait_to_learn(iteration)
            self.flat = self.learning.learn(self.warmup.stored(self.flat), self.pending, iteration)
        self.pending = None  # it is the device's: should the next step fail, it is not stored twice
        self.pending, episodes = self.vector.step(sane_actions(actions, self.config, self.frame))
        self.progress.iteration += 1
        self.reporter.rewards(self.frame, self.pending.reward)
        if episodes:
            self.reporter.episodes(self.frame, episodes)
        self.reporter.faults(self.frame, self.vector.take_faults())

    def _act(self, iteration: int) -> np.ndarray | jax.Array:
        """Actions for all environments, by chance or by the policy; who plays an episode is drawn at its start."""
        vector, learns_at = self.vector, self.config.warmup_iterations
        by_chance = self.config.warmup_actions == "uniform"
        if by_chance and iteration < learns_at:
            return self.warmup.actions(iteration)
        self.ahead.wait_to_act()
        if by_chance and iteration == learns_at:
            self.memory = self.warmup.memories(iteration - vector.length)
        actions, self.memory = self.learning.act(self.flat, self.memory, vector.obs, vector.fresh, iteration)
        return actions

    def _after_iteration(self) -> None:
        config, iteration = self.config, self.progress.iteration
        last = iteration == config.iterations
        self.console.update(self.frame)
        if iteration > config.warmup_iterations:
            self.announcer.learned()
            if last or self._due(config.log_every):
                self._write_losses()
        if last or self._due(config.eval_every):
            self._evaluate()
        if not last and self._due(config.save_every):
            self._try_to_save()

    def _due(self, every: int) -> bool:
        """Whether the last iteration crossed a multiple of `every` frames."""
        return self.frame // every > (self.frame - self.config.frames_per_iteration) // every

    def _write_losses(self) -> None:
        state, agent, config = self.flat.carried, self.config.agent, self.config  # to unpack it takes milliseconds
        means = mean_metrics(state)
        self.flat = dataclasses.replace(self.flat, leaves=tuple(jax.tree.leaves(clear_tally(state))))
        before = agent.actor_updates_before(min(self.progress.iteration, config.warmup_iterations))
        self.reporter.losses(self.frame, means, agent.actor_updates_before(self.progress.iteration) - before)
        require_sane_metrics(means, state, self.vector.spec, config, self.frame)
        require_sane_parameters(state, config, self.frame)

    def _evaluate(self) -> None:
        require_sane_parameters(self.state, self.config, self.frame)
        policies = jax.vmap(self.config.agent.evaluation_policies)(self.state.agent)
        results = self.evaluator.evaluate(policies, self.state.normalizer, str(self.frame))
        scores = np.array([result.mean_actor for result in results])
        self.best = self.best.improved(policies, self.state.normalizer, scores, self.frame)
        self.reporter.evaluation(self.frame, results)
        self.reporter.behaviour(self.frame, behaviour(self.learning, self.state, self.frame))
        self.reporter.faults(self.frame, self.evaluator.take_faults())

    def save(self, episodes: bool = True) -> None:
        """Writes a checkpoint from which training continues exactly; never one of a sick training.

        Without `episodes` the environments are left out: all of them then begin a new episode.
        """
        require_sane_parameters(self.state, self.config, self.frame)
        self.progress.log_position = self.reporter.log.position()
        environments = self.vector.state(episodes)
        parts = (self.state, self.memory, self.pending, environments, self.best, self.progress)
        self.checkpoints.save(Snapshot(*parts), self.frame)
        self._retries = 0

    def _try_to_save(self) -> None:
        try:
            self.save()
        except CannotWrite as error:
            self.reporter.warn(f"{error}; training goes on and tries again at the next save")

    def _adopt(self, snapshot: Snapshot | None) -> int:
        """Begins, or continues from a checkpoint; how many environments had to begin a new episode."""
        if snapshot is None:
            self.progress, self.pending = Progress(), None
            state = self.learning.start(self.config.seed_numbers)
            self.memory, self.best = self.learning.begin(state), Best.none(self.config.agent, state)
            self.state = state  # last: to read it takes networks out of their vectors again
            self.reporter.resume(0, None)
            return 0
        self.state, self.memory, self.pending, environments, self.best, self.progress = snapshot
        self.reporter.resume(self.progress.log_position, self.frame)
        return restore_environments(self.vector, environments)

    def _roll_back(self, fault: EnvironmentFault | Diverged) -> None:
        """Goes back to the newest checkpoint and on with other random numbers, if that is wanted."""
        if self.config.on_fault != "rollback" or self._retries >= MOST_ROLLBACKS:
            raise fault
        self._retries, rollbacks = self._retries + 1, self.progress.rollbacks + 1
        self.vector.close()
        self.vector = self._environments()  # the old ones may be broken
        snapshot = self.checkpoints.restore()[0]
        if snapshot is not None and isinstance(fault, EnvironmentFault):
            snapshot = with_new_episodes(snapshot)  # or they would come to the same step
        self._adopt(snapshot)
        self.progress.rollbacks = rollbacks
        self.state = with_other_numbers(self.state, rollbacks)
        line = f"{fault}; went back to frame {self.frame:,}, on with other random numbers"
        self.console.warn(line)
        self.reporter.journal.warn(line)
        self.reporter.write(self.frame, "rollback", [(0, {"why": str(fault), "rollbacks": rollbacks})])

    def _environments(self) -> envs.VectorEnv:
        return envs.make_vector(self.config.task, envs=self.config.envs, **self.config.env_options)

    def close(self) -> None:
        """Closes logs and environments."""
        self.reporter.close()
        self.evaluator.close()
        self.vector.close()
