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
    "never refreshing": ("C2", "-."),
    "on-policy actor-critic": ("C1", "-"),
    "refreshing every step": ("C1", "--"),
    "Off-PAC": ("C3", "-"),
    "emphatic actor-critic": ("C3", "--"),
}


def draw(data: dict[str, Any], path: Path) -> None:
    """A row for each problem: gap and squared gradient against samples; beside them the sweep and the floor."""
    with panels(path, 3, "Algorithm 3 and its rivals", width=5.0, rows=2) as axes:
        for row, place in enumerate(data["curves"]):
            _race(axes[3 * row], data["curves"][place], "gap")
            _race(axes[3 * row + 1], data["curves"][place], "squared gradient")
            axes[3 * row].set_ylabel("J* - J, share of the first gap")
            axes[3 * row].axhline(data["goal"], color="k", lw=0.8, ls=":")
            axes[3 * row + 1].set_ylabel("squared gradient of J")
            for axis in axes[3 * row : 3 * row + 2]:
                axis.set_title(f"{place}: mean over seeds, band from 10 to 90 %", fontsize=9)
        handles, labels = axes[0].get_legend_handles_labels()
        axes[0].figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
        _sweep(axes[2], data)
        _floor(axes[5], data["floor"])


def _race(axis, curves: dict[str, dict], name: str) -> None:
    for method, (colour, line) in STYLES.items():
        if method in curves:
            curve = {key: np.asarray(values) for key, values in curves[method].items()}
            axis.loglog(curve["samples"], curve[name], color=colour, linestyle=line, lw=1.5, label=method)
            band = (curve[f"{name}, low"], curve[f"{name}, high"])
            axis.fill_between(curve["samples"], *band, color=colour, alpha=0.08, lw=0)
    axis.set_xlabel("transitions drawn")


def _sweep(axis, data: dict[str, Any]) -> None:
    """Samples to the goal against the drift threshold, a line for each kappa and kind of data."""
    rows = data["sweep"]
    kappas = sorted({float(row["kappa"]) for row in rows})
    for kind, line in (("fresh", "-"), ("kept", "--")):
        for index, kappa in enumerate(kappas):
            shown = [row for row in rows if row["data"] == kind and float(row["kappa"]) == kappa]
            label = f"kappa {'infinite' if math.isinf(kappa) else f'{kappa:g}'}" if kind == "fresh" else None
            need = [row["samples to goal"] if math.isfinite(row["samples to goal"]) else np.nan for row in shown]
            axis.loglog(
                [row["threshold"] for row in shown], need, line, marker="o", ms=3, color=f"C{index}", label=label
            )
    rival = data["methods"]["RiverSwim"]["refreshing every step"]["samples to goal"]
    axis.axhline(rival, color="k", lw=1, ls=":", label="refreshing every step")
    axis.plot([], [], "k-", label="fresh data")
    axis.plot([], [], "k--", label="kept data")
    _plain_ticks(axis, sorted({row["threshold"] for row in rows}))
    axis.set_xlabel("drift threshold")
    axis.set_ylabel("transitions until a tenth of the gap is left")
    axis.set_title("RiverSwim: median over seeds, no point where most fail", fontsize=9)
    axis.set_ylim(top=8 * rival)  # room for the legend
    axis.legend(frameon=False, fontsize=7, ncols=2, loc="upper center")


def _floor(axis, floor: dict[str, Any]) -> None:
    errors = np.asarray(floor["errors"])
    axis.loglog(errors, floor["critic"], "o-", color="C0", label="critic's weight error")
    axis.loglog(errors, floor["features"], "s-", color="C1", label="features' error in Q")
    for name, colour in (("critic", "C0"), ("features", "C1")):
        axis.loglog(errors, floor[name][0] * (errors / errors[0]) ** 2, ":", color=colour, lw=1)
    axis.plot([], [], "k:", lw=1, label="slope 2")
    _plain_ticks(axis, errors[::2])
    axis.set_xlabel("size of the error")
    axis.set_ylabel("squared gradient that is left")
    axis.set_title("periodic policies: the floor", fontsize=9)
    axis.legend(frameon=False, fontsize=8)


def _plain_ticks(axis, places) -> None:
    """Labels at these places alone, which powers of ten would crowd."""
    axis.tick_params(axis="x", which="minor", labelbottom=False)
    axis.set_xticks(list(places), [f"{place:g}" for place in places])
