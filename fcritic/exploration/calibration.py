"""How far the curves that an ensemble believes in are from the exact posterior's."""

from jaxtyping import Float
import numpy as np

Curves = Float[np.ndarray, "_ grid"]

LEVELS = (np.arange(1000) + 0.5) / 1000


def measures(believed: Curves, exact: Curves, grid: Float[np.ndarray, " grid"]) -> dict[str, float]:
    """All measures, the first four as multiples of the posterior's own spread where they have its unit.

    `mean_error`, `std_error`: root mean square over policies. `std_ratio`: spread over the posterior's, 1 is right.
    `wasserstein`: distance of the distributions of J(pi_p), averaged over policies. `correlation_error`: root mean
    square difference of correlations between policies. `argmax_distance`: distance between the distributions of the
    best policy, in units of p.
    """
    unit = np.sqrt(np.mean(exact.var(axis=0)))
    mean_gap = believed.mean(axis=0) - exact.mean(axis=0)
    std_gap = believed.std(axis=0) - exact.std(axis=0)
    best = (grid[each.argmax(axis=1)] for each in (believed, exact))
    return {
        "mean_error": float(np.sqrt(np.mean(mean_gap**2)) / unit),
        "std_error": float(np.sqrt(np.mean(std_gap**2)) / unit),
        "std_ratio": float(believed.std(axis=0).mean() / exact.std(axis=0).mean()),
        "wasserstein": float(np.mean(wasserstein(believed, exact)) / unit),
        "correlation_error": float(np.sqrt(np.mean((correlations(believed) - correlations(exact)) ** 2))),
        "argmax_distance": float(wasserstein(*(each[:, None] for each in best))[0]),
    }


def wasserstein(first: Curves, second: Curves) -> Float[np.ndarray, " grid"]:
    """W_1 of two samples at each policy: the mean gap between their quantiles."""
    quantiles = (np.quantile(each, LEVELS, axis=0, method="inverted_cdf") for each in (first, second))
    return np.mean(np.abs(np.subtract(*quantiles)), axis=0)


def correlations(curves: Curves) -> Float[np.ndarray, "grid grid"]:
    """Between policies, over draws; zero where the draws do not differ."""
    centred = curves - curves.mean(axis=0)
    length = np.sqrt((centred**2).sum(axis=0))
    flat = length < 1e-9 * max(1.0, float(np.abs(curves).max()))
    product = (
        centred.T @ centred / np.where(np.outer(flat, flat) | flat | flat[:, None], 1, np.outer(length, length))
    )
    return np.where(flat | flat[:, None], 0.0, product)
