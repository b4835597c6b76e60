"""What the claims of an experiment come to, as far as its runs have gone."""

from typing import Literal, NamedTuple

from fcritic.experiments.gather import ENOUGH, Panel
from fcritic.experiments.spec import Claim, Experiment

Outcome = Literal["holds", "does not hold", "not yet decided"]


class Verdict(NamedTuple):
    """A claim in one panel, and why it is judged so."""

    claim: str
    panel: str
    outcome: Outcome
    why: str


def judge_all(experiment: Experiment, panels: list[Panel]) -> list[Verdict]:
    """Every claim in every panel that has both of its methods, trained or missing."""
    return [
        judge(claim, panel)
        for claim in experiment.claims
        for panel in panels
        if {claim.better, claim.worse} <= {*panel.missing, *(method.run.method for method in panel.methods)}
    ]


def judge(claim: Claim, panel: Panel) -> Verdict:
    """Decided where the interval of P(a seed is better) lies on one side of a half."""
    given = lambda outcome, why: Verdict(claim.text, panel.name, outcome, why)
    missing = [name for name in (claim.better, claim.worse) if name in panel.missing]
    if missing:
        return given("not yet decided", f"{' and '.join(missing)} not run")
    methods = {method.run.method: method for method in panel.methods}
    both = [methods[claim.better], methods[claim.worse]]
    if min(len(method.values) for method in both) < ENOUGH:
        return given("not yet decided", f"fewer than {ENOUGH} seeds")
    row = panel.compare(*both)
    chance = row["probability_of_improvement"]
    why = f"{row['ours']:.0f} against {row['theirs']:.0f} at {row['frames']:,} frames, " + (
        f"P(a seed is better) {chance['value']:.2f} [{chance['low']:.2f}, {chance['high']:.2f}]"
    )
    if not all(method.finished for method in both):
        why += ", not finished"
    if chance["low"] > 0.5:
        return given("holds", why)
    return given("does not hold" if chance["high"] < 0.5 else "not yet decided", why)
