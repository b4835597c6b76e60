"""Learning curves as SVG, drawn by hand: a page needs neither a script nor a library to show them."""

from html import escape
import math

from fcritic.experiments.appearance import line_of, short_frames
from fcritic.experiments.gather import Method, Panel

WIDTH, HEIGHT = 720, 400
LONGEST = 18
"""Letters of a name that fits beside the end of a line."""
LEFT, RIGHT, TOP, BOTTOM = 56, 150, 16, 44


class Scale:
    """From frames and returns to places in the picture."""

    def __init__(self, panel: Panel):
        self.last = max([float(method.frames[-1]) for method in panel.methods] or [1.0])
        heights = [value for method in panel.methods for value in method.values.ravel().tolist()]
        heights += [mean for entry in panel.published for frame, mean, _ in entry["points"] if frame <= self.last]
        self.ticks = ticks(min([0.0, *heights]), max([1e-9, *heights]))
        self.low, self.high = self.ticks[0], self.ticks[-1]

    def x(self, frame: float) -> float:
        """Place of a frame."""
        return LEFT + (WIDTH - LEFT - RIGHT) * frame / self.last

    def y(self, value: float) -> float:
        """Place of a return."""
        return TOP + (HEIGHT - TOP - BOTTOM) * (self.high - value) / (self.high - self.low or 1.0)


def curves(panel: Panel) -> str:
    """One panel: strong lines for means, shades for intervals, thin lines for seeds, crosses for published ones."""
    scale = Scale(panel)
    parts = [_axes(scale), *(_published(entry, scale) for entry in panel.published)]
    labels = []
    for method in panel.methods:
        label = str(method.place + 1) if needs_legend(panel) else method.run.method
        parts.append(_method(method, scale))
        labels.append((scale.y(float(method.values[:, -1].mean())), label, line_of(method.place)[0]))
    parts += _spread_labels(labels)
    title = escape(f"{panel.name}: return against frames")
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}"><title>{title}</title>'
        f"{''.join(parts)}</svg>"
    )


def needs_legend(panel: Panel) -> bool:
    """Whether names are too long to stand at the ends of their lines, so that numbers stand there."""
    return any(len(method.run.method) > LONGEST for method in panel.methods)


def legend(panel: Panel) -> str:
    """The names to these numbers, each with a stroke of its line."""
    if not needs_legend(panel):
        return ""
    items = []
    for method in panel.methods:
        stroke = _stroke(method.place)
        sample = f'<svg class="sample" viewBox="0 0 30 10"><path d="M0,5h30" {stroke} stroke-width="2.5"/></svg>'
        items.append(f"<li>{sample} {method.place + 1} {escape(method.run.method)}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def _stroke(place: int) -> str:
    colour, dashes = line_of(place)
    cut = f' stroke-dasharray="{" ".join(map(str, dashes))}"' if dashes else ""
    return f'stroke="{colour}" fill="none"{cut}'


def _method(method: Method, scale: Scale) -> str:
    colour = line_of(method.place)[0]
    frames, bands = method.frames.tolist(), method.bands()
    path = lambda values: " ".join(
        f"{scale.x(frame):.1f},{scale.y(value):.1f}" for frame, value in zip(frames, values, strict=True)
    )
    upper, lower = [band.high for band in bands], [band.low for band in bands]
    around = f"{path(upper)} {' '.join(reversed(path(lower).split()))}"
    seeds = "".join(
        f'<polyline class="seed" points="{path(values)}" stroke="{colour}"/>' for values in method.values.tolist()
    )
    mean = path([band.value for band in bands])
    return (
        f'<polygon points="{around}" fill="{colour}" opacity="0.15"/>{seeds}'
        f'<polyline points="{mean}" {_stroke(method.place)} stroke-width="2.5"/>'
    )


def _published(entry: dict, scale: Scale) -> str:
    """Crosses in grey, with their name where the mouse rests."""
    parts = []
    for frame, mean, deviation in entry["points"]:
        if frame <= scale.last:
            x, y = scale.x(frame), scale.y(mean)
            text = f"{entry['algorithm']}: {mean:.0f} ± {deviation:.0f} at {frame:,} frames, published"
            cross = f"M{x - 4:.1f},{y - 4:.1f}l8,8m0,-8l-8,8"
            parts.append(f'<path class="published" d="{cross}"><title>{escape(text)}</title></path>')
    return "".join(parts)


def _axes(scale: Scale) -> str:
    parts = []
    for value in scale.ticks:
        y = scale.y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>')
    for frame in [tick for tick in ticks(0.0, scale.last) if tick <= scale.last]:
        x = scale.x(frame)
        parts.append(
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{short_frames(frame)}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">frames, summed over environments</text>'
    )
    return "".join(parts)


def _spread_labels(labels: list[tuple[float, str, str]]) -> list[str]:
    """Names at the ends of the lines, moved apart where they would overlap."""
    parts, last = [], -math.inf
    for y, name, colour in sorted(labels):
        last = max(y, last + 15)
        parts.append(f'<text x="{WIDTH - RIGHT + 8}" y="{last + 4:.1f}" fill="{colour}">{escape(name)}</text>')
    return parts


def ticks(low: float, high: float) -> list[float]:
    """Round numbers, about five, from one that is not above `low` to one that is not below `high`."""
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]
