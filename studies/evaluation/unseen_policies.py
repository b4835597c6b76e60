"""One critic values policies that it has never met, from logged data alone: six tasks, against a critic for each.

`gathering` makes policies with known values and logs, `fitting` the values that each method comes to. Both take
hours and go on where they were stopped; this study judges what they have made so far:

    python studies/evaluation/gathering.py runs/evaluation
    python studies/evaluation/fitting.py runs/evaluation runs/evaluation/fits
    fcritic experiment run unseen-policies --dir runs --record

Measures are those of the DOPE protocol (Fu et al., 2021): rank correlation, regret of the best k, absolute error.
"""

import csv
import dataclasses
import functools
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from fcritic.errors import UsageError
from fcritic.offline.evaluation import AGREED, COVERED
from fcritic.results.plots import COLOURS, panels
from fcritic.study.spec import Findings, Section, Study, Table, Trainings, Verdict, judged, plain
from fcritic.training.knowledge import rank_correlation, ranks
from studies.evaluation import fitting, gathering

GROUPS = ("unseen", "known", "foreign")
METHODS = (
    "functional",
    "named",
    "uncorrected",
    "blind",
    "blind_corrected",
    "fqe",
    "fqe_8x",
    "fqe_best",
    "nearest",
    "again",
)
"""`functional`: one critic for all, corrected by the Bellman equation of each policy; `named`: the same, where the
policies that are ranked were all named to the fit, as `fcritic rank` does; `uncorrected`: before the correction;
`blind`: the same critics without the policy's code, not corrected; `blind_corrected`: these, corrected; `fqe`: one
critic for each policy (every seventh), after as many TD rows for each as the functional critics had for each
policy that they know; `fqe_8x`: after eight times as many; `fqe_best`: the one of these with the highest mean rank
correlation, which only the truth can tell; `nearest`: the mean return of the ten logged episodes whose actions are
nearest to those of the policy; `again`: the true values with noise as of another measurement, drawn for each policy
apart, though all had the same episodes: it overstates what the noise costs."""
FQE = dict(zip(("fqe", "fqe_8x"), fitting.FQE_STEPS, strict=True))
MEASURES = ("rank", "regret1", "regret5", "error", "slope")
FEWEST = 5
NAMED = "Where they are named to the fit, though their logs are not, its error on these policies"
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
        "rank": rank_correlation(truth, value) or 0.0,  # of values that are all the same
        "regret1": regret(1),
        "regret5": regret(5),
        "error": float(np.abs(value - truth).mean()) / span,
        "slope": slope,
    }


