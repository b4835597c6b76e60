"""The parts of a study: the trainings it needs, the verdicts it comes to, and all that it found."""

import abc
from collections.abc import Iterator, Sequence
import dataclasses
import math
from pathlib import Path
import re
from typing import Any, Literal, NamedTuple, get_type_hints

import numpy as np

from fcritic.config import TYPED, TrainConfig, as_words, fits
from fcritic.errors import UsageError, option_hint

Outcome = Literal["holds", "fails", "open"]
Kind = Literal["paper", "corrected", "ours", "control"]
"""Whose claim it is: the paper's as printed, the paper's as we correct it, one of our own, or a check that the
comparison itself is sound."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One configuration; all its seeds train side by side in one process."""

    recipe: str
    task: str
    envs: int = 4
    seeds: int = 4
    steps: int = 500_000
    label: str = ""
    """Its name in pictures; without one its recipe."""
    options: tuple[tuple[str, Any], ...] = ()
    """Changed options, named as on the command line or as fields: ``("warmup", 1000)``, ``("second-term", 0.0)`` or
    ``("agent.second_term", 0.0)``, ``("encoder.probes", 8)``."""

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
        """The name of its folder. Studies share folders: a run that one has trained, another continues or uses."""
        return re.sub(r"[^A-Za-z0-9+.]+", "-", f"{self.task} {self.envs} {self.method}")

    def config(self) -> TrainConfig:
        """All its numbers."""
        config = TrainConfig.of(self.recipe, task=self.task, envs=self.envs, seeds=self.seeds, steps=self.steps)
        for name, value in self.options:
            config = _replaced(config, _field_named(name, config), value)
        return config

    def command(self) -> str:
        """The command that makes the same run by itself."""
        words = [f"--recipe {self.recipe} --task {self.task} --envs {self.envs}"]
        words += [f"--seeds {self.seeds} --steps {self.steps}"]
        words += [" ".join(as_words(_plain_name(name), value)) for name, value in self.options]
        return f"fcritic train {' '.join(words)}"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One statement and its outcome."""

    claim: str
    """A sentence that is true or false."""
    outcome: Outcome
    """Computed, never written down."""
    figures: dict[str, Any]
    """The numbers that decide, by name."""
    source: str = ""
    """Where the statement is from: a label of the paper, or the measurement that it is compared with."""
    kind: Kind = "ours"


def judged(claim: str, holds: bool, figures: dict[str, Any], source: str = "", kind: Kind = "ours") -> Verdict:
    """The verdict on a claim that is decided."""
    return Verdict(claim, "holds" if holds else "fails", figures, source, kind)


@dataclasses.dataclass(frozen=True)
class Findings:
    """Everything that a study found."""

    verdicts: list[Verdict]
    rows: list[dict[str, Any]]
    """Rows of NAME.csv, all with the same columns: raw figures by seed. Without rows there is no such file."""
    plot: dict[str, Any]
    """Numbers, lists and arrays that the picture is drawn from; kept in NAME.json, so keep it small."""
    notes: list[str] = dataclasses.field(default_factory=list)
    """Observations without a verdict."""
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    """Further files of figures, by their path beside NAME.json."""

    @property
    def outcome(self) -> Outcome:
        """What became of the paper's claims; of all claims but controls where none is the paper's."""
        return overall([(verdict.kind, verdict.outcome) for verdict in self.verdicts])


def overall(outcomes: list[tuple[Kind, Outcome]]) -> Outcome:
    """`fails` where a claim of the paper does, else `open` where one is. Without one, our own claims decide."""
    by_kind = [
        [outcome for kind, outcome in outcomes if kind in kinds] for kinds in (("paper",), ("corrected", "ours"))
    ]
    deciding = next((each for each in by_kind if each), ["open"])
    return "fails" if "fails" in deciding else "open" if "open" in deciding else "holds"


@dataclasses.dataclass(frozen=True)
class Trainings:
    """Where the evaluations of a study's runs are read from."""

    folder: Path
    """Folder of run folders."""
    added: tuple[Path, ...] = ()
    """CSV files of rows by seed, for runs without a folder here."""


