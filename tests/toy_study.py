"""A study for tests: two claims, one of them false."""

from pathlib import Path

import numpy as np

from fcritic.results.plots import panels
from fcritic.study.spec import Findings, Study, Trainings, judged


class Toy(Study):
    """One number beside another."""

    name = "toy"
    question = "Is one less than the other?"
    shown = ("points",)

    def find(self, runs: Trainings, quick: bool) -> Findings:
        low, high = (1.0, 2.0) if quick else (2.0, np.inf)
        verdicts = [
            judged("low < high", low < high, {"low": low, "high": high}, "a label", "paper"),
            judged("high < low", high < low, {"gap": [low, high]}),
        ]
        return Findings(
            verdicts, [{"seed": 0, "low": low, "high": high}], {"points": [low, high]}, ["seen by hand"]
        )

    def draw(self, findings: Findings, path: Path) -> None:
        with panels(path) as (axis,):
            axis.plot(findings.plot["points"])


STUDY = Toy()
