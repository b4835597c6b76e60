"""When one method counts as better than another: the gap of their means is more than its uncertainty."""

import dataclasses

from jaxtyping import Float
import numpy as np
from scipy.stats import t

SURE = 0.95
"""Level of the two-sided test (Welch) by which a gap counts: fewer seeds must lie further apart."""


@dataclasses.dataclass(frozen=True)
class Gap:
    """The difference of two means over seeds, with its standard error."""

    first: float
    second: float
    error: float
    errors_needed: float
    """Standard errors that the gap must exceed: 4.3 for two independent sets of 2 seeds, 2.1 for 10."""

    @property
    def below(self) -> bool:
        """The first is smaller, and surely so."""
        return self.second - self.first > self.errors_needed * self.error

    @property
    def above(self) -> bool:
        """The first is larger, and surely so."""
        return self.first - self.second > self.errors_needed * self.error

    def figures(self, first: str, second: str) -> dict[str, float]:
        """For a claim."""
        return {first: self.first, second: self.second, "standard error of the gap": self.error}


def gap(first: Float[np.ndarray, " seeds"], second: Float[np.ndarray, " seeds"]) -> Gap:
    """Seeds are independent between methods, also where they have the same number."""
    parts = np.array([first.var(ddof=1) / len(first), second.var(ddof=1) / len(second)])
    spread = float(parts.sum())
    freedom = spread**2 / float((parts**2 / [len(first) - 1, len(second) - 1]).sum()) if spread else np.inf
    return Gap(float(first.mean()), float(second.mean()), spread**0.5, float(t.ppf((1 + SURE) / 2, freedom)))
