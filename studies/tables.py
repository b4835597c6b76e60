"""Writes the tables of results into the pages, from the files beside the studies: `make results`.

A table stands between two marks, which are comments in Markdown. The first says what it shows:

    <!-- results: figure-2 laptop      names of CSV files without .csv; a row is looked for in each, in this order
    where: task=cheetah-run envs=4     only these rows of the files, where they have such columns
    frames: 40,000 100,000 last        columns: the mean of the seeds ± their deviation at these frames; `last` is
                                       the last evaluation that all seeds have
    rows: fac | sac+ => `sac+` | a [0:4] => four of five
                                       methods, as the file calls them and (after =>) the page; actors 0 to 3 alone
    -->
    (the table)
    <!-- end of results -->

`<!-- results: verdicts -->` has every claim of the paper that the recorded results have judged, `<!-- results:
verdicts theorem-1 -->` all claims of a study, `<!-- results: counts theory -->` their number by outcome,
and `<!-- results: counts -->` that of the paper's claims by group.
`<!-- results: ranking tasks unseen -->` has rank correlation, regret of the best and error of all methods on unseen
policies (or known, foreign), `alike` instead of `tasks` those on the policies that FQE was fitted to, and
`<!-- results: ranking -->` how many policies are trusted, and how many of these lie inside of their interval.
`<!-- results: speed -->`, `peers` and `reliability` show what `benchmarks/results` has recorded.
"""

import csv
import functools
import json
from pathlib import Path
import re
import sys

import numpy as np

HERE = Path(__file__).parent
ROOT = HERE.parent
BENCHMARKS = ROOT / "benchmarks" / "results"
MARKS = re.compile(r"(<!-- results: (.*?)-->\n).*?(<!-- end of results -->)", re.DOTALL)

PARTS = ("method", "run", "recipe", "changes", "precision")
"""The columns that name a method, where a file has them."""

Curves = dict[str, dict[int, dict[int, list[float]]]]
"""Method -> seed -> frames -> the mean actor's return, followed by that of each actor where it is known."""


def pages() -> list[Path]:
    """The pages that may have tables."""
    folders = (ROOT / "docs", HERE, BENCHMARKS)
    return [ROOT / "README.md", *(page for folder in folders for page in sorted(folder.rglob("*.md")))]


def written(text: str) -> str:
    """A page with its tables as the results are now."""
    return MARKS.sub(lambda found: f"{found[1]}\n{table(found[2])}\n\n{found[3]}", text)


def table(order: str) -> str:
    """The table that a mark asks for, in Markdown."""
    head, *lines = order.strip().splitlines()
    kind, *names = head.split()
    if kind == "verdicts":
        return _verdicts(names[0]) if names else _paper_verdicts()
    if kind == "counts":
        return _counts(names[0]) if names else _paper_counts()
    if kind == "ranking":
        return _ranking(*names) if names else _inside()
    if kind == "speed":
        return _speed()
    if kind == "peers":
        return _peers()
    if kind == "reliability":
        return _reliability()
    fields = dict(line.split(": ", 1) for line in lines)
    where = dict(each.split("=", 1) for each in fields.get("where", "").split())
    return _curves([kind, *names], where, fields["frames"].split(), fields["rows"].split(" | "))


def _curves(files: list[str], where: dict[str, str], columns: list[str], rows: list[str]) -> str:
    found = [curves(name, tuple(where.items())) for name in files]
    lines = [["", *columns, "seeds, last of these"]]
    for row in rows:
        name, _, label = row.partition(" => ")
        method, _, actors = name.partition(" [")
        seeds = next((each[method] for each in found if method in each), None)
        if seeds is None:
            raise ValueError(f"{' '.join(files)}: no method {method}")
        part = [int(place) for place in actors.rstrip("]").split(":")] if actors else None
        common = sorted(set.intersection(*(set(seed) for seed in seeds.values())))
        asked = [common[-1] if column == "last" else int(column.replace(",", "")) for column in columns]
        values = {
            frame: [_value(seed[frame], part) for seed in seeds.values()] for frame in asked if frame in common
        }
        cells = [_cell(values.get(frame), column, frame) for column, frame in zip(columns, asked, strict=True)]
        shown = [frame for frame in asked if frame in common]
        ends = ", ".join(f"{value:.0f}" for value in values[shown[-1]]) if shown else ""
        lines.append([(label or name).strip(), *cells, ends])
    return markdown(lines)


