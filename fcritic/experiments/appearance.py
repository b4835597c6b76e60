"""What the pictures of a report share, whatever draws them."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#444444")
"""Colours that differ also for colour-blind eyes (after Okabe and Ito)."""


def short_frames(frame: float) -> str:
    """As on an axis: 200k, 1.5M."""
    return f"{frame / 1e6:g}M" if frame >= 1e6 else f"{frame / 1e3:g}k" if frame >= 1e3 else f"{frame:g}"
