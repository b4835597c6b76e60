"""Finds what a study shows and writes it: one list of sections for people, JSON and CSV for programs, a picture.

Nothing is written over results that are committed: a report goes to a folder of its own, and only `record` puts the
findings of a full study beside it, with the conditions under which they were found.
"""

import csv
from html import escape
import io
import json
import os
from pathlib import Path
import re
import shlex
import time
from typing import Any

from fcritic.disk import read_json, replace_file
from fcritic.errors import UsageError, writing
from fcritic.runs.directory import RunDirectory
from fcritic.runs.journal import elapsed
from fcritic.runs.versions import versions
from fcritic.study.spec import Findings, Listing, Picture, Section, Study, Table, Trainings, plain
from fcritic.training.console import duration


def conduct(
    study: Study,
    runs: Trainings,
    quick: bool,
    command: str,
    out: Path,
    record: bool = False,
    file: Path | None = None,
) -> dict[str, Any]:
    """Finds, judges and draws, writes the report into a folder, and returns what NAME.json holds.

    **Arguments:** with `record` the folder is the study's own and gets NAME.json, NAME.csv and NAME.png alone.
    `file` is that of the study, which `require_own` looks for.
    """
    if record and quick:
        raise UsageError("--record keeps the findings of a full study; leave --quick out")
    if record:  # what is committed names no folder of this machine
        command = shlex.join(Path(word).name if Path(word).is_absolute() else word for word in shlex.split(command))
    conditions = {"command": command, "commit": None, "device": None, "versions": versions()}
    conditions |= {"commit": conditions["versions"].pop("git"), "device": conditions["versions"].pop("device")}
    if record and conditions["commit"] is None:
        raise UsageError("--record notes the commit of the sources; run it in a git checkout of fcritic")
    if file is not None and not record:
        conditions["study"] = os.path.relpath(file)
    begun, worked = time.perf_counter(), time.process_time()
    findings = study.find(runs, quick)
    picture = out / f"{study.name}.png"
    study.draw(findings, picture)
    report = {
        "experiment": study.name,
        "statement": study.question,
        "quick": quick,
        "verdict": findings.outcome,
        "claims": [
            {"statement": each.claim, "verdict": each.outcome, "figures": each.figures, "source": each.source,
             "kind": each.kind}
            for each in findings.verdicts
        ],
        "notes": findings.notes,
        "seconds": round(time.perf_counter() - begun, 1),
        "cpu_seconds": round(time.process_time() - worked, 1),
        **_training_seconds(study, runs, quick),
        "conditions": conditions | {"seeds": _seeds(findings.rows)},
        "picture": picture.name if record else str(picture),
        "data": findings.plot,
    }  # fmt: skip
    report = plain(report)
    rows = [plain(row) for row in findings.rows]
    if record and study.runs:
        rows = _with_earlier(rows, out / f"{study.name}.csv", study, runs)
    if rows:
        _write("the figures", out / f"{study.name}.csv", _csv(rows))
    for name, text in findings.files.items():
        _write("the figures", out / name, text)
    _write("the outcome", out / f"{study.name}.json", json.dumps(report, indent=1, allow_nan=False) + "\n")
    if not record:
        study.draw(findings, out / f"{study.name}.svg")
        parts = sections(study, report, findings)
        _write("the report", out / f"{study.name}.md", markdown(study.name, parts))
        _write("the report", out / f"{study.name}.html", page(study.name, parts, out))
    return report


def require_own(out: Path, name: str, file: Path) -> None:
    """Refuses to write over the report of another study that has the same name."""
    try:
        other = read_json(out / f"{name}.json")["conditions"]["study"]
        taken = Path(other).is_file() and not Path(other).samefile(file)
    except (OSError, ValueError, KeyError, TypeError):  # none, or one that nobody could mistake for a report
        return
    if taken:
        raise UsageError(f"{out} holds the report of {other}; choose another --out, or rename the study {name}")


def _training_seconds(study: Study, runs: Trainings, quick: bool) -> dict[str, float]:
    """The time that its trainings have taken, as far as their folders tell."""
    told = [elapsed(RunDirectory(runs.folder / run.name).journal) for run in study.trainings(quick)]
    known = [seconds for seconds in told if seconds is not None]
    return {"training_seconds": round(sum(known), 1)} if known else {}


def _time(report: dict[str, Any]) -> str:
    """How long it took to judge and, where that is known, to train."""
    judged = f"{report['seconds']:g} s"
    trained = report.get("training_seconds")
    return judged if trained is None else f"judged in {judged} after {duration(trained)} of training"


