"""The picture of the experiment on Theorem 2."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from fcritic.theory.pictures import panels

STYLES = {
    "dual trust": ("C0", "-"),
    "dual trust, data kept": ("C0", "--"),
    "Delta > 2, as printed": ("C4", "-"),
    "on-policy actor-critic": ("C1", "-"),
    "refreshing every step": ("C1", "--"),
    "never refreshing": ("C2", "-"),
    "Off-PAC": ("C3", "-"),
    "emphatic actor-critic": ("C3", "--"),
}


def draw(data: dict[str, Any], path: Path) -> None:
    """Gap and squared gradient against samples, samples to the goal over both thresholds, and the floor."""
    with panels(path, 4, "Algorithm 3 and its rivals", width=4.3) as axes:
        for axis, name in zip(axes, ("gap", "squared gradient"), strict=False):
            for method, (colour, line) in STYLES.items():
                curve = {key: np.asarray(values) for key, values in data["curves"][method].items()}
                axis.loglog(curve["samples"], curve[name], color=colour, linestyle=line, lw=1.5, label=method)
                axis.fill_between(
                    curve["samples"], curve[f"{name}, low"], curve[f"{name}, high"], color=colour, alpha=0.08, lw=0
                )
            axis.set_xlabel("transitions drawn")
        axes[0].set_ylabel("J* - J, share of the first gap")
        axes[0].axhline(data["goal"], color="k", lw=0.8, ls=":")
        axes[1].set_ylabel("squared gradient of J")
        axes[1].legend(frameon=False, fontsize=7, loc="lower left")
        _sweep(axes[2], data)
        _floor(axes[3], data["floor"])


def _sweep(axis, data: dict[str, Any]) -> None:
    """Samples to the goal against the drift threshold, a line for each kappa and kind of data."""
    rows = data["sweep"]
    kappas = sorted({float(row["kappa"]) for row in rows})
    for kind, line in (("fresh", "-"), ("kept", "--")):
        for index, kappa in enumerate(kappas):
            shown = [row for row in rows if row["data"] == kind and float(row["kappa"]) == kappa]
            label = f"kappa {'infinite' if math.isinf(kappa) else f'{kappa:g}'}" if kind == "fresh" else None
            points = [[row["threshold"] for row in shown], [row["samples to goal"] for row in shown]]
            axis.loglog(*points, line, marker="o", ms=3, color=f"C{index}", label=label)
    rival = data["methods"]["refreshing every step"]["samples to goal"]
    axis.axhline(rival, color="k", lw=1, ls=":", label="refreshing every step")
    axis.plot([], [], "k-", label="fresh data")
    axis.plot([], [], "k--", label="kept data")
    axis.set_xlabel("drift threshold")
    axis.set_ylabel("transitions until a tenth of the gap is left")
    axis.legend(frameon=False, fontsize=7)


def _floor(axis, floor: dict[str, Any]) -> None:
    errors = np.asarray(floor["errors"])
    axis.loglog(errors, floor["critic"], "o-", color="C0", label="critic's weight error")
    axis.loglog(errors, floor["features"], "s-", color="C1", label="features' error in Q")
    for name, colour in (("critic", "C0"), ("features", "C1")):
        axis.loglog(errors, floor[name][-1] * (errors / errors[-1]) ** 2, ":", color=colour, lw=1)
    axis.plot([], [], "k:", lw=1, label="slope 2")
    axis.set_xlabel("size of the error")
    axis.set_ylabel("squared gradient that is left")
    axis.legend(frameon=False, fontsize=8)