def _value(returns: list[float], part: list[int] | None) -> float:
    return returns[0] if part is None else float(np.mean(returns[1:][slice(*part)]))


def _cell(values: list[float] | None, column: str, frame: int) -> str:
    if values is None:
        return ""
    text = f"{np.mean(values):.0f} ± {np.std(values, ddof=1):.0f}"
    return f"{text} at {frame:,}" if column == "last" else text


@functools.cache
def curves(name: str, where: tuple[tuple[str, str], ...]) -> Curves:
    """The evaluations in a CSV file below this folder, or of the benchmarks."""
    (file,) = [file for folder in (HERE, BENCHMARKS) for file in folder.rglob(f"{name}.csv")]
    found: Curves = {}
    with file.open(newline="", encoding="utf-8") as opened:
        for row in csv.DictReader(opened):
            if any(row.get(column, value) != value for column, value in where) or not row["mean_actor"]:
                continue
            method = " ".join(
                row[part] for part in ("method", "run", "recipe", "changes", "precision") if row.get(part)
            )
            frame = int(row.get("frames") or row["env_steps"])
            actors = [float(each) for each in row.get("actors", "").split()]
            found.setdefault(method or name, {}).setdefault(int(row["seed"]), {})[frame] = [
                float(row["mean_actor"]), *actors
            ]  # fmt: skip
    return found


def _paper_verdicts() -> str:
    lines = [["study", "claim of the paper", "outcome"]]
    for file in _recorded():
        report = json.loads(file.read_text(encoding="utf-8"))
        for claim in report["claims"]:
            if claim["kind"] == "paper":
                lines.append([f"`{report['experiment']}`", claim["statement"], f"**{claim['verdict']}**"])
    return markdown(lines)


def _verdicts(name: str) -> str:
    (report,) = [json.loads(file.read_text(encoding="utf-8")) for file in _recorded() if file.stem == name]
    rows = [[claim["statement"], f"**{claim['verdict']}**", claim["kind"]] for claim in report["claims"]]
    return markdown([["claim", "outcome", "whose"], *rows])


def _counts(group: str) -> str:
    lines = [["study", "the paper's claims", "corrected", "ours", "controls", "CPU seconds"]]
    for file in _recorded():
        report = json.loads(file.read_text(encoding="utf-8"))
        if file.relative_to(HERE).parts[0] == group:
            counts = [_count(report["claims"], kind) for kind in ("paper", "corrected", "ours", "control")]
            lines.append([f"`{report['experiment']}`", *counts, f"{report['cpu_seconds']:,.0f}"])
    return markdown(lines)


def _paper_counts() -> str:
    """The outcomes of the paper's claims, by group of studies."""
    found: dict[str, list[str]] = {}
    for file in _recorded():
        claims = json.loads(file.read_text(encoding="utf-8"))["claims"]
        outcomes = found.setdefault(file.relative_to(HERE).parts[0], [])
        outcomes += [claim["verdict"] for claim in claims if claim["kind"] == "paper"]
    kinds = ("holds", "fails", "open")
    count = lambda outcomes: [str(outcomes.count(kind)) for kind in kinds]
    rows = [[group, *count(outcomes)] for group, outcomes in found.items() if outcomes]
    return markdown([["the paper's claims on", *kinds], *rows])


def _count(claims: list[dict], kind: str) -> str:
    outcomes = [claim["verdict"] for claim in claims if claim["kind"] == kind]
    return f"{outcomes.count('holds')} of {len(outcomes)} hold" if outcomes else ""