def sections(study: Study, report: dict[str, Any], findings: Findings) -> list[Section]:
    """The report of a study, from which NAME.md and NAME.html are made."""
    rows = [
        [
            claim["statement"],
            claim["verdict"],
            claim["kind"],
            "; ".join(_figures(claim["figures"])),
            claim["source"],
        ]
        for claim in report["claims"]
    ]
    verdicts = [Table(["claim", "outcome", "whose", "figures", "source"], rows)] if rows else []
    conditions = report["conditions"]
    facts = ", ".join(f"{name} {value}" for name, value in conditions["versions"].items() if value)
    made = [f"Commit {conditions['commit']}, {conditions['device']}; {facts}; {_time(report)}."]
    commands = [conditions["command"], *(run.command() for run in study.runs)]
    return [
        Section("", [study.question, Picture(study.name, study.question)]),
        *([Section("Verdicts", verdicts)] if verdicts else []),
        *([Section("Notes", list(report["notes"]))] if report["notes"] else []),
        *study.sections(findings),
        Section("Commands", [Listing("\n".join(commands)), *made]),
    ]


def report_text(report: dict[str, Any], place: Path) -> str:
    """A report for a terminal: each claim with its verdict and figures."""
    lines = [f"{report['experiment']}: {report['statement']}", ""]
    for claim in report["claims"]:
        source = f" ({claim['source']})" if claim["source"] else ""
        kind = f" [{claim['kind']}]" if "kind" in claim else ""
        lines.append(f"  verdict: {claim['verdict']}{kind}  {claim['statement']}{source}")
        lines += [f"      {line}" for line in _figures(claim["figures"])]
    lines += [f"  note: {note}" for note in report["notes"]]
    counts = [
        f"{_count(report, outcome)} {word}"
        for outcome, word in (("holds", "hold"), ("fails", "fail"), ("open", "are open"))
    ]
    lines += ["", f"of {len(report['claims'])} claims {', '.join(counts)}; {_time(report)}; see {place}"]
    return "\n".join(lines)


def _count(report: dict[str, Any], outcome: str) -> int:
    return sum(claim["verdict"] == outcome for claim in report["claims"])


def _seeds(rows: list[dict[str, Any]]) -> int | None:
    """How many different seeds the rows are of."""
    return len({row["seed"] for row in rows if "seed" in row}) or None


def _figures(figures: dict[str, Any]) -> list[str]:
    return [f"{name}: {_short(value)}" for name, value in figures.items()]


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(_short(each) for each in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {_short(each)}" for name, each in value.items())
    return str(value)


def _csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(dict.fromkeys(name for row in rows for name in row)),
                            lineterminator="\n")  # fmt: skip
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _with_earlier(rows: list[dict[str, Any]], path: Path, study: Study, runs: Trainings) -> list[dict[str, Any]]:
    """The rows to record: new ones of the methods that were trained here, the recorded ones of all others."""
    if not path.is_file():
        return rows
    with path.open(newline="", encoding="utf-8") as file:
        recorded: list[dict[str, Any]] = list(csv.DictReader(file))
    trained = [run for run in study.runs if (runs.folder / run.name).is_dir()]
    here = {(run.task, envs, run.method) for run in trained for envs in (str(run.envs), "")}
    key = lambda row: (row["task"], str(row.get("envs", "")), row["method"])
    return [row for row in recorded if key(row) not in here] + [row for row in rows if key(row) in here]


def _write(thing: str, path: Path, text: str) -> None:
    with writing(thing, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode())


def markdown(title: str, parts: list[Section]) -> str:
    """The sections as Markdown."""
    lines = [f"# {title}"]
    for section in parts:
        lines += [f"## {section.title}"] if section.title else []
        for part in section.parts:
            match part:
                case Table():
                    lines.append(markdown_table(part))
                case Picture(name, text):
                    lines.append(f"![{text}]({name}.png)")
                case Listing(text):
                    lines.append(f"```\n{text}\n```")
                case _:
                    lines.append(part)
    return "\n\n".join(lines) + "\n"


def markdown_table(table: Table) -> str:
    """A table as Markdown."""
    rows = [table.heads, ["---"] * len(table.heads), *table.rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)


STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --paper: #fff; --line: #ddd; --quiet: #666; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #161616; --line: #3a3a3a; --quiet: #a0a0a0; }
}
body { margin: 0 auto; max-width: 60rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; }
svg { width: 100%; height: auto; background: #fff; }
p { overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: 1rem 0; } table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
pre { overflow-x: auto; padding: .6rem; border: 1px solid var(--line); font-size: .8rem; }
"""


def page(title: str, parts: list[Section], folder: Path) -> str:
    """The sections as one HTML file that needs no network, script or font; pictures are in it as SVG."""
    body = [f"<h1>{escape(title)}</h1>"]
    for section in parts:
        body += [f"<h2>{escape(section.title)}</h2>"] if section.title else []
        for part in section.parts:
            match part:
                case Table(heads, rows):
                    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
                    lines = "".join(
                        f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows
                    )
                    table = f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
                    body.append(f'<div class="wide">{table}</div>')
                case Picture(name, text):
                    drawn = (folder / f"{name}.svg").read_text(encoding="utf-8")
                    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn[drawn.index("<svg") :], flags=re.DOTALL)
                    body.append(drawn.replace("<svg", f'<svg role="img" aria-label="{escape(text)}"', 1))
                case Listing(text):
                    body.append(f"<pre>{escape(text)}</pre>")
                case _:
                    body.append(f"<p>{escape(part)}</p>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )
