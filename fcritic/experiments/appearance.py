"""What the pictures of a report share, whatever draws them."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#444444")
"""Colours that differ also for colour-blind eyes (after Okabe and Ito)."""

DASHES = ((), (7, 4), (2, 3))
"""Lengths of strokes and gaps; methods beyond the colours have the same again, in other strokes."""


def line_of(place: int) -> tuple[str, tuple[int, ...]]:
    """Colour and dashes of the method with this place in its panel."""
    return COLOURS[place % len(COLOURS)], DASHES[place // len(COLOURS) % len(DASHES)]


def short_frames(frame: float) -> str:
    """As on an axis: 200k, 1.5M."""
    return f"{frame / 1e6:g}M" if frame >= 1e6 else f"{frame / 1e3:g}k" if frame >= 1e3 else f"{frame:g}"