def _ranking(kind: str, group: str) -> str:
    """Quality of rankings from logged data, by task and method, and the means over tasks."""
    report = json.loads((HERE / "evaluation" / "results" / "summary.json").read_text(encoding="utf-8"))[kind]
    found = {task: groups[group] for task, groups in report.items() if group in groups}
    methods = list(dict.fromkeys(method for each in found.values() for method in each))
    if kind == "tasks":  # all on the same policies
        methods = [method for method in methods if not method.startswith("fqe")]
    measures = ("rank", "regret1", "error")
    cells = {
        task: {method: [told[name] for name in measures] for method, told in each.items()}
        for task, each in found.items()
    }
    whole = [each for each in cells.values() if set(methods) <= each.keys()]
    cells["mean"] = {
        method: np.mean([each[method] for each in whole], axis=0).tolist() for method in methods if whole
    }
    text = lambda values: ", ".join(f"{value:.2f}" for value in values)
    size = lambda task: ", ".join(f"{found[task]['functional'][name]}" for name in ("policies", "splits"))
    lines = [
        [task, size(task) if task in found else "", *(text(each.get(method, [])) for method in methods)]
        for task, each in cells.items()
    ]
    return markdown([["rank, regret, error", "policies, splits", *(f"`{method}`" for method in methods)], *lines])


def _inside() -> str:
    """Trusted policies and the share of them inside of their interval, by task and group."""
    report = json.loads((HERE / "evaluation" / "results" / "summary.json").read_text(encoding="utf-8"))["trust"]
    groups = list(next(iter(report.values())))
    share = lambda each: (
        f"{each['trusted']} of {each['policies']}" + (f", {each['inside']:.2f}" if each["trusted"] else "")
    )
    lines = [[task, *(share(each[group]) for group in groups)] for task, each in report.items()]
    return markdown([["trusted, share inside", *groups], *lines])


def _speed() -> str:
    """Milliseconds per iteration on a GPU, by recipe and number of seeds."""
    found: dict[str, dict[int, dict]] = {}
    for row in json.loads((BENCHMARKS / "performance" / "update.json").read_text(encoding="utf-8"))["rows"]:
        found.setdefault(row["recipe"], {})[row["seeds"]] = row
    counts = sorted({seeds for each in found.values() for seeds in each})
    lines = [
        ["recipe", "precision", *(f"{seeds} seed{'s' * (seeds > 1)}" for seeds in counts), "share of the floor"]
    ]
    for recipe, rows in sorted(found.items(), key=lambda each: each[0]):
        times = [f"{rows[seeds]['ms_per_iteration']:.2f}" for seeds in counts]
        shares = ", ".join(f"{100 * rows[seeds]['share_of_floor']:.1f}" for seeds in counts)
        lines.append([f"`{recipe}`", rows[counts[0]]["precision"], *times, f"{shares} %"])
    return markdown(lines)


def _peers() -> str:
    """Frames per second on two CPU cores beside other libraries: medians, ratios with lowest and highest."""
    report = json.loads((BENCHMARKS / "speed" / "peers.json").read_text(encoding="utf-8"))
    lines = [["", "fcritic", "SBX", "ratio", "Stable-Baselines3", "ratio"]]
    for name in ("sac", "td3"):
        speeds = {each: f"{np.median(rounds):.0f}/s" for each, rounds in report["steps_per_second"][name].items()}
        ratios = {
            peer: "{:.2f} ({:.2f} to {:.2f})".format(report[name][peer], *report["spread"][name][peer])
            for peer in ("vs_sbx", "vs_sb3")
        }
        lines.append(
            [name.upper(), *(speeds["fcritic"], speeds["sbx"], ratios["vs_sbx"], speeds["sb3"], ratios["vs_sb3"])]
        )
    return markdown(lines)


def _reliability() -> str:
    """The attacks of the benchmark, and how many were withstood."""
    report = json.loads((BENCHMARKS / "reliability" / "report.json").read_text(encoding="utf-8"))
    rows = [
        [f"`{name}`", check["what"], f"{check['passed']:,} of {check['of']:,}"]
        for name, check in report["checks"].items()
    ]
    return markdown([["check", "attack", "withstood"], *rows])


def _recorded() -> list[Path]:
    files = sorted(HERE.rglob("*.json"))
    return [file for file in files if '"claims"' in file.read_text(encoding="utf-8")]


def markdown(lines: list[list[str]]) -> str:
    """Lines of cells, the first of them heads."""
    head, *rows = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])


def main() -> int:
    """Writes all tables; returns 0."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (now := written(text)) != text:
            page.write_text(now, encoding="utf-8")
            print(f"wrote the tables of {page.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