def area_under_roc(score: np.ndarray, found: np.ndarray) -> float:
    """Returns the chance that a score is higher where something is to be found than where not; NaN without both."""
    if found.all() or not found.any():
        return float("nan")
    places = ranks(score)
    below = places[found].sum() - found.sum() * (found.sum() + 1) / 2
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
        self.fqe = [name for name in FQE if any((name, split) in self._said for split in self.splits)]
        self.rivals = [
            split for split in self.splits if self.fqe and all((name, split) in self._said for name in self.fqe)
        ]

    def said(self, method: str, split: int) -> "Said | None":
        """Returns what a method says, None where it was not fitted."""
        if method == "fqe_best" and not self.fqe:
            return None
        if method == "again":
            drawn = np.random.default_rng(split).normal(size=len(self.truth))
            return dataclasses.replace(Said.nothing(len(self.truth)), value=self.truth + self.noise * drawn)
        return self._said.get((self.best if method == "fqe_best" else method, split))

    @functools.cached_property
    def best(self) -> str:
        """The FQE with the highest mean rank correlation over groups and splits."""
        found = lambda method: [row["rank"] for group in GROUPS for row in self.judge(method, group, True)]
        return max(self.fqe, key=lambda method: np.mean(found(method)))

    def judge(self, method: str, group: str, alike: bool) -> list[dict[str, float]]:
        """Returns the measures of a method on a group, by split; `alike`: only on policies and splits of FQE."""
        found = []
        for split in self.rivals if alike else self.splits:
            said, ours = self.said(method, split), self.said("functional", split)
            if said is None or ours is None:
                continue
            who = (ours.group == group) & ~np.isnan(said.value)
            if alike:
                rival = self.said(self.fqe[0], split)
                who &= ~np.isnan(rival.value) if rival else False
            if who.sum() >= FEWEST:
                told = measures(self.truth[who], said.value[who], self.span)
                found.append({"split": split, "policies": int(who.sum()), **told})
        return found

    def table(self, alike: bool) -> dict[str, dict[str, dict[str, float]]]:
        """Returns the measures by group and method, means over splits; FQE on the policies that it has."""
        found: dict[str, dict[str, dict[str, float]]] = {}
        for group in GROUPS:
            for method in METHODS:
                if method == "fqe_best" and not self.fqe:
                    continue
                if rows := self.judge(method, group, alike):
                    means = {name: float(np.mean([row[name] for row in rows])) for name in MEASURES}
                    counts = {"policies": rows[0]["policies"], "splits": len(rows)}
                    found.setdefault(group, {})[method] = means | counts
        return found

    def work(self) -> dict[str, dict[str, float]]:
        """Returns TD rows and seconds of each method's fits, means over splits."""
        found = {}
        for method in METHODS[:-2]:
            told = [each for split in self.splits if (each := self.said(method, split)) is not None]
            if told and not method.endswith("best"):
                rows, seconds = (
                    float(np.mean([getattr(each, name) for each in told])) for name in ("td_rows", "seconds")
                )
                found[method] = {"td_rows": rows, "seconds": seconds}
        return found

    def inside(self) -> dict[str, dict[str, float]]:
        """Returns of the trusted policies of each group their number and the share inside of their interval."""
        trust = self.trust()
        found = {}
        for group in GROUPS:
            who = (trust["group"] == group) & trust["trusted"].astype(bool)
            found[group] = {
                "policies": int((trust["group"] == group).sum()),
                "trusted": int(who.sum()),
                "inside": float(trust["inside"][who].mean()) if who.any() else float("nan"),
            }
        return found

    def trust(self) -> dict[str, np.ndarray]:
        """Returns marks, coverage, spread, errors (in ranges of values) and whether intervals hold."""
        found: dict[str, list[np.ndarray]] = {}
        for split in self.splits:
            said = self._said["functional", split]
            # The truth itself is a mean of a few episodes, whose error is another than that of the critics.
            half = np.hypot((said.high - said.low) / 2, 1.645 * self.noise)
            inside = np.abs(said.value - self.truth) <= half
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
                nothing = {**dict.fromkeys(told, ""), "trusted": ""}
                plain, corrected = float(arrays["heads"][place].mean()), float(arrays["value"][place])
                said = {method: corrected if method == "named" else plain}
                if method == "functional":
                    told["trusted"] = bool(arrays["trusted"][place])
                    near = float(arrays["nearest"][number])
                    said = {method: corrected, "uncorrected": plain, "nearest": near}
                elif method == "blind":
                    said["blind_corrected"] = corrected
                for name, value in said.items():
                    more = (told if name == "functional" else nothing) | (
                        dict.fromkeys(work, 0) if name == "nearest" else work
                    )
                    rows.append(facts | {"method": name} | of_policy | {"value": value} | more)
    return rows


