"""The usual study of trainings: methods beside each other on the same task, and claims that one is better.

Evaluations are read from the folders of runs, or from CSV files for runs whose folders are elsewhere or gone.
"""

import csv
import dataclasses
from importlib.resources import files
import io
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np

from fcritic.disk import open_plain
from fcritic.errors import UsageError, did_you_mean, listed
from fcritic.results import read as results
from fcritic.results import statistics
from fcritic.runs.directory import RunDirectory
from fcritic.study.spec import Findings, Kind, Run, Section, Study, Table, Trainings, Verdict, require_different

END = 0.1
"""A seed's end score is the mean of its evaluations in this last part of the frames: single ones are noisy."""
ENOUGH = 2
"""Seeds from which on an interval is given."""
SHADED = 3
"""Seeds from which on an interval is drawn: that of two would cover the whole picture."""
MOST_BYTES = 2**24
"""Of a CSV file of evaluations."""

Curve = dict[int, float]
"""Frames -> the mean actor's return, of one seed."""


Measure = Literal["end", "area"]
"""What a seed is judged by: its end score, or the area under its curve, which counts speed too."""


@dataclasses.dataclass(frozen=True)
class Better:
    """The claim that one method is better than another, at the end of their training or all along."""

    text: str
    better: str
    worse: str
    kind: Kind = "ours"
    source: str = ""
    of: Measure = "end"


