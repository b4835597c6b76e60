"""Methods over several tasks at once: interquartile means, and how far and how surely one is above another."""

from collections.abc import Sequence
import dataclasses
from typing import Any

from jaxtyping import Float
import numpy as np

from fcritic.errors import UsageError
from fcritic.results import statistics
from fcritic.study.comparison import ENOUGH, Better, Comparison, Panel, gather, interval_text, same_length
from fcritic.study.spec import Findings, Section, Table, Trainings, Verdict


@dataclasses.dataclass(frozen=True)
class AcrossTasks(Comparison):
    """A comparison whose claims are about all of its tasks together."""

    across: tuple[Better, ...] = ()

    @property
    def claimed(self) -> tuple[Better, ...]:
        """Those of single tasks and those of all together."""
        return (*self.claims, *self.across)

    def require_sound(self) -> None:
        """Refuses also what is not judged over all tasks."""
        super().require_sound()
        if any(claim.of != "end" for claim in self.across):
            raise UsageError(f"{self.name}: claims over all tasks are of end scores; leave of= out")

    def find(self, runs: Trainings, quick: bool = False) -> Findings:
        """Returns as of any comparison, with what methods reach over the tasks that both sides of a claim have."""
        found = super().find(runs, quick)
        panels = gather(self.version(quick), runs)
        found.verdicts.extend(judge(claim, panels) for claim in self.across)
        pairs = dict.fromkeys((claim.better, claim.worse) for claim in self.across)
        rows = [beside(panels, *pair) for pair in pairs]
        found.plot["across"] = [row for row in rows if row is not None]
        return found

    def sections(self, findings: Findings) -> list[Section]:
        """The table over all tasks, before the sections of any comparison."""
        heads = [
            "method",
            "beside",
            "tasks",
            "seeds",
            "interquartile mean [95 %]",
            "of the other",
            "difference [95 %]",
        ]
        heads.append("P(a seed is better) [95 %]")
        rows = [
            [
                row["method"],
                row["beside"],
                str(len(row["tasks"])),
                str(row["seeds"]),
                interval_text(row["ours"], 0),
                interval_text(row["theirs"], 0),
                interval_text(row["difference"], 0),
                interval_text(row["better"], 2),
            ]
            for row in findings.plot["across"]
        ]
        return [Section("Over all tasks", [ABOUT, Table(heads, rows)]), *super().sections(findings)]


ABOUT = (
    "End scores of all seeds on the tasks that both methods have, at the frames that both have reached there. "
    "Intervals are stratified bootstrap intervals, widened for few seeds: seeds are drawn anew within each task. "
    "P(a seed is better) is the mean over tasks. A claim holds, or fails, where the interval of the difference of "
    "interquartile means lies on one side of 0."
)


def judge(claim: Better, panels: Sequence[Panel]) -> Verdict:
    """Decided by the interval of the difference of interquartile means, over the tasks that are there."""
    row = beside(panels, claim.better, claim.worse)
    given = lambda text, outcome, figures: Verdict(text, outcome, figures, claim.source, claim.kind)
    if row is None:
        return given(claim.text, "open", {"not run": [claim.better, claim.worse]})
    asked = sum(panel.asks(claim.better, claim.worse) for panel in panels)
    tasks = [task.split(",")[0] for task in row["tasks"]]
    text = f"{claim.text}, over {len(tasks)} of {asked} tasks: {', '.join(tasks)}"
    gap = row["difference"]
    outcome = "holds" if gap["low"] > 0 else "fails" if gap["high"] < 0 else "open"
    figures = {claim.better: row["ours"]["value"], claim.worse: row["theirs"]["value"], "seeds": row["seeds"]}
    figures |= {"difference": gap["value"], "interval": [gap["low"], gap["high"]]}
    figures |= {"P(a seed is better)": row["better"]["value"]}
    figures |= {"interval of P": [row["better"]["low"], row["better"]["high"]], "frames": row["frames"]}
    return given(text, outcome, figures)


def beside(panels: Sequence[Panel], ours: str, theirs: str) -> dict[str, Any] | None:
    """Two methods over the tasks that both have; None where there is none, or too few seeds."""
    names, frames, scores = [], [], []
    for panel in panels:
        by_name = {method.run.method: method for method in panel.methods}
        if {ours, theirs} <= by_name.keys():
            pair = same_length(by_name[ours], by_name[theirs])
            names.append(panel.name)
            frames.append(int(pair[0].frames[-1]))
            scores.append([method.end_scores for method in pair])
    seeds = min((len(each) for pair in scores for each in pair), default=0)
    if seeds < ENOUGH:
        return None
    # Tasks of the one, then of the other: seeds of each column are drawn by themselves.
    joined = np.array([pair[side][:seeds] for side in (0, 1) for pair in scores]).T
    count = len(names)
    one, other = joined[:, :count], joined[:, count:]
    middle = statistics.interquartile_mean
    gap = lambda both: middle(both[:, :count]) - middle(both[:, count:])
    chance = statistics.interval(joined, lambda both: better_by_task(both[:, :count], both[:, count:]))
    return {
        "method": ours,
        "beside": theirs,
        "tasks": names,
        "frames": frames,
        "seeds": seeds,
        "ours": statistics.interval(one)._asdict(),
        "theirs": statistics.interval(other)._asdict(),
        "difference": statistics.interval(joined, gap)._asdict(),
        "better": {"value": chance.value, "low": max(0.0, chance.low), "high": min(1.0, chance.high)},
    }


def better_by_task(ours: Float[np.ndarray, "seeds tasks"], theirs: Float[np.ndarray, "seeds tasks"]) -> float:
    """The mean over tasks of the share of pairs of seeds in which ours is higher; ties count half."""
    difference = ours[:, None] - theirs[None]
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())