def evidence(rows: list[dict[str, Any]]) -> dict[tuple[str, str], Evidence]:
    """Returns what was said of each task from each kind of logs."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((str(row["task"]), str(row["logs"])), []).append(row)
    return {
        key: Evidence(each) for key, each in found.items() if any(row["method"] == "functional" for row in each)
    }


def summary(found: dict[tuple[str, str], Evidence], logs: str = "replay") -> dict[str, Any]:
    """Returns the measures by task, group and method, means over splits, from one kind of logs.

    FQE is fitted to every seventh policy and judged on those; `alike` has all methods on these policies and splits.
    """
    tasks = {task: each for (task, kind), each in found.items() if kind == logs}
    return {
        "logs": logs,
        "tasks": {task: each.table(alike=False) for task, each in tasks.items()},
        "alike": {task: each.table(alike=True) for task, each in tasks.items() if each.rivals},
        "work": {task: each.work() for task, each in tasks.items()},
        "trust": {task: each.inside() for task, each in tasks.items()},
    }


class UnseenPolicies(Study):
    """Fits one critic to the logs and policies of some trainings, and asks it for the values of all others."""

    name = "unseen-policies"
    question = (
        "One functional critic, fitted to the logs and policies of some trainings, ranks policies of other "
        "trainings, which it has never met, as well as a critic that is fitted for each of them."
    )
    shown = ("summary",)

    def find(self, runs: Trainings, quick: bool) -> Findings:
        """Judges the fits that there are; quick: gathers and fits one small task, with few updates."""
        folder = runs.folder / "evaluation"
        if quick:
            gathering.complete(folder, gathering.QUICK)
            fitting.complete(folder, folder / "fits", list(gathering.QUICK), list(fitting.FITS), [0], steps=100)
        rows = [
            row
            for task in gathering.TASKS
            for logs in fitting.LOGS
            for row in raw_rows(folder / "fits", task, logs)
        ]
        if not rows:
            raise UsageError(f"{folder} has no fits; gather and fit first, see {Path(__file__).name}")
        return judge(rows)

    def draw(self, findings: Findings, path: Path) -> None:
        """The value of each policy as the logs tell it, against the measured one, a panel for each task."""
        shown = findings.plot["scatter"]
        columns = min(3, len(shown))
        with panels(path, columns, "", width=4.2, rows=-(-len(shown) // columns)) as axes:
            for axis in axes[len(shown) :]:
                axis.set_visible(False)
            for axis, (task, groups) in zip(axes, shown.items(), strict=False):
                ends = np.concatenate([np.ravel(each["truth"]) for each in groups.values()])
                axis.plot([ends.min(), ends.max()], [ends.min(), ends.max()], color="0.7", linewidth=1)
                for colour, (group, each) in zip(COLOURS, groups.items(), strict=False):
                    label = f"{group}: rank {each['rank']:.2f}"
                    axis.scatter(each["value"], each["truth"], s=10, color=colour, label=label, alpha=0.8)
                axis.set(title=task, xlabel="value from the logs", ylabel="measured value")
                axis.legend(frameon=False, fontsize=8)

    def sections(self, findings: Findings) -> list[Section]:
        """Tables of all measures."""
        parts = []
        for title, name in (("All policies", "tasks"), ("The policies that FQE was fitted to", "alike")):
            rows = [
                [task, group, method, str(each["policies"]), str(each["splits"])]
                + [f"{each[measure]:.2f}" for measure in MEASURES]
                for task, groups in findings.plot["summary"][name].items()
                for group, methods in groups.items()
                for method, each in methods.items()
            ]
            parts.append(
                Section(title, [Table(["task", "group", "method", "policies", "splits", *MEASURES], rows)])
            )
        return parts


def judge(rows: list[dict[str, Any]]) -> Findings:
    """Returns the verdicts on what the fits say of each policy."""
    found = evidence(rows)
    told = summary(found)
    replay = {task: each for (task, kind), each in found.items() if kind == "replay"}
    measured = [
        {"task": task, "logs": logs, "method": method, "group": group, "alike": alike, **row}
        for (task, logs), each in found.items()
        for alike in (False, True)
        for method in METHODS
        if each.rivals or not alike
        if method != "fqe_best" or each.fqe
        for group in GROUPS
        for row in each.judge(method, group, alike)
    ]
    files = {
        f"results/{task}.csv": as_csv([row for row in rows if row["task"] == task])
        for task in dict.fromkeys(str(row["task"]) for row in rows)
    }
    files["results/summary.json"] = json.dumps(plain(told), indent=1) + "\n"
    plot = {"summary": told, "scatter": {task: scatter(each) for task, each in replay.items()}}
    return Findings(verdicts(told, replay), measured, plot, files=files)


def scatter(found: Evidence) -> dict[str, dict[str, Any]]:
    """Returns values and truth of each group in the first split, and the rank correlation between them."""
    split = found.splits[0]
    said = found.said("functional", split)
    assert said is not None
    groups = {group: said.group == group for group in GROUPS}
    return {
        group: {
            "value": said.value[who],
            "truth": found.truth[who],
            "rank": rank_correlation(found.truth[who], said.value[who]) or 0.0,
        }
        for group, who in groups.items()
        if who.sum() >= FEWEST
    }


def as_csv(rows: list[dict[str, Any]]) -> str:
    """Returns rows as CSV, numbers in five digits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {name: f"{value:.5g}" if isinstance(value, float) else value for name, value in row.items()}
        )
    return text.getvalue()


