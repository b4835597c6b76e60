"""THE training loop. It mentions no algorithm; what happens on the device is in `device`."""

from collections.abc import Callable, Iterable
import contextlib
from pathlib import Path

import jax
import numpy as np

from fcritic import envs
from fcritic.config import TrainConfig, require_memory_for_networks
from fcritic.errors import CannotWrite, CheckpointError, Diverged, EnvironmentFault, UsageError
from fcritic.logs.trackers import require_tracker
from fcritic.runs import CONFIG
from fcritic.runs.checkpoint import newest_first
from fcritic.runs.directory import RunDirectory
from fcritic.startup.backend import prepare, wake_device
from fcritic.training.behaviour import behaviour
from fcritic.training.cost import estimate_line, estimated_seconds, require_agreed, rough_seconds
from fcritic.training.device import Device, Learning, TrainState
from fcritic.training.evaluate import Evaluation, Evaluator
from fcritic.training.health import require_room, require_sane_metrics, require_sane_parameters, sane_actions
from fcritic.training.knowledge import Examiner
from fcritic.training.report import Report
from fcritic.training.saving import (
    Checkpoints,
    Snapshot,
    learning_of,
    require_trainable,
    restore_environments,
    with_new_episodes,
    with_other_numbers,
)
from fcritic.training.signals import Interrupted, StopSignal
from fcritic.training.value_error import Auditor
from fcritic.training.warmup import Chance

HOW_OFTEN = ("eval_every", "log_every", "save_every", "keep")
FREE_FIELDS = frozenset(("steps", *HOW_OFTEN, "value_limit", "on_fault", "env_processes", "env_timeout", "log"))
"""Options that may change when a run continues: its length, evaluations, logs, faults and processes."""

AfterEvaluation = Callable[[int, list[Evaluation], TrainState], bool]
"""Gets the frame, the returns of each seed and what was learned; returns whether the training shall end here."""
First = Callable[[Learning], tuple[Snapshot, list[str]]]
"""Makes the first snapshot of a training that does not begin from scratch, and lines about it for the user."""

MOST_ROLLBACKS = 3
"""How often a training goes back to the same checkpoint before it gives up."""


def train(
    config: TrainConfig,
    out: str | Path,
    command: str = "",
    quiet: bool = False,
    yes: bool = False,
    note: str = "",
    after_evaluation: AfterEvaluation | None = None,
    first: First | None = None,
    free: frozenset[str] = FREE_FIELDS,
) -> RunDirectory:
    """Trains in a directory, or continues what is there, to the last frame; returns the directory.

    A training estimated at more than a day is refused without `yes`. `note` is printed first.
    `after_evaluation` is called after each evaluation and may end the training there. `first` is asked where there
    is no checkpoint yet. Fields of the config that are `free` may be others than before.
    """
    require_memory_for_networks(config)
    prepare(config.deterministic)
    wake_device()
    # An unusable task must not leave a directory behind.
    spec, _ = envs.task_units(config.task, config.action_repeat)
    require_tracker(config.log)
    require_trainable(config, RunDirectory(out))
    begun = RunDirectory(out).newest_frame() // config.frames_per_iteration
    seconds = estimated_seconds(config, spec, begun)
    require_agreed(seconds, f"{config.recipe} on {config.task} to frame {config.steps:,}", yes)
    snapshot, told = None, []
    if first is not None and not newest_first(RunDirectory(out).checkpoints):
        snapshot, told = first(learning_of(config, spec))  # what it refuses leaves no directory behind either
    complete = lambda stored: TrainConfig.from_json(TrainConfig.as_now(stored, Path(out))).to_json()
    known = (RunDirectory(out).path / CONFIG).exists()
    with RunDirectory.create_or_open(out, config.to_json(), command, free, complete) as run:
        learns = config.iterations > max(begun, config.warmup_iterations)
        cost = estimate_line(seconds, rough_seconds(config, spec, begun)) if learns else ""
        notes = [note, *told, cost]
        training = Training.begin(config, run, quiet, known, snapshot)
        training.after_evaluation = after_evaluation
        training.run([line for line in notes if line])
    return run


