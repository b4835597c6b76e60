"""The ensembles that are compared, by name. What is not named is the default of `Ensemble` in every one."""

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
"""`functional` trains every critic on all actors (`alg-nn`), `functional-own` on its own actor alone, as line 4 of
`alg-ensemble-algorithm` is printed; `functional-first` also leaves out the second term of its actors' gradient."""
REMEDIES: dict[str, Ensemble] = {
    "functional-all-first": Ensemble("functional", second_term=False),
    "functional-near": Ensemble("functional", evaluated="own", neighbours=16, ridge=0.01),
}
"""Tried where functional critics fall behind: all actors without the second term, and own actor and policies near
it, which are never run, with the second term."""
PRIORS: tuple[PriorKind, ...] = ("none", "prior", "anchored")


@dataclasses.dataclass(frozen=True)
class Method:
    """An ensemble with its options."""

    kind: str
    """One of `ENSEMBLES` or `REMEDIES`."""
    prior: PriorKind
    mask: bool = False
    per_step: bool = False

    @property
    def name(self) -> str:
        """Such as `functional+prior+masks, per step`; without a prior just the kind."""
        parts = [self.kind, *([self.prior] if self.prior != "none" else []), *(["masks"] if self.mask else [])]
        return "+".join(parts) + (", per step" if self.per_step else "")

    @property
    def ensemble(self) -> Ensemble:
        """What is compiled."""
        return (ENSEMBLES | REMEDIES)[self.kind]

    def options(self, scale: float = 1.0) -> Variant:
        """Its numbers."""
        return variant(self.prior, self.mask, self.per_step, scale)


def main_methods() -> list[Method]:
    """One member per episode, no masks: every kind with every prior."""
    return [Method(kind, prior) for kind in ENSEMBLES for prior in PRIORS]


def brief_methods(prior: PriorKind) -> list[Method]:
    """Every kind without a prior, with this one, and with this one and a new member at each step."""
    options = (("none", False), (prior, False), (prior, True))
    return [Method(kind, each, per_step=per_step) for kind in ENSEMBLES for each, per_step in options]


def masked_methods(*priors: PriorKind) -> list[Method]:
    """Every kind with these priors and bootstrap masks."""
    return [Method(kind, prior, mask=True) for kind in ENSEMBLES for prior in priors]