def verdicts(told: dict[str, Any], found: dict[str, Evidence]) -> list[Verdict]:
    """Returns what holds of the claims about ranking, levels and trust."""
    result = []
    pick = lambda table, group, method, measure: {
        task: groups[group][method][measure]
        for task, groups in told[table].items()
        if method in groups.get(group, {})
    }
    mean = lambda values: float(np.mean(list(values.values()))) if values else float("nan")
    rival = pick("alike", "unseen", "fqe_best", "rank")
    strong = {task for task, rank in rival.items() if rank >= 0.8}
    if strong:
        ranks = {t: v for t, v in pick("alike", "unseen", "functional", "rank").items() if t in strong}
        regrets = {t: v for t, v in pick("alike", "unseen", "functional", "regret1").items() if t in strong}
        result.append(
            judged(
                "Where FQE at its best ranks unseen policies at 0.8 or better, one functional critic that never "
                "met them ranks them at 0.9 or better on average, with a regret of the best of at most 0.1",
                mean(ranks) >= 0.9 and mean(regrets) <= 0.1,
                {"rank": ranks, "regret": regrets, "FQE": rival},
            )
        )
        theirs = pick("alike", "unseen", "fqe_best", "error")
        for method, whose in (("functional", "Its mean absolute error on unseen policies"), ("named", NAMED)):
            ours = pick("alike", "unseen", method, "error")
            if both := strong & ours.keys():
                claim = f"{whose} is not above that of FQE at its best, on every task"
                holds = all(ours[task] <= theirs[task] for task in both)
                result.append(judged(claim, holds, {method: ours, "FQE": theirs}))
        named = {task: rank for task, rank in pick("alike", "unseen", "named", "rank").items() if task in strong}
        if named:
            claim = "Where they are named to the fit, though their logs are not, they are ranked at 0.9 or better"
            result.append(judged(f"{claim} on average", mean(named) >= 0.9, {"rank": named, "FQE": rival}))
    known = pick("tasks", "known", "functional", "rank")
    result.append(judged("Known policies are ranked at 0.95 or better", mean(known) >= 0.95, {"rank": known}))
    for group in ("unseen", "known"):
        ours, blind = (pick("tasks", group, method, "error") for method in ("functional", "blind"))
        both = [task for task in ours if task in blind]
        if both:
            result.append(
                judged(
                    f"Its error on {group} policies is below that of the same critics blind to the policy, on "
                    "every task",
                    all(ours[task] < blind[task] for task in both),
                    {"functional": ours, "blind": blind},
                    kind="control",
                )
            )
    ours, near = (pick("tasks", "unseen", method, "error") for method in ("functional", "nearest"))
    result.append(
        judged(
            "Its error on unseen policies is below that of the mean return of the nearest logged episodes, on "
            "every task",
            all(ours[task] < near[task] for task in ours),
            {"functional": ours, "nearest": near},
            kind="control",
        )
    )
    slopes = pick("tasks", "unseen", "functional", "slope")
    result.append(
        judged(
            "The slope of measured on predicted values of unseen policies is between 0.8 and 1.25 on every task",
            all(0.8 <= slope <= 1.25 for slope in slopes.values()),
            {"slope": slopes},
        )
    )
    shares, areas = {}, {}
    for task, each in found.items():
        trust = each.trust()
        marked = trust["trusted"].astype(bool)
        shares[task] = float(trust["inside"][marked].mean()) if marked.any() else float("nan")
        areas[task] = area_under_roc(doubt(trust), trust["error"] > QUARTER)
    result.append(
        judged(
            "Of the policies that are marked as trusted at least 90 % lie in their 90 % interval, on every task",
            all(share >= 0.9 for share in shares.values()),
            {"inside": shares},
        )
    )
    sound = [area for area in areas.values() if np.isfinite(area)]
    result.append(
        judged(
            "Doubt, the larger of coverage and spread in units of their bounds, finds errors above a quarter of "
            "the range with an area under the ROC curve of at least 0.8, where there are such errors",
            bool(sound) and min(sound) >= 0.8,
            {"area": areas},
        )
    )
    return result


def doubt(trust: dict[str, np.ndarray]) -> np.ndarray:
    """Returns how much speaks against each policy: 1 where it is just trusted."""
    return np.maximum(trust["coverage"] / COVERED, trust["spread"] / AGREED)


STUDY = UnseenPolicies()
