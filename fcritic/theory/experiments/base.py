"""What an experiment is: it judges claims, keeps the figures behind each verdict, and draws one picture."""

import abc
import csv
import dataclasses
import json
import math
from pathlib import Path
import time
from typing import Any, ClassVar

import numpy as np

from fcritic.errors import cannot_write


@dataclasses.dataclass(frozen=True)
class Claim:
    """One statement and what was found."""

    statement: str
    """A sentence that is true or false."""
    holds: bool
    """Computed, never written down."""
    figures: dict[str, Any]
    """The numbers that decide, by name."""
    source: str = ""
    """Where the statement is from: a label of the paper, or what it is measured against."""

    @property
    def verdict(self) -> str:
        """`holds` or `fails`."""
        return "holds" if self.holds else "fails"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one run of an experiment found."""

    claims: list[Claim]
    data: dict[str, Any]
    """What the picture is drawn from: numbers, lists, arrays; kept in NAME.json, so keep it small."""
    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """Rows for NAME.csv, all with the same columns: raw figures by seed. Without rows there is no such file."""
    notes: list[str] = dataclasses.field(default_factory=list)
    """What was seen besides, without a verdict."""

    @property
    def verdict(self) -> str:
        """`holds` where every claim holds."""
        return "holds" if all(claim.holds for claim in self.claims) else "fails"


class Experiment(abc.ABC):
    """One experiment. `fcritic theory NAME` runs it, prints its claims, writes its figures and draws it."""

    name: ClassVar[str]
    """As it is typed, such as `theorem-1`."""
    statement: ClassVar[str]
    """What is judged, in a sentence or two."""

    @abc.abstractmethod
    def run(self, quick: bool) -> Outcome:
        """Computes everything. `quick` has fewer seeds and shorter runs, but the same claims."""

    @abc.abstractmethod
    def draw(self, outcome: Outcome, path: Path) -> None:
        """Writes one picture of the outcome."""


def conduct(experiment: Experiment, quick: bool, out: Path) -> dict[str, Any]:
    """Runs an experiment, writes NAME.json, NAME.csv and NAME.png under `out`, and returns what the first holds."""
    begun, worked = time.perf_counter(), time.process_time()
    outcome = experiment.run(quick)
    picture = out / f"{experiment.name}.png"
    experiment.draw(outcome, picture)
    if outcome.rows:
        _write_rows(outcome.rows, out / f"{experiment.name}.csv")
    report = {
        "experiment": experiment.name,
        "statement": experiment.statement,
        "quick": quick,
        "verdict": outcome.verdict,
        "claims": [
            {
                "statement": claim.statement,
                "verdict": claim.verdict,
                "figures": claim.figures,
                "source": claim.source,
            }
            for claim in outcome.claims
        ],
        "notes": outcome.notes,
        "seconds": round(time.perf_counter() - begun, 1),
        "cpu_seconds": round(time.process_time() - worked, 1),
        "picture": str(picture),
        "data": outcome.data,
    }
    report = plain(report)
    _write(json.dumps(report, indent=1, allow_nan=False), out / f"{experiment.name}.json")
    return report


def report_text(report: dict[str, Any]) -> str:
    """A report for a person: each claim with its verdict and figures."""
    lines = [f"{report['experiment']}: {report['statement']}", ""]
    for claim in report["claims"]:
        source = f" ({claim['source']})" if claim["source"] else ""
        lines.append(f"  verdict: {claim['verdict']}  {claim['statement']}{source}")
        lines += [f"      {name}: {_short(value)}" for name, value in claim["figures"].items()]
    lines += [f"  note: {note}" for note in report["notes"]]
    counts = sum(claim["verdict"] == "holds" for claim in report["claims"])
    lines += [
        "",
        f"{counts} of {len(report['claims'])} claims hold; {report['seconds']:g} s; see {report['picture']}",
    ]
    return "\n".join(lines)


def plain(value: Any) -> Any:
    """The same value of dicts, lists, numbers and text alone, in six digits; what is not finite becomes a word."""
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


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(_short(each) for each in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {_short(each)}" for name, each in value.items())
    return str(value)


def _write_rows(rows: list[dict[str, Any]], path: Path) -> None:
    rows = [plain(row) for row in rows]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise cannot_write("the figures", path, error) from error


def _write(text: str, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise cannot_write("the outcome", path, error) from error