class Table(NamedTuple):
    """Heads and rows of text."""

    heads: list[str]
    rows: list[list[str]]


class Picture(NamedTuple):
    """A picture that lies beside the report as PNG and SVG."""

    name: str
    text: str


class Listing(NamedTuple):
    """Lines to be typed."""

    text: str


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of a report: paragraphs, tables and pictures below a title."""

    title: str
    parts: Sequence[str | Table | Picture | Listing]


class Study(abc.ABC):
    """A question with its trainings, its verdicts and its picture; each file of a study has one, named `STUDY`."""

    name: str
    """As it is typed, such as `theorem-1`."""
    question: str
    """What is judged, in a sentence or two."""
    runs: tuple[Run, ...] = ()
    """Its trainings; a study without any computes everything in `find`."""
    quick_runs: tuple[Run, ...] = ()
    """Its trainings with `--quick`."""
    shown: tuple[str, ...] = ()
    """Parts of `Findings.plot` that `--json` prints besides the verdicts."""

    @abc.abstractmethod
    def find(self, runs: Trainings, quick: bool) -> Findings:
        """Computes everything, from the trainings if it has some. `quick`: fewer seeds, the same claims."""

    @abc.abstractmethod
    def draw(self, findings: Findings, path: Path) -> None:
        """Writes the picture of the findings to a PNG or SVG file."""

    def sections(self, findings: Findings) -> list[Section]:
        """Further parts of its report, after the verdicts and the picture."""
        return []

    def trainings(self, quick: bool) -> tuple[Run, ...]:
        """The runs that `find` reads."""
        if quick and self.runs and not self.quick_runs:
            raise UsageError(
                f"{self.name} has no quick version (quick_runs); leave --quick out, or choose runs with --only"
            )
        return self.quick_runs if quick else self.runs

    def require_sound(self) -> None:
        """Refuses what could not be trained or judged, before anything is."""
        for run in (*self.runs, *self.quick_runs):
            try:
                run.config().to_json()
            except UsageError as error:
                raise UsageError(f"the run {run.name} of {self.name}: {error}") from error


def require_different(runs: tuple[Run, ...], name: str) -> None:
    """Refuses two runs with one folder in a study."""
    names = [run.name for run in runs]
    if twice := sorted({each for each in names if names.count(each) > 1}):
        raise UsageError(f"two runs of {name} are named {twice[0]}; give one of them another label")


def plain(value: Any) -> Any:
    """The same value of dicts, lists, numbers and text alone, in six digits; NaN and infinity become words."""
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}") if math.isfinite(value) else str(float(value))
    return value


def _plain_name(name: str) -> str:
    """An option of a study with underscores and without the group of the agent, which is not typed."""
    return name.replace("-", "_").removeprefix("agent.")


def _field_named(name: str, config: TrainConfig) -> tuple[str, ...]:
    """Where the field of an option lies in a config."""
    known = {".".join(path).removeprefix("agent."): path for path in _fields(config)}
    known |= {typed: known[field] for field, typed in TYPED.items()}
    if (plain_name := _plain_name(name)) not in known:
        raise UsageError(f"{config.recipe} has no option {name}{option_hint(plain_name, known)}")
    return known[plain_name]


def _fields(options: Any) -> Iterator[tuple[str, ...]]:
    """The path of every field of a dataclass, those of its parts after their own."""
    for field in dataclasses.fields(options):
        yield (field.name,)
        value = getattr(options, field.name)
        for path in _fields(value) if dataclasses.is_dataclass(value) else ():
            yield (field.name, *path)


def _replaced(options: Any, path: tuple[str, ...], value: Any) -> Any:
    """The same dataclass with one field, perhaps of a part of it, changed."""
    first, *rest = path
    if rest:
        value = _replaced(getattr(options, first), tuple(rest), value)
    elif not fits(value, get_type_hints(type(options))[first]):
        raise UsageError(f"the option {first} cannot be {value!r:.60}")
    return dataclasses.replace(options, **{first: tuple(value) if isinstance(value, list) else value})
