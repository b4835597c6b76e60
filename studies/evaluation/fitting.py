"""Values of policies from logs by each method, for the study of evaluation: one NPZ file per task, fit and split.

    python studies/evaluation/fitting.py GATHERED FOLDER [--tasks TASK ...] [--fits NAME ...] [--splits N ...]

Five splits take the place of seeds: each chooses other trainings whose logs and snapshots are known, and draws
other rows, probes and first weights. The snapshots of the other trainings are unseen; policies of a third
algorithm, linear controllers, constant actions and noisy snapshots are foreign. Everything is fitted and judged by
`fcritic.Evaluator`, as a user would. A fit whose file is there already is not made again.
"""

import argparse
import dataclasses
from pathlib import Path
import sys
import time
from typing import Any, NamedTuple

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[2])]

from fcritic.agents.evaluator import EvaluatorConfig  # noqa: E402
from fcritic.offline.candidates import Candidate  # noqa: E402
from fcritic.offline.dataset import Dataset  # noqa: E402
from fcritic.offline.evaluation import Evaluator  # noqa: E402
from fcritic.offline.interface import units_of  # noqa: E402
from studies.evaluation.gathering import GAMMA, TASKS, Networks, unpacked  # noqa: E402

SPLITS = (
    ("sac0", "sac1", "td30", "td31"),
    ("sac2", "sac3", "td32", "td33"),
    ("sac0", "sac3", "td31", "td32"),
    ("sac1", "sac2", "td30", "td33"),
    ("sac0", "sac2", "td31", "td33"),
)
"""Whose logs and snapshots are known."""
NEAREST = 10
"""Logged episodes whose mean return is the value of the policy that they are nearest to."""


@dataclasses.dataclass(frozen=True)
class Fit:
    """One method on one kind of logs."""

    logs: str
    config: EvaluatorConfig
    splits: int = len(SPLITS)
    """How many of the splits it is made on."""
    groups: tuple[str, ...] = ("known",)
    """Groups of policies that it is fitted with; it needs no run of them."""
    every: int = 1
    """Of these policies, each so many-th is taken; the four seeds of a training take turns in their order."""


ALL = ("known", "unseen", "foreign")
LOGS = {"replay": 5, "mixture": 2, "middling": 2}
"""Kinds of logs, and the splits on which functional critics are fitted to them."""
FQE_STEPS = (1_000, 8_000)
"""Updates of each critic, of 256 rows: 1,000 are about as many rows for each policy as the functional critics have
for each that they know, 8,000 as many updates as theirs."""
FITS = {
    **{f"functional {logs}": Fit(logs, EvaluatorConfig(), splits) for logs, splits in LOGS.items()},
    "named replay": Fit("replay", EvaluatorConfig(), 2, ALL),
    **{f"blind {logs}": Fit(logs, EvaluatorConfig(method="blind"), 2) for logs in LOGS},
    **{
        f"fqe-{steps} {logs}": Fit(
            logs, EvaluatorConfig(method="fqe", steps=steps, settled=0.0), splits // 2, ALL, every=7
        )
        for logs, splits in LOGS.items()
        for steps in FQE_STEPS
    },
}


class Gathered(NamedTuple):
    """A file of `gathering`."""

    arrays: dict[str, np.ndarray]
    policies: Networks
    names: list[str]

    @staticmethod
    def read(path: Path) -> "Gathered":
        """Returns what a file holds."""
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        arrays |= {name: leaf.astype(np.float32) for name, leaf in arrays.items() if leaf.dtype == np.float16}
        layers = [tuple(arrays[f"{kind}{n}"] for n in range(3)) for kind in ("weight", "bias")]
        policies = Networks(*layers, *(arrays[name] for name in ("mean", "deviation", "noise")))
        return Gathered(arrays, policies, [str(name) for name in arrays["names"]])

    def candidates(self) -> list[Candidate]:
        """Returns all policies as an evaluator sees them."""
        each = [self.policies.pick(number) for number in range(len(self.names))]
        return [
            Candidate(name, "function", policy.act, stochastic=bool(policy.noise))
            for name, policy in zip(self.names, each, strict=True)
        ]

    def groups(self, split: int) -> np.ndarray:
        """Returns known, unseen or foreign for every policy."""
        trained = [name[:4] if name.startswith(("sac", "td3")) else "" for name in self.names]
        return np.array([("known" if who in SPLITS[split] else "unseen") if who else "foreign" for who in trained])

    def log(self, task: str, kind: str, split: int) -> Dataset:
        """Returns the logs of a kind that a split may use."""
        one = lambda name: unpacked(*(self.arrays[f"log {name}/{part}"] for part in ("rows", "last", "after")))
        if kind == "replay":
            rows = np.concatenate([one(f"replay {training}") for training in SPLITS[split]])
        else:
            rows = one(f"{kind} {0 if split % 2 == 0 else 1}")
        obs_dim, act_dim = self.policies.mean.shape[1], self.policies.weights[-1].shape[-1]
        obs, act, reward, discount, after = np.split(rows, np.cumsum([obs_dim, act_dim, 1, 1]), axis=1)
        last = np.r_[(after[:-1] != obs[1:]).any(axis=1) | (discount[:-1, 0] == 0), True]
        first = np.r_[True, last[:-1]]
        ended = last & np.r_[np.ones(len(last) - 1, bool), False]  # the last one may still have been running
        bounds = np.full(act_dim, 1, np.float32)
        units = units_of((obs_dim,), -bounds, bounds)
        columns = (obs, act, reward[:, 0], discount[:, 0], after)
        return Dataset(*columns, first, last, ended, (f"{kind}, split {split}",), units, task, TASKS[task].repeat)