@dataclasses.dataclass(frozen=True)
class Comparison(Study):
    """A named list of runs, compared panel by panel."""

    name: str
    question: str
    runs: tuple[Run, ...]
    reference: str = ""
    """The method that the others are compared with; without one the first of a panel."""
    claims: tuple[Better, ...] = ()
    quick_runs: tuple[Run, ...] = ()

    def __post_init__(self) -> None:
        require_different(self.runs, self.name)
        require_different(self.quick_runs, self.name)

    def version(self, quick: bool) -> Self:
        """The comparison itself, or with the runs of `--quick` in place of its own."""
        return dataclasses.replace(self, runs=self.trainings(quick)) if quick else self

    @property
    def panels(self) -> dict[str, list[Run]]:
        """The runs, panel by panel."""
        panels: dict[str, list[Run]] = {}
        for run in self.runs:
            panels.setdefault(run.panel, []).append(run)
        return panels

    @property
    def claimed(self) -> tuple[Better, ...]:
        """All its claims."""
        return self.claims

    def require_sound(self) -> None:
        """Refuses also labels that no run has: what is claimed of them would be neither judged nor missed."""
        super().require_sound()
        if wrong := [claim.of for claim in self.claimed if claim.of not in get_args(Measure)]:
            raise UsageError(f"{self.name}: a claim is of end or area, not of {wrong[0]}")
        panels: dict[str, set[str]] = {}
        for run in (*self.runs, *self.quick_runs):
            panels.setdefault(run.panel, set()).add(run.method)
        known = set().union(*panels.values())
        named = [(f"claim '{claim.text}'", (claim.better, claim.worse)) for claim in self.claimed]
        for what, labels in [("reference", (self.reference,))] * bool(self.reference) + named:
            if unknown := [label for label in labels if label not in known]:
                hints = listed(known) + did_you_mean(unknown[0], known)
                raise UsageError(f"{self.name}: no run is labelled {' or '.join(unknown)} ({what}){hints}")
            if not any(panel.issuperset(labels) for panel in panels.values()):
                never = "are never run on the same task with as many environments"
                raise UsageError(f"{self.name}: {' and '.join(labels)} ({what}) {never}")

    def find(self, runs: Trainings, quick: bool = False) -> Findings:
        """Curves, end scores, comparisons and verdicts of the evaluations that are there."""
        panels = gather(self.version(quick), runs)
        if not any(panel.methods for panel in panels):
            raise UsageError(
                f"{self.name} has no run in {runs.folder} yet; begin with fcritic experiment run {self.name}, "
                "or name a file of its evaluations with --add"
            )
        plot = {"panels": [_plotted(panel, self.reference) for panel in panels]}
        verdicts = [
            _judge(claim, panel)
            for claim in self.claims
            for panel in panels
            if panel.asks(claim.better, claim.worse)
        ]
        missing = [f"{panel.name}: {', '.join(panel.missing)} not run" for panel in panels if panel.missing]
        return Findings(verdicts, _rows(panels), plot, missing)

    def draw(self, findings: Findings, path: Path) -> None:
        """A panel per task: means over seeds, intervals, single seeds; crosses are published means."""
        from fcritic.results.plots import panels

        drawn = [panel for panel in findings.plot["panels"] if panel["methods"]]
        columns = min(2, len(drawn))
        with panels(path, columns, width=6.5, rows=-(-len(drawn) // columns)) as axes:
            for place, panel in zip(axes, drawn, strict=False):
                draw_panel(place, panel)
            for place in axes[len(drawn) :]:
                place.set_visible(False)

    def sections(self, findings: Findings) -> list[Section]:
        """End scores, comparisons and published figures of each panel; commands; versions; how to read it."""
        found = [Section(panel["panel"], _tables(panel)) for panel in findings.plot["panels"]]
        made: dict[str, list[str]] = {}
        for panel in findings.plot["panels"]:
            for method in panel["methods"]:
                facts = ", ".join(f"{name} {value}" for name, value in method["versions"].items() if value)
                made.setdefault(facts, []).append(f"{method['method']}, {panel['panel']}")
        versions = [f"{'; '.join(runs)}: {facts}" for facts, runs in made.items()]
        return [*found, Section("Made with", versions), Section("How to read this", [READING])]


def draw_panel(place: Any, panel: dict[str, Any]) -> None:
    """Draws the methods of a panel, by the name of its task, on axes of matplotlib."""
    from fcritic.results.plots import line_of, short_frames

    last = max(method["frames"] for method in panel["methods"])
    points = [point for entry in panel["published"] for point in entry["points"] if point[0] <= last]
    place.plot([point[0] for point in points], [point[1] for point in points], "x", color="0.45", zorder=3)
    for method in panel["methods"]:
        line, curve = line_of(method["place"]), method["curve"]
        place.plot(curve["frames"], np.transpose(curve["seeds"]), color=line["color"], alpha=0.3, lw=0.8)
        place.plot(curve["frames"], curve["mean"], label=method["method"], linewidth=2, **line)
    seen = place.get_ylim()  # of few seeds the interval is many times as high as all that was measured
    for method in panel["methods"]:
        if method["seeds"] < SHADED:
            continue
        curve, colour = method["curve"], line_of(method["place"])["color"]
        place.fill_between(curve["frames"], curve["low"], curve["high"], color=colour, alpha=0.15)
    place.set_ylim(seen)
    place.set_title(panel["panel"])
    place.set_xlabel("frames, summed over environments" + (" (crosses: published)" if points else ""))
    place.xaxis.set_major_formatter(lambda frame, _: short_frames(frame))
    place.set_ylabel("return of the mean actor")
    place.legend(frameon=False, fontsize=9, handlelength=3)


READING = (
    "A strong line is the mean over seeds of the mean actor's return, its shade the 95 % bootstrap interval of "
    "that mean, widened for few seeds and not drawn of fewer than three; thin lines are single seeds. The end "
    "score of a seed is the mean of its evaluations in the last tenth of the frames. The interquartile mean "
    "leaves out the lowest and the highest quarter of the seeds. The area is the mean height of the curve. "
    "Published figures are as their authors reported them, with their own protocol. P(a seed is better) is the "
    "share of pairs of seeds, with its exact interval; p is Mann and Whitney's, exact and two-sided; both are of "
    "end scores, or of areas where a claim says so. A claim holds, or fails, where the interval lies on one side "
    "of a half, which is where p is below 0.05; otherwise it is open, with the number of seeds per method that "
    "would decide if they went on to lie as these do."
)


@dataclasses.dataclass(frozen=True)
class Method:
    """What one run of a panel has reached."""

    run: Run
    frames: np.ndarray
    """At which all its seeds were evaluated, up to the last frame of the study."""
    values: np.ndarray
    """The mean actor's return, (seeds, frames)."""
    versions: dict[str, Any]
    place: int = 0
    """Among the runs of its panel, missing ones too: a method has the same colour in every panel."""

    @property
    def finished(self) -> bool:
        """Whether it was trained to the end."""
        return bool(self.frames.size and self.frames[-1] >= self.run.steps)

    @property
    def end_scores(self) -> np.ndarray:
        """One number per seed."""
        late = self.frames >= self.frames[-1] - END * self.frames[-1]
        return self.values[:, late].mean(axis=1)

    @property
    def areas(self) -> np.ndarray:
        """The mean height of each seed's curve."""
        return np.array([statistics.area_under_curve(self.frames, seed) for seed in self.values])

    def scores(self, of: Measure) -> np.ndarray:
        """What each seed is judged by."""
        return self.areas if of == "area" else self.end_scores

    def summary(self) -> dict[str, Any]:
        """The row of a table."""
        scores = self.end_scores[:, None]
        row = {
            "method": self.run.method,
            "seeds": len(self.values),
            "frames": int(self.frames[-1]),
            "finished": self.finished,
            "end_mean": statistics.mean(scores),
            "end_deviation": float(np.std(scores, ddof=1)) if len(scores) > 1 else None,
            "end_by_seed": self.end_scores.round(1).tolist(),
            "area": float(np.mean(self.areas)),
        }
        if len(scores) >= ENOUGH:
            row["end_interquartile"] = statistics.interval(scores)._asdict()
        return row

    def bands(self) -> list[statistics.Interval]:
        """Mean and interval over seeds at every frame."""
        if len(self.values) < ENOUGH:
            return [statistics.Interval(value, value, value) for value in self.values[0].tolist()]
        columns = self.values.T[:, :, None]
        return [statistics.interval(column, statistics.mean, resamples=400) for column in columns]


@dataclasses.dataclass(frozen=True)
class Panel:
    """Methods on one task with as many environments, and published figures for the task."""

    name: str
    methods: list[Method]
    missing: list[str]
    published: list[dict[str, Any]]

    def asks(self, *methods: str) -> bool:
        """Whether these methods belong to it, trained or missing."""
        return {*methods} <= {*self.missing, *(method.run.method for method in self.methods)}

    def comparisons(self, reference: str) -> list[dict[str, Any]]:
        """Each method beside the reference, at the frames that both have reached."""
        by_name = {method.run.method: method for method in self.methods}
        if reference not in by_name:
            return []
        others = [method for name, method in by_name.items() if name != reference]
        return [compare(method, by_name[reference]) for method in others]


def compare(method: Method, reference: Method, of: Measure = "end") -> dict[str, Any]:
    """Scores of two methods, each at the frames that both have reached."""
    ours, theirs = same_length(method, reference)
    seeds = statistics.compared(ours.scores(of), theirs.scores(of))
    means = [float(side.scores(of).mean()) for side in (ours, theirs)]
    return {
        "method": method.run.method,
        "reference": reference.run.method,
        "frames": int(ours.frames[-1]),
        "ours": means[0],
        "theirs": means[1],
        "difference": means[0] - means[1],
        "probability_of_improvement": seeds.better._asdict(),
        "p": seeds.p,
    }


def gather(study: Comparison, runs: Trainings) -> list[Panel]:
    """Every panel of a study; runs without an evaluation are named as missing."""
    stock = read_stock(runs.added)
    panels = []
    for name, members in study.panels.items():
        found = {run.method: read_method(run, runs.folder) or _from_stock(run, stock) for run in members}
        methods = [
            dataclasses.replace(method, place=place)
            for place, method in enumerate(found.values())
            if method is not None
        ]
        missing = [method for method, data in found.items() if data is None]
        panels.append(Panel(name, methods, missing, published(members[0].task, max(run.steps for run in members))))
    return panels


def read_method(run: Run, folder: Path) -> Method | None:
    """The curves of a run up to the last frame of the study, or nothing before its first evaluation."""
    directory = RunDirectory(folder / run.name)
    if directory.metrics.status() is None:
        return None
    curves = results.curves(directory).mean_actor.values()
    return _method(run, [dict(zip(*curve, strict=True)) for curve in curves], _versions(directory))


def _from_stock(run: Run, stock: "Stock") -> Method | None:
    stored = stock.get((run.task, run.envs, run.method))
    return stored and _method(run, list(stored.curves.values()), {"read from": stored.source})


def _method(run: Run, grids: list[Curve], versions: dict[str, Any]) -> Method | None:
    """The seeds' curves at the frames that all of them have."""
    config = run.config()
    last = config.iterations * config.frames_per_iteration  # a longer study may have trained it further
    frames = sorted(frame for frame in set.intersection(*map(set, grids)) if frame <= last) if grids else []
    if not frames:
        return None
    values = np.array([[grid[frame] for frame in frames] for grid in grids])
    return Method(run, np.array(frames), values, versions)


def _versions(directory: RunDirectory) -> dict[str, Any]:
    try:
        return directory.versions()
    except UsageError:
        return {}


def same_length(one: Method, other: Method) -> tuple[Method, Method]:
    """Both cut to the frames that both have reached."""
    last = min(one.frames[-1], other.frames[-1])
    cut = lambda method: dataclasses.replace(
        method, frames=method.frames[method.frames <= last], values=method.values[:, method.frames <= last]
    )
    ours, theirs = cut(one), cut(other)
    if not ours.frames.size or not theirs.frames.size:
        raise UsageError("two runs have no evaluation at common frames; train the shorter one further")
    return ours, theirs


def published(task: str, steps: int) -> list[dict[str, Any]]:
    """Published means for a task, with action repeat and updates per frame, up to this number of frames."""
    text = (files("fcritic.study") / "published.csv").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = {}
    for row in csv.DictReader(text.splitlines()):
        if row["task"] == task and int(row["frames"]) <= steps:
            facts = {name: row[name] for name in ("algorithm", "action_repeat", "updates_per_frame", "seeds")}
            points = found.setdefault(row["algorithm"], facts | {"points": []})["points"]
            points.append((int(row["frames"]), float(row["mean"]), float(row["deviation"])))
    return list(found.values())


class Stored(NamedTuple):
    """The curves of one run, by seed, and the file that they are from."""

    curves: dict[int, Curve]
    source: str


Stock = dict[tuple[str, int, str], Stored]
"""By task, environments and method."""


def read_stock(paths: tuple[Path, ...]) -> Stock:
    """All evaluations in such files; of a run that is in several the last file counts."""
    stock: Stock = {}
    for path in paths:
        found: Stock = {}
        for row in read_rows(path, "task, envs, method, seed, frames, mean_actor"):
            try:
                key = (row["task"], int(row["envs"]), row["method"])
                seed, frames, value = int(row["seed"]), int(row["frames"]), float(row["mean_actor"])
            except (ValueError, TypeError) as error:
                raise UsageError(f"--add: {path} has a row that cannot be read ({error})") from error
            found.setdefault(key, Stored({}, path.name)).curves.setdefault(seed, {})[frames] = value
        stock |= found
    return stock


def read_rows(path: Path, columns: str) -> list[dict[str, str]]:
    """The rows of a CSV file that a user has named; it must have these columns."""
    try:
        with open_plain(path, MOST_BYTES) as file:
            rows = list(csv.DictReader(io.StringIO(file.readall().decode())))
    except OSError as error:
        raise UsageError(f"--add: cannot read {path}: {error.strerror or error}") from error
    except (ValueError, csv.Error) as error:
        raise UsageError(f"--add: {path} is not a CSV file ({error})") from error
    if missing := [name for name in columns.split(", ") if not rows or name not in rows[0]]:
        raise UsageError(f"--add: {path} lacks {', '.join(missing)}; its columns must include {columns}")
    return rows


def _judge(claim: Better, panel: Panel) -> Verdict:
    """Decided where the exact interval of P(a seed is better) lies on one side of a half: where p is below 0.05."""
    given = lambda outcome, figures: Verdict(
        f"{claim.text}, {panel.name}", outcome, figures, claim.source, claim.kind
    )
    if missing := [name for name in (claim.better, claim.worse) if name in panel.missing]:
        return given("open", {"not run": missing})
    methods = {method.run.method: method for method in panel.methods}
    both = [methods[claim.better], methods[claim.worse]]
    row = compare(*both, claim.of)
    chance = row["probability_of_improvement"]
    figures: dict[str, Any] = {"judged by": "area"} if claim.of == "area" else {}
    figures |= {claim.better: row["ours"], claim.worse: row["theirs"], "frames": row["frames"]}
    figures |= {"seeds": [len(method.values) for method in both]}
    figures |= {"P(a seed is better)": chance["value"], "interval": [chance["low"], chance["high"]], "p": row["p"]}
    if unfinished := [method.run.method for method in both if not method.finished]:
        figures["not finished"] = unfinished
    outcome = "holds" if chance["low"] > 0.5 else "fails" if chance["high"] < 0.5 else "open"
    if outcome == "open":
        needed = statistics.deciding_seeds(chance["value"])
        figures["seeds that would decide"] = needed or f"more than {statistics.MOST_SEEDS}"
    return given(outcome, figures)


def _plotted(panel: Panel, reference: str) -> dict[str, Any]:
    methods = []
    for method in panel.methods:
        bands = method.bands()
        curve = {"frames": method.frames, "seeds": method.values, "mean": [band.value for band in bands]}
        curve |= {"low": [band.low for band in bands], "high": [band.high for band in bands]}
        methods.append(method.summary() | {"place": method.place, "versions": method.versions, "curve": curve})
    first = panel.methods[0].run.method if panel.methods else ""
    return {
        "panel": panel.name,
        "missing": panel.missing,
        "methods": methods,
        "comparisons": panel.comparisons(reference or first),
        "published": panel.published,
    }


def _rows(panels: list[Panel]) -> list[dict[str, Any]]:
    """One row per evaluation of a seed."""
    return [
        {"task": method.run.task, "envs": method.run.envs, "method": method.run.method,
         "seed": method.run.config().seed + seed, "frames": frame, "mean_actor": round(value, 2)}
        for panel in panels
        for method in panel.methods
        for seed, values in enumerate(method.values.tolist())
        for frame, value in zip(method.frames.tolist(), values, strict=True)
    ]  # fmt: skip


def _tables(panel: dict[str, Any]) -> list[str | Table]:
    """The tables below a panel's name."""
    parts: list[str | Table] = [f"Missing: {', '.join(panel['missing'])}."] if panel["missing"] else []
    if panel["methods"]:
        heads = [
            "method",
            "frames",
            "seeds",
            "end: mean ± deviation",
            "interquartile mean [95 %]",
            "area",
            "end by seed",
        ]
        parts.append(Table(heads, [_score(row) for row in panel["methods"]]))
    if panel["comparisons"]:
        heads = ["comparison", "frames", "difference of end means", "P(a seed is better) [95 %]", "p"]
        rows = []
        for row in panel["comparisons"]:
            names = f"{row['method']} beside {row['reference']}"
            rows.append(
                [
                    names,
                    f"{row['frames']:,}",
                    f"{row['difference']:+.1f}",
                    interval_text(row["probability_of_improvement"], 2),
                    f"{row['p']:.2g}",
                ]
            )
        parts.append(Table(heads, rows))
    if panel["methods"] and panel["published"]:
        heads = ["published (grey crosses)", "action repeat", "updates per frame", "seeds", "mean ± deviation"]
        rows = []
        for entry in panel["published"]:
            points = [
                f"{mean:.0f} ± {deviation:.0f} at {frame // 1000}k" for frame, mean, deviation in entry["points"]
            ]
            facts = [entry[name] for name in ("algorithm", "action_repeat", "updates_per_frame", "seeds")]
            rows.append([*facts, "; ".join(points)])
        parts.append(Table(heads, rows))
    return parts


def _score(row: dict[str, Any]) -> list[str]:
    deviation = "" if row["end_deviation"] is None else f" ± {row['end_deviation']:.1f}"
    return [
        row["method"],
        f"{row['frames']:,}" + ("" if row["finished"] else " (not finished)"),
        str(row["seeds"]),
        f"{row['end_mean']:.1f}{deviation}",
        interval_text(row["end_interquartile"], 1) if "end_interquartile" in row else "-",
        f"{row['area']:.1f}",
        ", ".join(f"{score:.0f}" for score in row["end_by_seed"]),
    ]


def interval_text(figure: dict[str, float], digits: int) -> str:
    """A figure with its interval, as a cell of a table."""
    value, low, high = (f"{figure[name]:.{digits}f}" for name in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"
