"""Values of unseen policies from logged data, beside d3rlpy's FQE: the same data, the same policies, one run.

The functional critics are fitted to the logs and policies of four trainings and value the policies of four others;
the peer fits a critic to the same logs for each of these. Both begin with arrays in memory and end with values;
imports are not counted. Tasks come from `studies/evaluation/gathering.py`.
"""

import dataclasses
import json
import os
from pathlib import Path
import platform
import subprocess
import tempfile
import time
from typing import Any

import numpy as np

from benchmarks.peers import peers_python
from fcritic.errors import UsageError, require_at_least

REQUIREMENTS = ["torch==2.13.0", "d3rlpy==2.8.1"]


@dataclasses.dataclass(frozen=True)
class Options:
    """Values of policies from logs, beside d3rlpy's fitted Q evaluation."""

    task: str = "cartpole-swingup"
    """A task of studies/evaluation/gathering.py."""
    gathered: str = "runs/evaluation"
    """Folder of policies and logs; made where it lacks the task."""
    policies: int = 40
    """Unseen policies that are valued."""
    steps: int = 20_000
    """Updates of the peer for each policy, of 256 rows; its target follows every 100, so 4,000 are far too few."""
    environment: str | None = None
    """Virtual environment of the peer; made and filled by pip where it is missing."""
    out: str | None = None
    """File for the JSON."""
    json: bool = False
    """Print JSON."""

    def __post_init__(self) -> None:
        require_at_least(2, policies=self.policies)
        require_at_least(1, steps=self.steps)


def measure(options: Options, say=lambda line: None) -> dict[str, Any]:
    """Rank correlation, regret, error and seconds of both, and the ratios of their seconds."""
    from fcritic.agents.evaluator import EvaluatorConfig
    from fcritic.offline.evaluation import Evaluator
    from studies.evaluation import fitting, gathering
    from studies.evaluation.unseen_policies import measures

    if options.task not in gathering.TASKS:
        raise UsageError(f"--task must be one of {', '.join(gathering.TASKS)}, not {options.task}")
    python = peers_python(options.environment, say, REQUIREMENTS, "d3rlpy")
    folder = Path(options.gathered)
    gathering.complete(folder, {options.task: gathering.TASKS[options.task]})
    gathered = fitting.Gathered.read(folder / f"{options.task}.npz")
    groups, candidates = gathered.groups(0), gathered.candidates()
    known, unseen = (np.flatnonzero(groups == group) for group in ("known", "unseen"))
    unseen = unseen[np.unique(np.linspace(0, len(unseen) - 1, options.policies).astype(int))]
    data, truth = gathered.log(options.task, "replay", 0), gathered.arrays["returns"].mean(axis=1)
    span = float(np.ptp(truth))

    begun = time.perf_counter()
    evaluator = Evaluator.fit(data, [candidates[number] for number in known], EvaluatorConfig())
    fitted = time.perf_counter()
    values = np.array([evaluator.value(candidates[number]).mean for number in unseen])
    valued = time.perf_counter()
    say(f"fcritic: fitted in {fitted - begun:.0f} s, {len(unseen)} policies valued in {valued - fitted:.1f} s")

    peer = _peer(python, gathered, data, evaluator.starts, unseen, options.steps, say)
    theirs = np.array([row["value"] for row in peer["rows"]])
    seconds = {
        "fit": fitted - begun,
        "value": valued - fitted,
        "d3rlpy": sum(row["seconds"] for row in peer["rows"]),
    }
    return {
        "fcritic": measures(truth[unseen], values, span),
        "d3rlpy": measures(truth[unseen], theirs, span),
        "seconds": seconds,
        "ratio": seconds["d3rlpy"] / (seconds["fit"] + seconds["value"]),
        "ratio_of_later_policies": seconds["d3rlpy"] / seconds["value"],
        "td_rows": {
            "fcritic": evaluator.config.td_rows(len(known), evaluator.updates),
            "d3rlpy": len(unseen) * options.steps * peer["settings"]["batch_size"],
        },
        "peer": {name: peer[name] for name in ("settings", "versions")},
        "machine": {"cores": len(os.sched_getaffinity(0)), "platform": platform.platform()},
        "options": {name: getattr(options, name) for name in ("task", "policies", "steps")},
    }


def _peer(python: str, gathered: Any, data: Any, starts: np.ndarray, chosen: np.ndarray, steps: int, say):
    """What the peer says of the chosen policies, a row each, with its settings and versions."""
    stack = gathered.policies.pick(chosen)
    layers = {f"{kind}{n}": leaf for kind, leaves in (("weight", stack.weights), ("bias", stack.biases))
              for n, leaf in enumerate(leaves)}  # fmt: skip
    arrays = {"obs": data.obs, "act": data.act, "reward": data.reward[:, None], "starts": starts}
    ends = {"terminal": data.discount == 0, "timeout": data.last & (data.discount > 0)}
    arrays |= layers | {"mean": stack.mean, "deviation": stack.deviation}
    arrays = {name: np.asarray(leaf, np.float32) for name, leaf in (arrays | ends).items()}
    script = Path(__file__).parent / "contenders" / "d3rlpy_fqe.py"
    with tempfile.TemporaryDirectory() as folder:
        problem = Path(folder) / "problem.npz"
        np.savez(problem, **arrays)
        command = [python, str(script), str(problem), str(steps)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
        told = []
        for line in process.stdout or ():
            if line.startswith("{"):
                told.append(json.loads(line))
                if len(told) > 1:
                    say(f"d3rlpy: policy {len(told) - 1} of {len(chosen)} in {told[-1]['seconds']:.0f} s")
        error = process.communicate()[1]
    if len(told) != len(chosen) + 1:
        reason = (error.strip().splitlines() or ["it said nothing"])[-1]
        raise UsageError(f"the peer stopped ({reason}); delete its environment to build it anew")
    return told[0] | {"rows": told[1:]}


def report_text(report: dict[str, Any]) -> str:
    """A table for a person."""
    seconds, options = report["seconds"], report["options"]
    lines = [f"{options['policies']} unseen policies of {options['task']}", ""]
    lines.append(f"{'':<10}{'rank':>7}{'regret@1':>10}{'error':>7}{'slope':>7}{'seconds':>10}")
    times = {"fcritic": seconds["fit"] + seconds["value"], "d3rlpy": seconds["d3rlpy"]}
    for name, total in times.items():
        found = report[name]
        lines.append(
            f"{name:<10}{found['rank']:7.2f}{found['regret1']:10.2f}{found['error']:7.2f}{found['slope']:7.2f}{total:10.1f}"
        )
    each = seconds["value"] / options["policies"]
    lines += [
        "",
        f"fcritic is {report['ratio']:.1f} times as fast with its fit, and values later policies "
        f"{report['ratio_of_later_policies']:.0f} times as fast ({each:.2f} s each)",
    ]
    return "\n".join(lines)
