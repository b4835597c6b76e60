"""The ensembles that are compared, by name; everything unnamed is a default of `Ensemble`."""

import dataclasses

from fcritic.exploration.ensembles import Ensemble, PriorKind, Variant, variant

ENSEMBLES: dict[str, Ensemble] = {
    "shared": Ensemble("shared"),
    "independent": Ensemble("independent"),
    "actors": Ensemble("actors"),
    "functional": Ensemble("functional"),
    "functional-own": Ensemble("functional", evaluated="own"),
    "functional-first": Ensemble("functional", evaluated="own", second_term=False),
}
"""`functional` trains every critic on all actors (`alg-nn`), `functional-own` only on its own, as line 4 of
`alg-ensemble-algorithm` is printed. `functional-first` also omits the second term of its actors' gradient."""
REMEDIES: dict[str, Ensemble] = {
    "functional-all-first": Ensemble("functional", second_term=False),
    "functional-near": Ensemble("functional", evaluated="own", neighbours=16, ridge=0.01),
}
"""Remedies for functional critics that fall behind: all actors without the second term, and, with the second term,
the own actor and policies near it, which are never run."""
PRIORS: tuple[PriorKind, ...] = ("none", "prior", "anchored")


@dataclasses.dataclass(frozen=True)
class Method:
    """A named ensemble with its options."""

    kind: str
    """One of `ENSEMBLES` or `REMEDIES`."""
    prior: PriorKind
    mask: bool = False
    per_step: bool = False

    @property
    def name(self) -> str:
        """A name such as `functional+prior+masks, per step`; without a prior the kind alone."""
        parts = [self.kind, *([self.prior] if self.prior != "none" else []), *(["masks"] if self.mask else [])]
        return "+".join(parts) + (", per step" if self.per_step else "")

    @property
    def ensemble(self) -> Ensemble:
        """The ensemble, which is compiled once."""
        return (ENSEMBLES | REMEDIES)[self.kind]

    def options(self, scale: float = 1.0) -> Variant:
        """Returns its numbers."""
        return variant(self.prior, self.mask, self.per_step, scale)


def main_methods() -> list[Method]:
    """Returns every kind with every prior, with one member per episode and without masks."""
    return [Method(kind, prior) for kind in ENSEMBLES for prior in PRIORS]


def brief_methods(prior: PriorKind) -> list[Method]:
    """Returns every kind without a prior, with this one, and with this one and a new member at each step."""
    options = (("none", False), (prior, False), (prior, True))
    return [Method(kind, each, per_step=per_step) for kind in ENSEMBLES for each, per_step in options]


def masked_methods(*priors: PriorKind) -> list[Method]:
    """Returns every kind with these priors and bootstrap masks."""
    return [Method(kind, prior, mask=True) for kind in ENSEMBLES for prior in priors]
