"""The report of an experiment as one HTML file that needs nothing else: no network, no script, no font."""

from html import escape
from typing import Any

from fcritic.experiments import charts
from fcritic.experiments.gather import Panel
from fcritic.experiments.spec import Experiment
from fcritic.experiments.verdicts import Verdict, judge_all

STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --paper: #fff; --line: #ddd; --quiet: #666; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #161616; --line: #3a3a3a; --quiet: #a0a0a0; }
}
body { margin: 0 auto; max-width: 60rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; }
svg { width: 100%; height: auto; } svg text { font-size: 12px; } svg text:not([fill]) { fill: var(--quiet); }
svg text[fill] { font-weight: 600; }
.grid { stroke: var(--line); } .seed { fill: none; stroke-width: 1; opacity: .35; }
.published { fill: none; stroke: var(--quiet); stroke-width: 1.5; }
@media (max-width: 40rem) { svg text { font-size: 20px; } }
p { overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: 1rem 0; } table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
pre { overflow-x: auto; padding: .6rem; border: 1px solid var(--line); font-size: .8rem; }
.legend { list-style: none; padding: 0; columns: 22rem; font-size: .9rem; } .legend .sample { width: 2rem; }
.note { color: var(--quiet); }
"""


def page(experiment: Experiment, panels: list[Panel]) -> str:
    """The whole file."""
    judged, parts = _verdicts(judge_all(experiment, panels)), [_panel(panel, experiment) for panel in panels]
    commands = "\n".join(run.command() for run in experiment.runs)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(experiment.name)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{escape(experiment.name)}</h1><p>{escape(experiment.purpose)}</p>{judged}{''.join(parts)}"
        f"<h2>Commands</h2><p>All of it: <code>fcritic experiment run {escape(experiment.name)}</code>. Each run "
        f"by itself:</p><pre>{escape(commands)}</pre>{_made_with(panels)}{_reading()}</body></html>"
    )


def _panel(panel: Panel, experiment: Experiment) -> str:
    missing = f'<p class="note">Missing: {escape(", ".join(panel.missing))}.</p>' if panel.missing else ""
    if not panel.methods:
        return f"<h2>{escape(panel.name)}</h2>{missing}"
    reference = experiment.reference or panel.methods[0].run.method
    return (
        f"<h2>{escape(panel.name)}</h2>{charts.curves(panel)}{charts.legend(panel)}{missing}{_scores(panel)}"
        f"{_comparisons(panel.comparisons(reference))}{_published(panel)}"
    )


def _verdicts(verdicts: list[Verdict]) -> str:
    items = [
        f"<li>{escape(f'{one.claim}, {one.panel}')}: <strong>{one.outcome}</strong> ({escape(one.why)})</li>"
        for one in verdicts
    ]
    return f"<ul>{''.join(items)}</ul>" if items else ""


def _scores(panel: Panel) -> str:
    rows = []
    for method in panel.methods:
        row = method.summary()
        quartile = row.get("end_interquartile")
        rows.append(
            [
                row["method"],
                f"{row['frames']:,}" + ("" if row["finished"] else " (not finished)"),
                str(row["seeds"]),
                f"{row['end_mean']:.1f}"
                + (f" ± {row['end_deviation']:.1f}" if row["end_deviation"] is not None else ""),
                f"{quartile['value']:.1f} [{quartile['low']:.1f}, {quartile['high']:.1f}]" if quartile else "-",
                f"{row['area']:.1f}",
                ", ".join(f"{score:.0f}" for score in row["end_by_seed"]),
            ]
        )
    heads = [
        "method",
        "frames",
        "seeds",
        "end: mean ± deviation",
        "interquartile mean [95 %]",
        "area",
        "end by seed",
    ]
    return _table(heads, rows)


def _comparisons(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    cells = []
    for row in rows:
        chance = row["probability_of_improvement"]
        cells.append(
            [
                f"{row['method']} beside {row['reference']}",
                f"{row['frames']:,}",
                f"{row['difference']:+.1f}",
                f"{chance['value']:.2f} [{chance['low']:.2f}, {chance['high']:.2f}]",
            ]
        )
    return _table(["comparison", "frames", "difference of end means", "P(a seed is better) [95 %]"], cells)


def _published(panel: Panel) -> str:
    if not panel.published:
        return ""
    rows = [
        [
            entry["algorithm"],
            entry["action_repeat"],
            entry["updates_per_frame"],
            entry["seeds"],
            "; ".join(
                f"{mean:.0f} ± {deviation:.0f} at {frame // 1000}k" for frame, mean, deviation in entry["points"]
            ),
        ]
        for entry in panel.published
    ]
    heads = ["published (grey crosses)", "action repeat", "updates per frame", "seeds", "mean ± deviation"]
    return _table(heads, rows)


def _table(heads: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _made_with(panels: list[Panel]) -> str:
    """Versions and devices of all runs, each distinct set once."""
    seen: dict[str, list[str]] = {}
    for method in (method for panel in panels for method in panel.methods):
        facts = ", ".join(f"{name} {value}" for name, value in method.versions.items() if value)
        seen.setdefault(facts, []).append(method.run.name)
    rows = "".join(
        f"<p class='note'>{escape(', '.join(runs))}: {escape(facts)}</p>" for facts, runs in seen.items()
    )
    return f"<h2>Made with</h2>{rows}" if rows else ""


def _reading() -> str:
    return (
        "<h2>How to read this</h2><p>A strong line is the mean over seeds of the mean actor's return, its shade "
        "the 95 % bootstrap interval of that mean, thin lines are single seeds. The end score of a seed is the "
        "mean of its evaluations in the last tenth of the frames. The interquartile mean leaves out the lowest and "
        "the highest quarter of the seeds. The area is the mean height of the curve. Published figures are as "
        "their authors reported them, with their own protocol. A claim holds, or does not, where the interval of "
        "P(a seed is better) lies on one side of a half; otherwise it is not yet decided.</p>"
    )