class Training:
    """One training in progress: the device, the environments, the report and the counters."""

    def __init__(
        self,
        config: TrainConfig,
        run: RunDirectory,
        vector: envs.VectorEnv,
        report: Report,
        checkpoints: Checkpoints,
        snapshot: Snapshot,
    ):
        self.config, self.directory = config, run
        self.vector, self.report, self.checkpoints = vector, report, checkpoints
        self.evaluator, self.examiner = Evaluator(config, config.eval_episodes), Examiner(config)
        self.auditor = Auditor(config)
        self.stop, self._retries = StopSignal(), 0
        self.after_evaluation: AfterEvaluation | None = None
        self.enough = False
        self.device = Device(learning_of(config, vector.spec), snapshot.state, snapshot.memory)
        self.restarted = self._adopt(snapshot)

    @classmethod
    def begin(
        cls,
        config: TrainConfig,
        run: RunDirectory,
        quiet: bool = False,
        known: bool = False,
        first: Snapshot | None = None,
    ) -> "Training":
        """A training at its beginning, or where the newest whole checkpoint of the run left it.

        `known`: the run existed before, so its user should learn why it begins at frame 0. A first snapshot,
        `first`, is saved at once, so that the run needs nothing outside of its folder.
        """
        with contextlib.ExitStack() as failing:
            vector = _environments(config)
            failing.callback(vector.close)  # its processes would live on
            require_room(config, vector.spec)
            learning = learning_of(config, vector.spec)
            checkpoints = Checkpoints(run, config, learning)
            found, faults = checkpoints.restore()
            report = Report(config, run, quiet)
            failing.callback(report.close)
            for fault in faults:
                report.warn(fault)
            if known and found is None:
                report.begin_again()
            snapshot = found or first or Snapshot.first(learning, config.seed_numbers)
            training = cls(config, run, vector, report, checkpoints, snapshot)
            if snapshot is first:
                training.save()
            learns = max(training.progress.iteration, config.warmup_iterations)
            training.device.compile_ahead(learns, config.iterations)
            if count := training.restarted:
                report.say(f"note: {count} environments cannot return their state and begin a new episode")
            failing.pop_all()
        return training

    @property
    def frame(self) -> int:
        """Frames taken so far, summed over the environments of a seed."""
        return self.progress.iteration * self.config.frames_per_iteration

    def run(self, notes: Iterable[str] = ()) -> None:
        """Iterates to the end, or until a signal asks to stop; prints the notes first."""
        try:
            with self.stop, self.report.running():
                self.report.begin(self.frame, notes)
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
        while not self.stop and not self.enough and self.progress.iteration < self.config.iterations:
            try:
                self.advance(self.config.iterations - self.progress.iteration)
            except (EnvironmentFault, Diverged) as fault:
                self._roll_back(fault)
        try:
            self.save()
        except CannotWrite as error:
            raise CannotWrite(f"{error}; {self._weights_kept(error)}") from error

    def advance(self, iterations: int) -> None:
        """So many iterations with all that falls due in them, unless a signal or a callback asks to stop."""
        for _ in range(iterations):
            if self.stop or self.enough:
                return
            self.iterate()

    def iterate(self) -> None:
        """One step in every environment, taken while the device learns from the step before."""
        actions = self._choose_actions()  # first in the device's queue: they do not wait for the update
        self._hand_over()
        self._take_step(actions)
        self._do_what_is_due()

    def _choose_actions(self) -> np.ndarray | jax.Array:
        """Actions for all environments, uniform or of the policies; the device may still be computing them."""
        config, iteration, device = self.config, self.progress.iteration, self.device
        if config.warmup_actions == "uniform":
            if iteration < config.warmup_iterations:
                return self._chance.actions(iteration)
            if iteration == config.warmup_iterations:  # as if policies had been asked since their episodes began
                device.remember(self._chance.episode_keys(iteration - self.vector.length))
        return device.act(self.vector.obs, self.vector.fresh, iteration)

    def _hand_over(self) -> None:
        """Gives the step before to the device, to store or to learn from."""
        step, self.pending = self.pending, None  # should the next step fail, this one is not stored twice
        if step is None:
            return
        if self.progress.iteration < self.config.warmup_iterations:
            self.device.store(step)
        else:
            self.device.learn(step, self.progress.iteration)

    def _take_step(self, actions: np.ndarray | jax.Array) -> None:
        self.pending, episodes = self.vector.step(sane_actions(actions, self.config, self.frame))
        self.progress.iteration += 1
        self.report.rewards(self.frame, self.pending.reward)
        self.report.episodes(self.frame, episodes)
        self.report.faults(self.frame, self.vector.take_faults())

    def _do_what_is_due(self) -> None:
        config, iteration = self.config, self.progress.iteration
        last = iteration == config.iterations
        self.report.progress(self.frame)
        if iteration > config.warmup_iterations:
            self.report.learned(self.frame, config.iterations - iteration, self.vector.spec, self.device.wait)
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
        agent, config, device = self.config.agent, self.config, self.device
        means = device.take_metrics()
        before = agent.actor_updates_before(min(self.progress.iteration, config.warmup_iterations))
        self.report.losses(self.frame, means, agent.actor_updates_before(self.progress.iteration) - before)
        require_sane_metrics(means, device.carried, self.vector.spec, config, self.frame)
        require_sane_parameters(device.carried, config, self.frame)

    def _evaluate(self) -> None:
        self.device.flush()
        state = self.device.state
        require_sane_parameters(state, self.config, self.frame)
        policies = jax.vmap(self.config.agent.evaluation_policies)(state.agent)
        results = self.evaluator.evaluate(policies, state.normalizer, str(self.frame))
        scores = np.array([result.mean_actor for result in results])
        self.best = self.best.improved(policies, state.normalizer, scores, self.frame)
        self.report.evaluation(self.frame, results)
        given = (self.device.learning, state, self.frame)
        rows, errors = behaviour(*given), self.auditor.audit(*given)
        if rows and errors:
            rows = [row | error for row, error in zip(rows, errors, strict=True)]
        self.report.behaviour(self.frame, rows)
        self.report.knowledge(self.frame, self.examiner.examine(*given))
        for each in (self.evaluator, self.examiner, self.auditor):
            self.report.faults(self.frame, each.take_faults())
        if self.after_evaluation is not None:
            self.enough = self.after_evaluation(self.frame, results, state)

    def save(self, episodes: bool = True) -> None:
        """Writes a checkpoint from which training continues exactly; refuses to save NaN or infinite parameters.

        Without `episodes` the environments are left out: all of them then begin a new episode.
        """
        snapshot = self._snapshot(self.vector.state(episodes))
        self.progress.log_position = self.report.position()
        self.checkpoints.save(snapshot, self.frame)
        self._retries = 0

    def _snapshot(self, environments: envs.EnvState) -> Snapshot:
        """The whole training at this moment; raises `Diverged` for NaN or infinite parameters."""
        self.device.flush()
        state = self.device.state
        require_sane_parameters(state, self.config, self.frame)
        return Snapshot(state, self.device.memory, self.pending, environments, self.best, self.progress)

    def _weights_kept(self, full: CannotWrite) -> str:
        """Keeps what acting needs where the final checkpoint does not fit on the disk; returns the words for it."""
        try:
            path = self.checkpoints.save_weights(self._snapshot({}), self.frame)
        except CannotWrite:
            raise full from None  # there is not even room for the weights
        earlier = self.checkpoints.newest
        resume = f"a resume goes on from {earlier.name}" if earlier else "without the replay it cannot be resumed"
        return f"the weights are kept in {path}: they can be evaluated and exported, {resume}"

    def _try_to_save(self) -> None:
        try:
            self.save()
        except CannotWrite as error:
            self.report.warn(f"{error}; training goes on and tries again at the next save")

    def _salvaged(self, fault: Exception) -> str:
        """Saves the training if the fault has left it intact, and returns the words for what is kept."""
        lost = ""
        if self.progress.iteration and not isinstance(fault, Diverged):
            try:
                self.save(episodes=False)  # those of a broken environment cannot be continued
                return f"all up to frame {self.frame:,} is saved, a resume goes on from there with new episodes"
            except (CannotWrite, Diverged) as error:
                lost = f" ({error})"
        kept = self.directory.latest_checkpoint()
        return f"{kept} is kept{lost}" if kept else f"there is no checkpoint{lost}: a resume begins at frame 0"

    def _adopt(self, snapshot: Snapshot) -> int:
        """Goes on from a snapshot whose state the device has; returns how many environments begin a new episode."""
        self.pending, self.best, self.progress = snapshot.pending, snapshot.best, snapshot.progress
        self._chance = Chance(np.asarray(snapshot.state.keys), self.config.envs, self.vector.spec.act_dim)
        self.report.resume(self.progress.log_position, self.frame or None)
        return restore_environments(self.vector, snapshot.environments) if snapshot.environments else 0

    def _roll_back(self, fault: EnvironmentFault | Diverged) -> None:
        """Returns to the newest checkpoint and goes on with other random numbers, if `on_fault` says so."""
        if self.config.on_fault != "rollback" or self._retries >= MOST_ROLLBACKS:
            raise fault
        self._retries, rollbacks = self._retries + 1, self.progress.rollbacks + 1
        self.vector.close()
        self.vector = _environments(self.config)  # the old ones may be broken
        found = self.checkpoints.restore()[0]
        snapshot = found or Snapshot.first(self.device.learning, self.config.seed_numbers)
        if isinstance(fault, EnvironmentFault):
            snapshot = with_new_episodes(snapshot)  # or they would come to the same step
        snapshot = snapshot._replace(state=with_other_numbers(snapshot.state, rollbacks))
        self.device.put(snapshot.state, snapshot.memory)
        self._adopt(snapshot)
        self.progress.rollbacks = rollbacks
        self.report.rollback(self.frame, str(fault), rollbacks)

    def close(self) -> None:
        """Closes logs and environments."""
        for each in (self.report, self.evaluator, self.examiner, self.auditor, self.vector):
            each.close()


def _environments(config: TrainConfig) -> envs.VectorEnv:
    return envs.make_vector(config.task, envs=config.envs, **config.env_options)
