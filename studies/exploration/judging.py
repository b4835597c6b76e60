"""When one method counts as better than another: the gap of their means is more than its uncertainty."""

import dataclasses

from jaxtyping import Float
import numpy as np

SURE = 2.0
"""Standard errors that a gap must exceed."""


@dataclasses.dataclass(frozen=True)
class Gap:
    """The difference of two means over seeds, with its standard error."""

    first: float
    second: float
    error: float

    @property
    def below(self) -> bool:
        """The first is smaller, and surely so."""
        return self.second - self.first > SURE * self.error

    @property
    def above(self) -> bool:
        """The first is larger, and surely so."""
        return self.first - self.second > SURE * self.error

    def figures(self, first: str, second: str) -> dict[str, float]:
        """For a claim."""
        return {first: self.first, second: self.second, "standard error of the gap": self.error}


def gap(first: Float[np.ndarray, " seeds"], second: Float[np.ndarray, " seeds"]) -> Gap:
    """Seeds are independent between methods, also where they have the same number."""
    spread = first.var(ddof=1) / len(first) + second.var(ddof=1) / len(second)
    return Gap(float(first.mean()), float(second.mean()), float(np.sqrt(spread)))
