"""What an experiment is: runs with names, the panels they are compared in, and what they are to decide."""

import dataclasses
import re
from typing import Any

from fcritic.config import TrainConfig
from fcritic.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Run:
    """One configuration; all its seeds train side by side in one process."""

    recipe: str
    task: str
    envs: int = 4
    seeds: int = 4
    steps: int = 500_000
    label: str = ""
    """What it is called in pictures; without one its recipe."""
    options: tuple[tuple[str, Any], ...] = ()
    """Changed fields, dotted as on the command line: ``("agent.second_term", 0.0)``, ``("warmup", 1000)``."""

    @property
    def method(self) -> str:
        """Its name among the others of a panel."""
        return self.label or self.recipe

    @property
    def panel(self) -> str:
        """Runs of one panel are compared with each other: the same task and as many environments."""
        return f"{self.task}, {self.envs} environment{'s' if self.envs > 1 else ''}"

    @property
    def name(self) -> str:
        """The name of its folder, which experiments share: what one has trained, another continues or uses."""
        return re.sub(r"[^A-Za-z0-9+.]+", "-", f"{self.task} {self.envs} {self.method}")

    def config(self) -> TrainConfig:
        """All its numbers."""
        config = TrainConfig.of(self.recipe, task=self.task, envs=self.envs, seeds=self.seeds, steps=self.steps)
        for name, value in self.options:
            config = _replaced(config, name.split("."), value)
        return config

    def command(self) -> str:
        """The command that makes the same run by itself."""
        words = [f"--recipe {self.recipe} --task {self.task} --envs {self.envs}"]
        words += [f"--seeds {self.seeds} --steps {self.steps}"]
        words += [_as_option(name.removeprefix("agent."), value) for name, value in self.options]
        return f"fcritic train {' '.join(words)}"


@dataclasses.dataclass(frozen=True)
class Claim:
    """One method is better than another at the end of their training."""

    text: str
    better: str
    worse: str


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A named list of runs and what it is for."""

    name: str
    purpose: str
    runs: tuple[Run, ...]
    reference: str = ""
    """The method that the others are compared with; without one the first of a panel."""
    claims: tuple[Claim, ...] = ()
    """What it is to decide."""

    def __post_init__(self) -> None:
        names = [run.name for run in self.runs]
        if len(set(names)) != len(names):
            raise ValueError(f"two runs of {self.name} have one name")

    @property
    def panels(self) -> dict[str, list[Run]]:
        """The runs, panel by panel."""
        panels: dict[str, list[Run]] = {}
        for run in self.runs:
            panels.setdefault(run.panel, []).append(run)
        return panels


def _as_option(name: str, value: Any) -> str:
    """A changed field as it is typed on the command line."""
    group, dot, field = name.replace("_", "-").rpartition(".")
    if isinstance(value, bool):
        return f"--{group}{dot}{'' if value else 'no-'}{field}"
    return f"--{group}{dot}{field} {' '.join(map(str, value)) if isinstance(value, tuple) else value}"


def _replaced(options: Any, path: list[str], value: Any) -> Any:
    """The same dataclass with one field, perhaps of a part of it, changed."""
    if not any(field.name == path[0] for field in dataclasses.fields(options)):
        raise UsageError(f"an experiment changes {path[0]}, which {type(options).__name__} does not have")
    if len(path) > 1:
        value = _replaced(getattr(options, path[0]), path[1:], value)
    return dataclasses.replace(options, **{path[0]: value})
