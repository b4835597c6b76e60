"""A ranking of policies as one HTML file: what is best and how sure that is, in one picture and a table.

It needs no script, no network and no font. Names are other people's text and are only ever shown as text.
"""

from html import escape
import math
from typing import Any

_SECURITY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

WIDTH, NAMES, MARGIN = 960, 300, 24
"""Of the picture: all, the column of names, and what is left free at the right."""

ROWS_WITH_NAMES = 80
"""With more policies than this, rows are thin and names stand in the table and under the pointer alone."""

LONGEST_NAME = 44
"""Letters of a name in the picture; of a longer one the end is shown, in which a run's policies differ."""

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6776; --line: #d9dee5; --paper: #ffffff;
  --sure: #0072b2; --unsure: #d55e00; --measured: #1c2430; --best: #e8f2fa }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa7b6; --line: #323c48; --paper: #151b22;
  --sure: #56b4e9; --unsure: #e69f00; --measured: #ffffff; --best: #1d2c3a } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 1000px; padding: 24px 20px 60px }
h1 { font-size: 24px; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere }
h2 { font-size: 17px; margin: 32px 0 8px }
p { margin: 6px 0; max-width: 75ch } .soft { color: var(--soft) } .warn { color: var(--unsure) }
figure { margin: 20px 0 0; overflow-x: auto }
svg { display: block; max-width: 100%; height: auto; min-width: 560px }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink) } svg .soft { fill: var(--soft) }
.grid { stroke: var(--line) } .sure { stroke: var(--sure); fill: var(--sure) }
.unsure { stroke: var(--unsure); fill: var(--paper) } line.unsure { stroke-dasharray: 4 3 }
.cross { stroke: var(--measured); stroke-width: 2 } .band { fill: var(--best) }
.key span { margin-right: 20px; white-space: nowrap }
.key svg { display: inline-block; vertical-align: middle; min-width: 0 }
.table { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: 5px 10px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top }
th { color: var(--soft); font-weight: 600 } td.n, th.n { text-align: right; white-space: nowrap }
td.name { overflow-wrap: anywhere; min-width: 14em }
"""


def page(report: dict[str, Any]) -> str:
    """Returns the whole file for the report of `fcritic rank`."""
    parts = [*_head(report), _figure(report)]
    if report["untrusted"]:
        parts += [
            "<h2>The data cannot judge these</h2>",
            "<p>They are not ranked: what follows is a guess. Each row says why.</p>",
            _table(report["untrusted"], report),
        ]
    if report["ranked"]:
        parts += ["<h2>Ranking</h2>", _table(report["ranked"], report)]
    parts += ["<h2>How this was found</h2>", *_method(report)]
    title = escape(f"Ranking of {report['policies']} policies")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
        f'content="{_SECURITY}"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}'
        f'</title><link rel="icon" href="data:,"><style>{STYLE}</style></head><body>{"".join(parts)}</body></html>'
    )


def _head(report: dict[str, Any]) -> list[str]:
    if not report["ranked"]:
        return [
            "<h1>These data do not show which policy is best</h1>",
            '<p class="warn">No policy stays where the data are. Record data with policies closer to these.</p>',
            _units(report),
        ]
    best = report["ranked"][0]
    parts = [
        f"<h1>Best: {escape(best['name'])}</h1>",
        f"<p>Its value is {number(best['value'])}{_certainty(report['ranked'])}.</p>",
        _units(report),
    ]
    low, high = _ends(best)
    if best["measured"] and best["low"] is not None and not low <= best["measured"]["value"] <= high:
        parts.append(
            f'<p class="warn">Measured it is {number(best["measured"]["value"])}, which lies outside of its '
            "interval: do not rely on this ranking.</p>"
        )
    if report["untrusted"]:
        parts.append(
            f'<p class="warn">{len(report["untrusted"])} of {report["policies"]} cannot be judged, see below.</p>'
        )
    return parts


def _certainty(ranked: list[dict[str, Any]]) -> str:
    best = ranked[0]
    if best["low"] is None:
        return "; a single critic has no interval"
    between = f", with 90 % between {number(best['low'])} and {number(best['high'])}"
    return f"{between}. The chance that it is the best of these is {share(best['chance_best'])}{_rivals(ranked)}"


def _ends(row: dict[str, Any]) -> tuple[float, float]:
    """Of its interval; of a single critic there is none."""
    return (row["value"], row["value"]) if row["low"] is None else (row["low"], row["high"])


def interval(row: dict[str, Any]) -> str:
    """An interval in words."""
    return "none" if row["low"] is None else f"{number(row['low'])} to {number(row['high'])}"


def _rivals(ranked: list[dict[str, Any]]) -> str:
    close = [row["name"] for row in ranked[1:] if (row["chance_best"] or 0) >= 0.1]
    if not close:
        return ""
    named = ", ".join(escape(name) for name in close[:3])
    return f"; it cannot be distinguished from {named}{f' and {len(close) - 3} more' if len(close) > 3 else ''}"


def _units(report: dict[str, Any]) -> str:
    return f'<p class="soft">{escape(report["unit"])}</p>'


def _figure(report: dict[str, Any]) -> str:
    rows = sorted([*report["ranked"], *report["untrusted"]], key=lambda row: -row["value"])
    named = len(rows) <= ROWS_WITH_NAMES
    step = 22 if named else max(3, 1600 // len(rows))
    left, right = (NAMES if named else MARGIN), WIDTH - MARGIN
    ends = [value for row in rows for value in (*_ends(row), row["value"])]
    ends += [value for row in rows if row["measured"] for value in _spread(row["measured"])]
    ends = [value for value in ends if math.isfinite(value)] or [0.0]
    ticks = _ticks(min(ends), max(ends))
    low, high = min(min(ends), ticks[0]), max(max(ends), ticks[-1])
    place = lambda value: left + (right - left) * (min(max(value, low), high) - low) / (high - low)
    bottom = 12 + step * len(rows)
    drawn = []
    if named and report["ranked"]:
        best = rows.index(report["ranked"][0])
        drawn.append(f'<rect class="band" x="0" y="{12 + step * best}" width="{WIDTH}" height="{step}"/>')
    for tick in ticks:
        x = f"{place(tick):.1f}"
        drawn.append(f'<line class="grid" x1="{x}" x2="{x}" y1="8" y2="{bottom}"/>')
        drawn.append(f'<text class="soft" x="{x}" y="{bottom + 18}" text-anchor="middle">{number(tick)}</text>')
    for index, row in enumerate(rows):
        drawn.append(_bar(row, place, 12 + step * (index + 0.5), step, named))
    drawn.append(
        f'<text class="soft" x="{(left + right) / 2:.0f}" y="{bottom + 38}" text-anchor="middle">'
        f"value per episode start, discount {report['discount']:g}</text>"
    )
    label = escape(f"Values of {len(rows)} policies with their 90 % intervals")
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {bottom + 46}" role="img" aria-label="{label}">{"".join(drawn)}</svg>'
        f"<figcaption>{_key(rows)}</figcaption></figure>"
    )


def _bar(row: dict[str, Any], place: Any, y: float, step: float, named: bool) -> str:
    kind = "sure" if row["trusted"] else "unsure"
    low, high, mid = (place(value) for value in (*_ends(row), row["value"]))
    parts = [
        f"<title>{escape(_sentence(row))}</title>",
        f'<rect x="0" y="{y - step / 2:.1f}" width="{WIDTH}" height="{step}" fill="transparent"/>',
        f'<line class="{kind}" stroke-width="{2.5 if named else 1.5}" x1="{low:.1f}" x2="{high:.1f}" y1="{y:.1f}" '
        f'y2="{y:.1f}"/>',
        f'<circle class="{kind}" cx="{mid:.1f}" cy="{y:.1f}" r="{4.5 if named else 2}" stroke-width="1.5"/>',
    ]
    if row["measured"]:
        start, end = (place(value) for value in _spread(row["measured"]))
        x = place(row["measured"]["value"])
        parts.append(
            f'<line class="cross" stroke-opacity="0.4" x1="{start:.1f}" x2="{end:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        for sign in (-1, 1):
            parts.append(
                f'<line class="cross" x1="{x - 5:.1f}" x2="{x + 5:.1f}" y1="{y - 5 * sign:.1f}" '
                f'y2="{y + 5 * sign:.1f}"/>'
            )
    if named:
        name = row["name"] if len(row["name"]) <= LONGEST_NAME else f"…{row['name'][-LONGEST_NAME:]}"
        soft = "" if row["trusted"] else ' class="soft"'
        parts.append(f'<text{soft} x="{NAMES - 14}" y="{y + 4:.1f}" text-anchor="end">{escape(name)}</text>')
    return f"<g>{''.join(parts)}</g>"


def _sentence(row: dict[str, Any]) -> str:
    text = f"{row['name']}: {number(row['value'])} (90 %: {interval(row)})"
    if row["measured"]:
        text += f", measured {number(row['measured']['value'])} ± {number(row['measured']['error'])}"
    return text if row["trusted"] else f"{text}; {row['reason']}"


def _key(rows: list[dict[str, Any]]) -> str:
    sign = lambda inside: f'<svg width="34" height="12" viewBox="0 0 34 12">{inside}</svg> '
    bar = lambda kind: (
        f'<line class="{kind}" stroke-width="2.5" x1="1" x2="33" y1="6" y2="6"/>'
        f'<circle class="{kind}" cx="17" cy="6" r="4.5" stroke-width="1.5"/>'
    )
    parts = [f"<span>{sign(bar('sure'))}value and 90 % interval</span>"]
    if not all(row["trusted"] for row in rows):
        parts.append(f"<span>{sign(bar('unsure'))}the data cannot judge it</span>")
    if any(row["measured"] for row in rows):
        cross = '<path class="cross" d="M12 1 22 11M12 11 22 1"/>'
        parts.append(f"<span>{sign(cross)}measured, with two standard errors</span>")
    return f'<p class="key soft">{"".join(parts)}</p>'


def _table(rows: list[dict[str, Any]], report: dict[str, Any]) -> str:
    measured = any(row["measured"] for row in [*report["ranked"], *report["untrusted"]])
    head = [("", True), ("policy", False), ("value", True), ("90 % interval", True), ("best", True)]
    head += [("measured", True)] if measured else []
    head += [("coverage", True), ("why it is trusted or not", False)]
    lines = ["".join(f"<th{' class=n' if right else ''}>{name}</th>" for name, right in head)]
    for row in rows:
        cells = [
            (str(row["rank"] or ""), "n"),
            (escape(row["name"]) + (" (draws its actions)" if row["stochastic"] else ""), "name"),
            (number(row["value"]), "n"),
            (interval(row), "n"),
            (share(row["chance_best"]) if row["trusted"] else "", "n"),
        ]
        if measured:
            found = row["measured"]
            cells.append((f"{number(found['value'])} ± {number(found['error'])}" if found else "", "n"))
        cells += [(number(row["coverage"]), "n"), (escape(row["reason"]), "")]
        lines.append("".join(f"<td{f' class={kind}' if kind else ''}>{text}</td>" for text, kind in cells))
    return f'<div class="table"><table>{"".join(f"<tr>{line}</tr>" for line in lines)}</table></div>'


def _method(report: dict[str, Any]) -> list[str]:
    lines = [report["data_text"], report["method_text"]]
    lines += [report["check_text"]] if report["check_text"] else []
    lines.append(
        "Coverage measures how much further a policy goes than the data: the lower, the closer it is to what was "
        "logged; infinite, the data say nothing about it."
    )
    return [f"<p>{escape(line)}</p>" for line in lines]


def _spread(measured: dict[str, float]) -> tuple[float, float]:
    return measured["value"] - 2 * measured["error"], measured["value"] + 2 * measured["error"]


def _ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Returns round numbers within a range."""
    span = high - low or max(1.0, abs(high))
    size = 10.0 ** math.floor(math.log10(span / most))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10, 20) if span / (size * factor) <= most)
    first = math.ceil(low / step)
    found = [step * place for place in range(first, math.floor(high / step) + 1)]
    return found if len(found) > 1 else [low - 0.5 * span, low + 0.5 * span]


def number(value: float | None) -> str:
    """A number with three or so digits that matter."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if abs(value) < 1000 else 0
    return f"{value:,.{min(digits, 6)}f}" if abs(value) >= 1e-5 else f"{value:.1e}"


def share(value: float | None) -> str:
    """A chance in percent."""
    if value is None:
        return ""
    return "< 1 %" if 0 < value < 0.01 else "> 99 %" if 0.99 < value < 1 else f"{100 * value:.0f} %"
