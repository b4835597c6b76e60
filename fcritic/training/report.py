"""The report of a running training: rows to the logs, lines to the console. A full disk does not end it."""

from collections.abc import Callable, Iterable, Iterator
import contextlib
import time
from typing import Any

import numpy as np

from fcritic.config import TrainConfig
from fcritic.envs import Episode, Fault
from fcritic.errors import CannotWrite
from fcritic.logs.metrics import FIRST_REWARD, KNOWLEDGE, JSONLog, Sink
from fcritic.logs.tensorboard import TensorBoardLog
from fcritic.logs.trackers import TrackerLog
from fcritic.runs.directory import RunDirectory
from fcritic.runs.journal import Journal
from fcritic.training.console import TrainingConsole
from fcritic.training.cost import LONG, cheaper_line, cost_line
from fcritic.training.evaluate import Evaluation
from fcritic.types import EnvSpec, Metrics

LAPS = 9
"""Iterations whose median is taken for the cost of one."""


class Report:
    """The logs of one training, its journal and its console."""

    def __init__(self, config: TrainConfig, run: RunDirectory, quiet: bool = False):
        self._config, self._run, self._quiet = config, run, quiet
        self._console = TrainingConsole(config, 0, quiet)
        self._log = JSONLog(run.metrics)
        self._journal = Journal(run.journal)
        self._views: dict[str, Sink] = {"TensorBoard": TensorBoardLog(run.tensorboard)}
        if config.log != "files":
            self._views[config.log] = TrackerLog(config.log, run.place, config.to_json())
        self._warned = ""
        self._unrewarded = set(range(config.seeds))  # by index
        self._since: float | None = None  # when the last iteration with updates ended
        self._laps: list[float] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """A block in which the training runs: the console is live, and the journal notes how it ends."""
        with self._console, self._journal:
            yield

    # Progress

    def resume(self, position: int, frame: int | None) -> None:
        """Continues where a checkpoint was taken, or begins: rows that were written after it are taken back."""
        self._log.truncate(position)
        found = self._log.seeds_with(FIRST_REWARD)
        self._unrewarded = {index for index, seed in enumerate(self._config.seed_numbers) if seed not in found}
        self._journal.begin(frame or 0)
        if "TensorBoard" in self._views:
            self._views["TensorBoard"].close()
            self._views["TensorBoard"] = TensorBoardLog(self._run.tensorboard, frame)

    def position(self) -> int:
        """The size of the metrics in bytes, all of them on disk: a checkpoint records it."""
        return self._log.position()

    def begin(self, frame: int, notes: Iterable[str]) -> None:
        """Prints the notes before a training begins or continues, and starts the clock."""
        config = self._config
        if frame:
            self.say(f"continuing {self._run.path} at frame {frame:,}")
            if changes := self._run.version_changes():
                self.say(f"note: other versions than at the start, so results may differ: {', '.join(changes)}")
        elif config.iterations <= config.warmup_iterations:
            self.say(
                f"note: the warm-up of {config.warmup:,} frames covers the whole run, so nothing is learned; "
                "lower --warmup or raise --steps"
            )
        for note in notes:
            self.say(note)
        self._console.restart_clock(frame)

    def begin_again(self) -> None:
        """Warns that an existing run has no checkpoint and begins again at frame 0."""
        path, every = self._run.path, f"--save-every {self._config.save_every:,}"
        if self._log.position():
            self.warn(
                f"{path} has no checkpoint: its last process ended before the first one ({every}), so what it did "
                "is lost; beginning at frame 0"
            )
        else:
            self.say(f"note: {path} has no checkpoint yet ({every}); beginning at frame 0")

    def progress(self, frame: int) -> None:
        """An iteration is over."""
        self._console.update(frame)

    def learned(self, frame: int, left: int, spec: EnvSpec, wait: Callable[[], None]) -> None:
        """An iteration with updates is over; the first few show what the `left` ones will take.

        The first of all starts the clock anew, once its updates are done: it may have compiled.
        """
        if len(self._laps) == LAPS:
            return
        if self._since is None:
            wait()
            self._console.restart_clock(frame, learning=True)
        else:
            self._laps.append(time.perf_counter() - self._since)
        self._since = time.perf_counter()
        if len(self._laps) == LAPS and not self._quiet:
            seconds = float(np.median(self._laps))
            self.say(cost_line(self._config, left, seconds))
            if seconds * left > LONG and (cheaper := cheaper_line(self._config, spec)):
                self.say(cheaper)

    # Rows

    def episodes(self, frame: int, episodes: list[Episode]) -> None:
        """One row for each episode that has ended."""
        if not episodes:
            return
        told = lambda e: {"env": e.env_index, "return": e.total_reward, "length": e.length_in_steps}
        success = lambda e: {} if e.success is None else {"success": e.success}
        self.write(frame, "episode", [(e.seed_index, told(e) | success(e)) for e in episodes])
        self._console.update(frame, rollout=float(np.mean([e.total_reward for e in episodes])))

    def rewards(self, frame: int, rewards: np.ndarray) -> None:
        """A row for each seed that has just seen its first reward; costs next to nothing once all have."""
        if not self._unrewarded:
            return
        largest = rewards.max(axis=1)
        found = [index for index in sorted(self._unrewarded) if largest[index] > self._config.first_reward_above]
        if found:
            self._unrewarded -= set(found)
            self.write(frame, FIRST_REWARD, [(index, {"reward": float(largest[index])}) for index in found])

    def behaviour(self, frame: int, rows: list[dict[str, Any]]) -> None:
        """One row per seed with the measures of its actors and critics."""
        if rows:
            self.write(frame, "behaviour", list(enumerate(rows)))

    def knowledge(self, frame: int, rows: list[dict[str, Any]]) -> None:
        """One row per seed that compares the critics' values of policies with their returns."""
        if rows:
            self.write(frame, KNOWLEDGE, list(enumerate(rows)))

    def faults(self, frame: int, faults: list[Fault]) -> None:
        """One row and one line for each fault of an environment that was skipped."""
        if not faults:
            return
        self.write(frame, "fault", [(f.seed_index, {"env": f.env_index, "what": f.what}) for f in faults])
        for fault in faults:
            self.warn(f"{fault.what} at step {fault.step}; it was rebuilt and its episode is skipped")

    def losses(self, frame: int, means: Metrics, actor_updates: int) -> None:
        """One row per seed with what its updates reported on average."""
        values = lambda seed: {name: float(each[seed]) for name, each in means.items()}
        counts = {"actor_updates": actor_updates}
        self.write(frame, "train", [(seed, values(seed) | counts) for seed in range(self._config.seeds)])
        loss = means.get("critic_loss")
        self._console.update(frame, **({} if loss is None else {"loss": float(loss.mean())}))

    def evaluation(self, frame: int, results: list[Evaluation]) -> None:
        """One row per seed with the returns of its actors."""
        self.write(frame, "evaluation", [(seed, result.to_json()) for seed, result in enumerate(results)])
        mean, best = (float(np.mean([getattr(r, name) for r in results])) for name in ("mean_actor", "best_actor"))
        self._console.evaluated(frame, mean, best)

    def rollback(self, frame: int, why: str, rollbacks: int) -> None:
        """One row and one line for a training that went back to this frame."""
        line = f"{why}; went back to frame {frame:,}, on with other random numbers"
        self._console.warn(line)
        self._journal.warn(line)
        self.write(frame, "rollback", [(0, {"why": why, "rollbacks": rollbacks})])

    def write(self, frame: int, kind: str, rows: list[tuple[int, dict[str, Any]]]) -> None:
        """Rows of one kind, each for a seed index.

        Rows that the disk has no room for wait in memory until it has; a mere view of them is given up.
        """
        self._journal.progress(frame)
        head = lambda index: {"seed": self._config.seed + index, "env_steps": frame, "kind": kind}
        rows_to_write = [head(index) | values for index, values in rows]
        try:
            self._log.write(rows_to_write)
        except CannotWrite as error:
            self.warn(f"{error}; the rows wait in memory and training goes on")
        for name, view in list(self._views.items()):
            try:
                view.write(rows_to_write)
            except CannotWrite as error:
                self.warn(f"{error}; training goes on without {name}")
                self._close_view(self._views.pop(name))

    # Lines

    def say(self, line: str) -> None:
        """A line for a person, unless the training is quiet."""
        self._console.say(line)

    def warn(self, line: str) -> None:
        """A line that is shown even when nothing else is, but not twice in a row."""
        if line != self._warned:
            self._warned = line
            self._console.warn(line)
            self._journal.warn(line)

    def close(self) -> None:
        """Closes the logs."""
        self._log.close()
        self._journal.close()
        for view in self._views.values():
            self._close_view(view)

    def _close_view(self, view: Sink) -> None:
        try:
            view.close()
        except CannotWrite as error:
            self.warn(str(error))