def nearest_returns(policies: list[Candidate], data: Dataset, limit: int) -> np.ndarray:
    """Returns the mean return of the logged episodes whose actions are nearest to those of each policy.

    The return of an episode that a time limit has cut is divided by the share of a constant reward before it.
    """
    returns = data.returns(GAMMA)
    spans = [data.episodes[number] for number in returns.episodes]
    lengths = np.array([stop - start for start, stop in spans])
    cut = np.array([data.discount[stop - 1] > 0 for _, stop in spans])
    values = returns.values / np.where(cut, 1 - GAMMA ** np.minimum(lengths, limit), 1)
    found = []
    for policy in policies:
        far = ((policy.act(data.obs) - data.act) ** 2).mean(axis=1)
        order = np.argsort([far[start:stop].mean() for start, stop in spans], kind="stable")
        found.append(values[order[:NEAREST]].mean())
    return np.array(found)


def fit(
    gathered: Gathered, task: str, name: str, split: int, kept: Path, steps: int | None = None
) -> dict[str, Any]:
    """Returns what one fit says of all policies. The evaluator is kept; one that is there is not fitted again."""
    job = FITS[name]
    config = job.config if steps is None else dataclasses.replace(job.config, steps=steps)
    groups, policies = gathered.groups(split), gathered.candidates()
    data = gathered.log(task, job.logs, split)
    fitted = np.flatnonzero(np.isin(groups, job.groups))[:: job.every]
    judged = fitted if config.method == "fqe" else np.arange(len(policies))
    begun = time.perf_counter()
    evaluator = Evaluator.load(str(kept)) if kept.is_dir() else None
    names = tuple(policies[number].name for number in fitted)
    if evaluator is None or (evaluator.names, evaluator.config) != (names, config):
        evaluator = Evaluator.fit(data, [policies[number] for number in fitted], config, seed=split)
        kept.parent.mkdir(parents=True, exist_ok=True)
        evaluator.save(str(kept))
    learned = time.perf_counter()
    rows = evaluator.rank([policies[number] for number in judged]).rows
    ranked = time.perf_counter()
    places = {policy.name: number for number, policy in enumerate(policies)}
    order = np.argsort([places[row.name] for row in rows])
    pick = lambda value: np.array([value(rows[place]) for place in order])
    return {
        "policy": judged,
        "names": np.array(gathered.names),
        "groups": groups,
        "truth": gathered.arrays["returns"].mean(axis=1),
        "noise": gathered.arrays["returns"].std(axis=1, ddof=1) / np.sqrt(gathered.arrays["returns"].shape[1]),
        "value": pick(lambda row: row.estimate.mean),
        "heads": pick(lambda row: row.estimate.heads),
        "low": pick(lambda row: row.estimate.low),
        "high": pick(lambda row: row.estimate.high),
        "trusted": pick(lambda row: row.trust.mark),
        "coverage": pick(lambda row: row.trust.coverage),
        "spread": pick(lambda row: row.trust.spread),
        "nearest": nearest_returns(policies, data, TASKS[task].limit),
        "td_rows": config.td_rows(len(fitted), evaluator.updates),
        "fit_seconds": learned - begun,
        "rank_seconds": ranked - learned,
    }


def file_of(folder: Path, task: str, name: str, split: int) -> Path:
    """Returns where the values of a fit are kept."""
    return folder / f"{task} {name} {split}.npz"


def complete(
    gathered: Path,
    folder: Path,
    tasks: list[str],
    fits: list[str],
    splits: list[int],
    steps: int | None = None,
    again: bool = False,
) -> None:
    """Makes the fits that are not there yet, the first split of all of them first; or asks those again."""
    for split in splits:
        for task in tasks:
            missing = [
                name
                for name in fits
                if split < FITS[name].splits and file_of(folder, task, name, split).is_file() == again
            ]
            read = Gathered.read(gathered / f"{task}.npz") if missing else None
            for name in missing:
                assert read is not None
                begun = time.perf_counter()
                kept = folder / "evaluators" / f"{task} {name} {split}"
                arrays = fit(read, task, name, split, kept, steps)
                if again:
                    with np.load(file_of(folder, task, name, split)) as before:
                        arrays["fit_seconds"] = before["fit_seconds"]
                temporary = folder / f".{task} {name} {split}.npz"
                np.savez_compressed(temporary, **arrays)
                temporary.rename(file_of(folder, task, name, split))
                print(f"{task}, {name}, split {split}: {time.perf_counter() - begun:.0f} s", flush=True)


def main() -> None:
    """Makes the fits that are asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("gathered", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--fits", nargs="+", default=list(FITS), choices=FITS)
    parser.add_argument("--splits", nargs="+", type=int, default=list(range(len(SPLITS))))
    parser.add_argument("--again", action="store_true", help="ask the evaluators that were kept once more")
    options = parser.parse_args()
    complete(options.gathered, options.folder, options.tasks, options.fits, options.splits, again=options.again)


if __name__ == "__main__":
    main()
