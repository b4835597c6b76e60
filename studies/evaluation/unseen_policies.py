"""One critic values policies that it has never met, from logged data alone: six tasks, against a critic for each.

`gathering` makes policies with known values and logs, `fitting` the values that each method comes to, both in the
folder `evaluation` below that of the runs; what is there already is not made again. Measures are those of the DOPE
protocol (Fu et al., 2021): rank correlation, regret of the best k, absolute error.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np

from studies.evaluation import fitting

GROUPS = ("unseen", "known", "foreign")
METHODS = ("functional", "blind", "fqe", "fqe_3x", "fqe_10x", "fqe_best", "nearest")
"""`fqe`: one critic for each policy after as many TD rows for each as the functional critics had for each policy
that they value; `fqe_3x` and `fqe_10x`: after three and ten times as many; `fqe_best`: the one of these with the
highest mean rank correlation, which only the truth can tell; `nearest`: the mean return of the ten logged episodes
whose actions are nearest to those of the policy; `blind`: the functional critic without its code."""
FQE = dict(zip(("fqe", "fqe_3x", "fqe_10x"), fitting.FQE_STEPS, strict=True))
MEASURES = ("rank", "regret1", "regret5", "error", "slope")
FEWEST = 5
"""Policies of a group that can be ranked."""
QUARTER = 0.25
"""Errors above this share of the range of values are those that a trust mark must find."""

Arrays = dict[str, np.ndarray]


def measures(truth: np.ndarray, value: np.ndarray, span: float) -> dict[str, float]:
    """Returns the five measures of some values; regrets and the error in units of `span`."""
    order = np.argsort(-value, kind="stable")
    regret = lambda k: float(truth.max() - truth[order[:k]].max()) / span
    spread = float(value.var())
    slope = float(((value - value.mean()) * (truth - truth.mean())).mean()) / spread if spread > 0 else float("nan")
    return {
        "rank": rank_correlation(truth, value),
        "regret1": regret(1),
        "regret5": regret(5),
        "error": float(np.abs(value - truth).mean()) / span,
        "slope": slope,
    }


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Returns Spearman's correlation, with mean ranks for ties; 0 where one side is constant."""
    ranks = [_ranks(each) for each in (first, second)]
    if min(each.std() for each in ranks) == 0:
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(value: np.ndarray) -> np.ndarray:
    _, place, count = np.unique(value, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


def area_under_roc(score: np.ndarray, found: np.ndarray) -> float:
    """Returns the chance that a score is higher where something is to be found than where not; NaN without both."""
    if found.all() or not found.any():
        return float("nan")
    ranks = _ranks(score)
    below = ranks[found].sum() - found.sum() * (found.sum() + 1) / 2
    return float(below / (found.sum() * (~found).sum()))


class Evidence:
    """What was said of the policies of a task from one kind of logs, beside the truth."""

    def __init__(self, rows: list[dict[str, Any]]):
        policies = sorted({str(row["policy"]) for row in rows})
        place = {name: number for number, name in enumerate(policies)}
        self.names = np.array(policies)
        self.truth, self.noise = np.full((2, len(policies)), np.nan)
        self._said: dict[tuple[str, int], Said] = {}
        for row in rows:
            number, key = place[str(row["policy"])], (str(row["method"]), int(row["split"]))
            self.truth[number], self.noise[number] = float(row["truth"]), float(row["noise"])
            said = self._said.setdefault(key, Said.nothing(len(policies)))
            said.note(number, row)
        self.span = float(np.ptp(self.truth))
        self.splits = sorted(split for method, split in self._said if method == "functional")
        self.rivals = [split for split in self.splits if all((name, split) in self._said for name in FQE)]

    def said(self, method: str, split: int) -> "Said | None":
        """Returns what a method says, None where it was not fitted."""
        return self._said.get((self.best if method == "fqe_best" else method, split))

    @functools.cached_property
    def best(self) -> str:
        """The FQE with the highest mean rank correlation over groups and splits."""
        found = lambda method: [row["rank"] for group in GROUPS for row in self.judge(method, group, True)]
        return max(FQE, key=lambda method: np.mean(found(method)))

    def judge(self, method: str, group: str, alike: bool) -> list[dict[str, float]]:
        """Returns the measures of a method on a group, by split; `alike`: only on policies and splits of FQE."""
        found = []
        for split in self.rivals if alike or method.startswith("fqe") else self.splits:
            said, ours = self.said(method, split), self.said("functional", split)
            if said is None or ours is None:
                continue
            who = (ours.group == group) & ~np.isnan(said.value)
            if alike:
                rival = self.said("fqe", split)
                who &= ~np.isnan(rival.value) if rival else False
            if who.sum() >= FEWEST:
                told = measures(self.truth[who], said.value[who], self.span)
                found.append({"split": split, "policies": int(who.sum()), **told})
        return found

    def table(self, alike: bool) -> dict[str, dict[str, dict[str, float]]]:
        """Returns the measures by group and method, means over splits."""
        found: dict[str, dict[str, dict[str, float]]] = {}
        for group in GROUPS:
            for method in METHODS if self.rivals else [name for name in METHODS if not name.startswith("fqe")]:
                if rows := self.judge(method, group, alike):
                    means = {name: float(np.mean([row[name] for row in rows])) for name in MEASURES}
                    counts = {"policies": rows[0]["policies"], "splits": len(rows)}
                    found.setdefault(group, {})[method] = means | counts
        return found

    def trust(self) -> dict[str, np.ndarray]:
        """Returns marks, coverage, spread, errors (in ranges of values) and whether intervals hold."""
        found: dict[str, list[np.ndarray]] = {}
        for split in self.splits:
            said = self._said["functional", split]
            noise = 1.645 * self.noise  # the truth itself is a mean of a few episodes
            inside = (said.low - noise <= self.truth) & (self.truth <= said.high + noise)
            told = {name: getattr(said, name) for name in ("trusted", "coverage", "spread", "group")}
            told |= {"error": np.abs(said.value - self.truth) / self.span, "inside": inside}
            for name, value in told.items():
                found.setdefault(name, []).append(value)
        return {name: np.concatenate(parts) for name, parts in found.items()}


@dataclasses.dataclass
class Said:
    """What one method says of all policies of a task, NaN where it says nothing."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    coverage: np.ndarray
    spread: np.ndarray
    trusted: np.ndarray
    group: np.ndarray
    td_rows: float = 0.0
    seconds: float = 0.0

    @staticmethod
    def nothing(policies: int) -> "Said":
        """Returns the answer of a method that says nothing of any policy."""
        return Said(*np.full((5, policies), np.nan), np.zeros(policies, bool), np.full(policies, "", "U16"))

    def note(self, number: int, row: dict[str, Any]) -> None:
        """Takes over a row of the raw figures."""
        for name in ("value", "low", "high", "coverage", "spread"):
            getattr(self, name)[number] = float(row[name]) if row[name] != "" else np.nan
        self.trusted[number] = str(row["trusted"]) == "True"
        self.group[number] = row["group"]
        self.td_rows, self.seconds = float(row["td_rows"]), float(row["seconds"])


def raw_rows(folder: Path, task: str, logs: str) -> list[dict[str, Any]]:
    """Returns what all fits in a folder say of each policy, a row each."""
    rows = []
    for name, job in fitting.FITS.items():
        for split in range(job.splits):
            file = fitting.file_of(folder, task, name, split)
            if job.logs != logs or not file.is_file():
                continue
            with np.load(file) as opened:
                arrays = dict(opened)
            kind = name.removesuffix(f" {logs}")
            method = next((label for label, steps in FQE.items() if kind == f"fqe-{steps}"), kind)
            facts = {"task": task, "logs": logs, "split": split}
            work = {"td_rows": int(arrays["td_rows"]), "seconds": round(float(arrays["fit_seconds"]), 1)}
            for place, number in enumerate(arrays["policy"]):
                of_policy = {
                    "policy": str(arrays["names"][number]),
                    "group": str(arrays["groups"][number]),
                    "truth": float(arrays["truth"][number]),
                    "noise": float(arrays["noise"][number]),
                }
                told = {name: float(arrays[name][place]) for name in ("low", "high", "coverage", "spread")}
                said = {"value": float(arrays["heads"][place].mean()), **told}
                trusted = bool(arrays["trusted"][place])
                rows.append(facts | {"method": method} | of_policy | said | {"trusted": trusted} | work)
                if method == "functional":
                    near = {"value": float(arrays["nearest"][number]), **dict.fromkeys(told, ""), "trusted": ""}
                    rows.append(facts | {"method": "nearest"} | of_policy | near | dict.fromkeys(work, 0))
    return rows
