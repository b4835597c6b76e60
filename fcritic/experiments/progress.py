"""How far each run of an experiment is, from its folder alone."""

import dataclasses
from pathlib import Path
from typing import Literal

from fcritic.experiments.spec import Experiment, Run
from fcritic.runs.directory import RunDirectory

State = Literal["waiting", "begun", "finished"]


@dataclasses.dataclass(frozen=True)
class RunProgress:
    """One run."""

    run: Run
    path: Path
    frame: int
    """Of its newest checkpoint."""

    @property
    def state(self) -> State:
        """Whether it still has to be trained."""
        if self.frame >= self.run.steps:
            return "finished"
        return "begun" if self.frame else "waiting"

    @property
    def frames_left(self) -> int:
        """Frames until it is finished."""
        return max(0, self.run.steps - self.frame)

    def to_json(self) -> dict[str, str | int]:
        """For programs."""
        head = {"run": self.run.name, "method": self.run.method, "panel": self.run.panel, "state": self.state}
        return head | {"frame": self.frame, "steps": self.run.steps, "command": self.run.command()}


def progress(experiment: Experiment, folder: Path, only: tuple[str, ...] = ()) -> list[RunProgress]:
    """All runs of an experiment, or those whose name or method contains one of the words in `only`."""
    found = []
    for run in experiment.runs:
        if not only or any(word in (run.method, run.task) or word in run.name for word in only):
            path = folder / run.name
            found.append(RunProgress(run, path, RunDirectory(path).newest_frame()))
    return found
