"""What a training tells while it runs: rows to the logs, lines to the console. A full disk does not end it."""

from typing import Any

import numpy as np

from fcritic.config import TrainConfig
from fcritic.envs import Episode, Fault
from fcritic.errors import CannotWrite
from fcritic.logs.metrics import FIRST_REWARD, JSONLog, Sink, TensorBoardLog
from fcritic.logs.trackers import TrackerLog
from fcritic.runs.directory import RunDirectory
from fcritic.runs.journal import Journal
from fcritic.training.console import TrainingConsole
from fcritic.training.evaluate import Evaluation
from fcritic.types import Metrics


class Reporter:
    """The logs of one training and the person who watches it."""

    def __init__(self, config: TrainConfig, run: RunDirectory, console: TrainingConsole):
        self._config, self._run, self.console = config, run, console
        self.log = JSONLog(run.metrics)
        self.journal = Journal(run.journal)
        self._views: dict[str, Sink] = {"TensorBoard": TensorBoardLog(run.tensorboard)}
        if config.log != "files":
            self._views[config.log] = TrackerLog(config.log, run.place, config.to_json())
        self._warned = ""
        self._unrewarded = set(range(config.seeds))  # by index

    def resume(self, position: int, frame: int | None) -> None:
        """Continues where a checkpoint was taken, or begins: rows that were written after it are taken back."""
        self.log.truncate(position)
        found = self.log.seeds_with(FIRST_REWARD)
        self._unrewarded = {index for index, seed in enumerate(self._config.seed_numbers) if seed not in found}
        self.journal.begin(frame or 0)
        if "TensorBoard" in self._views:
            self._views["TensorBoard"].close()
            self._views["TensorBoard"] = TensorBoardLog(self._run.tensorboard, frame)

    def episodes(self, frame: int, episodes: list[Episode]) -> None:
        """One row for each episode that has ended."""
        told = lambda e: {"env": e.env_index, "return": e.total_reward, "length": e.length_in_steps}
        self.write(frame, "episode", [(e.seed_index, told(e)) for e in episodes])
        self.console.update(frame, rollout=float(np.mean([e.total_reward for e in episodes])))

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
        """One row per seed with what its actors and critics do."""
        if rows:
            self.write(frame, "behaviour", list(enumerate(rows)))

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
        self.console.update(frame, **({} if loss is None else {"loss": float(loss.mean())}))

    def evaluation(self, frame: int, results: list[Evaluation]) -> None:
        """One row per seed with the returns of its actors."""
        self.write(frame, "evaluation", [(seed, result.to_json()) for seed, result in enumerate(results)])
        mean, best = (float(np.mean([getattr(r, name) for r in results])) for name in ("mean_actor", "best_actor"))
        self.console.evaluated(frame, mean, best)

    def write(self, frame: int, kind: str, rows: list[tuple[int, dict[str, Any]]]) -> None:
        """Rows of one kind, each for a seed index.

        Rows that the disk has no room for wait in memory until it has; a mere view of them is given up.
        """
        self.journal.progress(frame)
        head = lambda index: {"seed": self._config.seed + index, "env_steps": frame, "kind": kind}
        rows_to_write = [head(index) | values for index, values in rows]
        try:
            self.log.write(rows_to_write)
        except CannotWrite as error:
            self.warn(f"{error}; the rows wait in memory and training goes on")
        for name, view in list(self._views.items()):
            try:
                view.write(rows_to_write)
            except CannotWrite as error:
                self.warn(f"{error}; training goes on without {name}")
                self._close(self._views.pop(name))

    def warn(self, line: str) -> None:
        """A line that is shown even when nothing else is, but not twice in a row."""
        if line != self._warned:
            self._warned = line
            self.console.warn(line)
            self.journal.warn(line)

    def close(self) -> None:
        """Closes the logs."""
        self.log.close()
        self.journal.close()
        for view in self._views.values():
            self._close(view)

    def _close(self, view: Sink) -> None:
        try:
            view.close()
        except CannotWrite as error:
            self.warn(str(error))
