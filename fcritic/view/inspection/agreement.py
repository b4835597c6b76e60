"""How well predictions agree with measurements: their order, and their size."""

from typing import Any

from jaxtyping import Float
import numpy as np


def ranks(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Places in the order of size, from 1; equal values share the mean of theirs."""
    order = np.argsort(values, kind="stable")
    _, first, count = np.unique(values[order], return_index=True, return_counts=True)
    shared = np.repeat(first + (count + 1) / 2, count)
    found = np.empty(len(values))
    found[order] = shared
    return found


def correlation(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> float | None:
    """Pearson's; none where one of them does not vary."""
    a, b = a - a.mean(), b - b.mean()
    size = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / size) if size > 0 else None


def rank_correlation(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> float | None:
    """Spearman's: the correlation of the ranks. 1 means the same order, 0 none in common."""
    return correlation(ranks(a), ranks(b))


def agreement(predicted: Float[np.ndarray, " n"], measured: Float[np.ndarray, " n"]) -> dict[str, Any]:
    """Order (`rank`, `correlation`) and size: `bias`, `error` (root mean square) and the `slope` of the line
    that best tells measured from predicted; a calibrated critic has slope 1 and bias 0."""
    off, spread = predicted - measured, predicted - predicted.mean()
    slope = float(spread @ measured / (spread @ spread)) if spread @ spread > 0 else None
    return {
        "rank": rank_correlation(predicted, measured),
        "correlation": correlation(predicted, measured),
        "bias": float(off.mean()),
        "error": float(np.sqrt((off**2).mean())),
        "slope": slope,
    }


def principal(points: Float[np.ndarray, "n dims"]) -> tuple[Float[np.ndarray, "n 2"], list[float]]:
    """Points on their two principal components, and the share of the variance that each holds."""
    centred = points - points.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    flat = np.zeros((len(points), 2))
    kept = min(2, len(sizes))
    flat[:, :kept] = left[:, :kept] * sizes[:kept]
    total = float((sizes**2).sum()) or 1.0
    shares = [float(size**2) / total for size in sizes[:2]]
    return flat, shares + [0.0] * (2 - len(shares))
