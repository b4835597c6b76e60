"""The findings as one HTML file that needs nothing else: no network, no library, no font."""

from importlib.resources import files
import json
from typing import Any

_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"


def page(report: dict[str, Any]) -> str:
    """The whole file."""
    text = lambda name: (files("fcritic.view.inspection") / name).read_text(encoding="utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
        f'content="{_POLICY}"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>inspect</title><link rel="icon" href="data:,"><style>{text("view.css")}</style></head>'
        f"<body>{text('view.html')}"
        f'<script type="application/json" id="data">{_data(report)}</script>'
        f"<script>{text('drawing.js')}\n{text('view.js')}</script></body></html>"
    )


def _data(report: dict[str, Any]) -> str:
    """JSON that cannot end its element, whatever names it holds."""
    return json.dumps(_rounded(report), allow_nan=False).replace("<", "\\u003c")


def _rounded(value: Any) -> Any:
    """Six digits are enough for a picture."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value
