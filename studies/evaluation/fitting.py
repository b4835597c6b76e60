"""Values of policies from logs by each method, for the study of evaluation. One NPZ file for each task and fit.

    python studies/evaluation/fitting.py GATHERED FOLDER [--tasks TASK ...] [--fits NAME ...] [--steps N]

Five splits take the place of seeds: each chooses other trainings whose logs and snapshots are known, and draws
other rows, probes and first weights. The snapshots of the other trainings are unseen; policies of a third
algorithm, linear controllers, constant actions and noisy snapshots are foreign. All splits are fitted side by side.
A fit whose file is there already is not made again.
"""

import argparse
import dataclasses
from functools import partial
from pathlib import Path
import sys
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

sys.path[:0] = [str(Path(__file__).parents[2])]

from fcritic.agents.evaluator import (  # noqa: E402
    Critic,
    EvaluatorConfig,
    Fitted,
    Problem,
    Rows,
    features,
    own_start_values,
    start_values,
    values,
)
from fcritic.randomness import stream  # noqa: E402
from studies.evaluation.gathering import GAMMA, TASKS, Networks, unpacked  # noqa: E402

SPLITS = (
    ("sac0", "sac1", "td30", "td31"),
    ("sac2", "sac3", "td32", "td33"),
    ("sac0", "sac3", "td31", "td32"),
    ("sac1", "sac2", "td30", "td33"),
    ("sac0", "sac2", "td31", "td33"),
)
"""Whose logs and snapshots are known."""
MOST_ROWS = 60_000
STARTS = 256
NEAREST = 10
"""Logged episodes whose mean return is the value of the policy that they are nearest to."""
RIDGES = (1e-2, 1e-3, 1e-4, 1e-6)


@dataclasses.dataclass(frozen=True)
class Fit:
    """One method on one kind of logs."""

    logs: str
    trained: tuple[str, ...]
    """Groups of policies that the fit may use; it needs no run of them."""
    config: EvaluatorConfig
    records: int = 2
    """How often values are noted, at equal distances."""


EVERY = ("known", "unseen", "foreign")
KNOWN = ("known",)
FUNCTIONAL = EvaluatorConfig()
FQE = EvaluatorConfig(method="fqe", steps=15_000)
BRIEF = EvaluatorConfig(method="fqe", steps=1_500)
BLIND = EvaluatorConfig(method="blind")
LOGS = ("replay", "mixture", "middling")
FITS = {
    **{f"functional {logs}": Fit(logs, KNOWN, FUNCTIONAL) for logs in LOGS},
    **{f"fqe {logs}": Fit(logs, EVERY, FQE, records=10) for logs in LOGS},
    **{f"blind {logs}": Fit(logs, KNOWN, BLIND) for logs in LOGS},
    "fqe-brief replay": Fit("replay", EVERY, BRIEF, records=1),
    **{f"all-known {logs}": Fit(logs, EVERY, FUNCTIONAL) for logs in LOGS},
    "longer replay": Fit("replay", KNOWN, dataclasses.replace(FUNCTIONAL, steps=48_000), records=3),
    "rate-1e-3 replay": Fit("replay", KNOWN, dataclasses.replace(FUNCTIONAL, learning_rate=1e-3)),
    "rows-64 replay": Fit("replay", KNOWN, dataclasses.replace(FUNCTIONAL, rows_per_policy=64)),
    "wide replay": Fit("replay", KNOWN, dataclasses.replace(FUNCTIONAL, hidden=(256, 256))),
    "code-16 replay": Fit("replay", KNOWN, dataclasses.replace(FUNCTIONAL, code=16)),
    "share-1 replay": Fit("replay", KNOWN, dataclasses.replace(FUNCTIONAL, share=1.0)),
    "probes-256 replay": Fit("replay", KNOWN, dataclasses.replace(FUNCTIONAL, probes=256)),
    "tau-.01 replay": Fit("replay", KNOWN, dataclasses.replace(FUNCTIONAL, tau=0.01)),
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
        layers = [tuple(arrays[f"{kind}{n}"] for n in range(3)) for kind in ("weight", "bias")]
        policies = Networks(*layers, *(arrays[name] for name in ("mean", "deviation", "noise")))
        return Gathered(arrays, policies, [str(name) for name in arrays["names"]])

    def groups(self, split: int) -> np.ndarray:
        """Returns known, unseen or foreign for every policy."""
        found = [name[:4] if name.startswith(("sac", "td3")) else "" for name in self.names]
        return np.array([("known" if who in SPLITS[split] else "unseen") if who else "foreign" for who in found])

    def log(self, kind: str, split: int) -> np.ndarray:
        """Returns the rows of a kind of logs that a split may use."""
        one = lambda name: unpacked(*(self.arrays[f"log {name}/{part}"] for part in ("rows", "last", "after")))
        if kind == "replay":
            return np.concatenate([one(f"replay {training}") for training in SPLITS[split]])
        return one(f"{kind} {0 if split % 2 == 0 else 1}")


@jax.jit
def _modes(policies: Networks, obs: jax.Array) -> jax.Array:
    """Actions of every policy without noise (policies, rows, act)."""

    def one(policy: Networks) -> jax.Array:
        value = jnp.clip((obs - policy.mean) / policy.deviation, -10, 10)
        for number, (weight, bias) in enumerate(zip(policy.weights, policy.biases, strict=True)):
            value = value @ weight + bias
            value = jax.nn.relu(value) if number < 2 else jnp.tanh(value)
        return value

    return jax.lax.map(one, policies)


def actions(policies: Networks, obs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Returns an action of every policy at every observation (policies, rows, act)."""
    found = np.array(_modes(policies, obs))
    for number in np.flatnonzero(policies.noise):
        found[number] += policies.noise[number] * rng.normal(size=found[number].shape)
    return np.clip(found, -1, 1).astype(np.float32)


class Split:
    """The logs of one split as the critics see them, and what each policy does there."""

    def __init__(self, gathered: Gathered, kind: str, split: int, probes: int):
        rng, policies = np.random.default_rng(split), gathered.policies
        self.groups = gathered.groups(split)
        rows = gathered.log(kind, split)
        obs_dim, act_dim = policies.mean.shape[1], policies.weights[-1].shape[-1]
        ends = np.cumsum([obs_dim, act_dim, 1, 1])
        obs, act, reward, discount, next_obs = np.split(rows, ends, axis=1)
        reward, discount = reward[:, 0], discount[:, 0]
        begins = np.r_[True, (next_obs[:-1] != obs[1:]).any(axis=1) | (discount[:-1] == 0)]
        self.starts = obs[begins][:STARTS]
        self.nearest, self.distance = nearest_returns(policies, obs, act, reward, discount, begins)
        mean, deviation = obs.mean(axis=0), obs.std(axis=0) + 1e-3
        self.seen = lambda obs: np.clip((obs - mean) / deviation, -10, 10).astype(np.float32)
        kept = rng.permutation(len(obs))[:MOST_ROWS]
        self.centre, self.scale = float(reward.mean()), float(reward.std()) / (1 - GAMMA) / 10
        centred = ((reward - self.centre) / self.scale).astype(np.float32)
        self.rows = Rows(self.seen(obs[kept]), act[kept], centred[kept], discount[kept], self.seen(next_obs[kept]))
        self.end_value = np.float32(-self.centre / (1 - GAMMA) / self.scale)
        states = obs[rng.choice(len(obs), probes)]
        noise = np.broadcast_to(policies.noise[:, None, None], (len(policies.noise), probes, act_dim))
        self.probes = np.concatenate([np.asarray(_modes(policies, states)), noise], axis=-1).astype(np.float32)
        self.next_act = actions(policies, next_obs[kept], rng)
        self.start_act = actions(policies, self.starts, rng)

    def cut(self, rows: int, starts: int) -> None:
        """Leaves as many rows and starts as all splits have."""
        self.rows = Rows(*(leaf[:rows] for leaf in self.rows))
        self.next_act = self.next_act[:, :rows]
        self.starts, self.start_act = self.starts[:starts], self.start_act[:, :starts]

    def problem(self, config: EvaluatorConfig, trained: np.ndarray, seed: int) -> Problem:
        """Returns what a fit on these policies learns from."""
        rng, rows, critics = np.random.default_rng(seed), len(self.rows.obs), config.critics(len(trained))
        if config.method == "fqe":
            drawn, pool = np.tile(np.arange(rows), (critics, 1)), np.arange(critics)[:, None]
        else:
            drawn = rng.integers(0, rows, (critics, rows))
            share = max(1, round(config.share * len(trained)))
            pool = np.stack([rng.permutation(len(trained))[:share] for _ in range(critics)])
        pools = (jnp.asarray(drawn, jnp.int32), jnp.asarray(pool, jnp.int32))
        rows_on_device = jax.tree.map(jnp.asarray, self.rows)
        return Problem(
            rows_on_device, jnp.asarray(self.end_value), self.probes[trained], self.next_act[trained], *pools
        )

    def values(self, config: EvaluatorConfig, critics: Critic, trained: np.ndarray) -> np.ndarray:
        """Returns the value of each policy by each critic (critics, policies), NaN where FQE was not fitted."""
        starts = self.seen(self.starts)
        if config.method == "fqe":
            found = np.full((1, len(self.probes)), np.nan, np.float32)
            found[0, trained] = own_start_values(critics, starts, self.start_act[trained])
        else:
            found = np.asarray(start_values(critics, self.probes, starts, self.start_act))
        return found * self.scale + self.centre / (1 - GAMMA)


def nearest_returns(
    policies: Networks,
    obs: np.ndarray,
    act: np.ndarray,
    reward: np.ndarray,
    discount: np.ndarray,
    begins: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean return of the logged episodes that each policy is nearest to, and how near it is.

    The distance is the mean squared difference between the policy's actions and the logged ones. Returns are those
    of episodes with a time limit, divided by the share of a constant reward that lies before it.
    """
    first = np.flatnonzero(begins)
    owner = np.cumsum(begins) - 1
    step = np.arange(len(obs)) - first[owner]
    sums = lambda value: np.bincount(owner, value, minlength=len(first))
    length, over = sums(np.ones(len(obs))), sums(1 - discount)
    returns = sums(GAMMA**step * reward) / np.where(over > 0, 1, 1 - GAMMA**length)
    whole = np.ones(len(first), bool)
    whole[-1] = len(first) == 1  # the last one may still have been running
    far = np.stack([sums(((each - act) ** 2).mean(axis=1)) / length for each in np.asarray(_modes(policies, obs))])
    order = np.argsort(far[:, whole], axis=1)[:, :NEAREST]
    return returns[whole][order].mean(axis=1), np.take_along_axis(far[:, whole], order, axis=1).mean(axis=1)


def signals(critics: Critic, split: Split, config: EvaluatorConfig, trained: np.ndarray) -> dict[str, np.ndarray]:
    """Returns what may tell how far a value can be trusted (critics, policies).

    `coverage R`: C(pi, mu) with features of the last hidden layer at the logged next states and the policy's
    actions, in the inverse of their second moment over the logged pairs and all known policies, with ridge R;
    `own R`: the same with the policy's own features in the moment, as Definition 1 has it. `residual`: the mean
    error of the Bellman equation over 1 - gamma. `error`: its mean size.
    """
    chosen = np.random.default_rng(0).permutation(len(split.rows.obs))[:2000]
    rows = jax.tree.map(lambda leaf: jnp.asarray(leaf[chosen]), split.rows)

    def of_policy(critic: Critic, probes: jax.Array, next_act: jax.Array) -> tuple[jax.Array, ...]:
        code = critic.codes(probes[None])
        look = lambda function, obs, act: function(critic.head, code, obs[None], act[None])[0]
        logged, own = look(features, rows.obs, rows.act), look(features, rows.next_obs, next_act)
        after = look(values, rows.next_obs, next_act)
        after = rows.discount * after + (1 - rows.discount) * split.end_value
        error = rows.reward + config.discount * after - look(values, rows.obs, rows.act)
        moment = lambda phi: phi.T @ phi / len(phi)
        return moment(logged), moment(own), error.mean(), jnp.abs(error).mean()

    of_all = lambda critic: jax.lax.map(
        lambda each: of_policy(critic, *each), (split.probes, split.next_act[:, chosen])
    )
    logged, own, residual, size = (np.asarray(leaf, np.float64) for leaf in jax.jit(jax.vmap(of_all))(critics))
    found = {"residual": residual * split.scale / (1 - config.discount), "error": size * split.scale}
    width = logged.shape[-1]
    for ridge in RIDGES:
        inverse = lambda moment, ridge=ridge: np.linalg.inv(
            moment + ridge * np.trace(moment, axis1=-2, axis2=-1)[..., None, None] / width * np.eye(width)
        )
        cloud = inverse(logged[:, trained].mean(axis=1))
        found[f"coverage {ridge:g}"] = np.einsum("cij,cpji->cp", cloud, own)
        found[f"own {ridge:g}"] = np.einsum("cpij,cpji->cp", inverse(logged), own)
    return found


def fit(
    name: str, gathered: Gathered, prepared: dict[tuple[str, int], list[Split]], steps: int | None
) -> dict[str, Any]:
    """Returns the values that one fit comes to, for all splits."""
    job = FITS[name]
    config = job.config if steps is None else dataclasses.replace(job.config, steps=steps)
    if (job.logs, config.probes) not in prepared:
        splits = [Split(gathered, job.logs, split, config.probes) for split in range(len(SPLITS))]
        for split in splits:
            split.cut(min(len(each.rows.obs) for each in splits), min(len(each.starts) for each in splits))
        prepared[job.logs, config.probes] = splits
    splits = prepared[job.logs, config.probes]
    trained = [np.flatnonzero(np.isin(split.groups, job.trained)) for split in splits]
    stack = lambda trees: jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
    problems = stack(
        [split.problem(config, who, n) for n, (split, who) in enumerate(zip(splits, trained, strict=True))]
    )
    sizes = (problems.rows.obs.shape[-1], problems.rows.act.shape[-1], config.critics(len(trained[0])))
    fitted = stack([config.init(*sizes, stream(seed)) for seed in range(len(splits))])
    keys = jnp.stack([jax.random.key(seed) for seed in range(len(splits))])
    count = config.steps // job.records

    @partial(jax.jit, donate_argnums=0)
    def learn(fitted: Fitted, problems: Problem, keys: jax.Array, first: int) -> tuple[Fitted, Any]:
        return jax.vmap(lambda *each: config.learn(*each, first, count))(fitted, problems, keys)

    learn = learn.lower(fitted, problems, keys, 0).compile()
    found, seconds, begun = [], [], time.perf_counter()
    one = lambda number: jax.tree.map(lambda leaf: leaf[number], fitted).critic.net
    for record in range(job.records):
        fitted, metrics = learn(fitted, problems, keys, record * count)
        jax.block_until_ready(metrics)
        seconds.append(time.perf_counter() - begun)
        found.append([split.values(config, one(n), trained[n]) for n, split in enumerate(splits)])
    arrays = {
        "values": np.array(found, np.float32),
        "steps": np.arange(1, job.records + 1) * count,
        "td_rows": config.td_rows(len(trained[0])) / config.steps * np.arange(1, job.records + 1) * count,
        "seconds": np.array(seconds),
        "groups": np.stack([split.groups for split in splits]),
        "truth": gathered.arrays["returns"].astype(np.float32),
        "names": np.array(gathered.names),
        "nearest": np.stack([split.nearest for split in splits]),
        "distance": np.stack([split.distance for split in splits]),
    }
    if config.method == "functional":
        each = [signals(one(n), split, config, trained[n]) for n, split in enumerate(splits)]
        arrays |= {
            f"signal {name}": np.stack([signal[name] for signal in each]).astype(np.float32) for name in each[0]
        }
    return arrays


def main() -> None:
    """Makes the fits that are not there yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("gathered", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--fits", nargs="+", default=list(FITS), choices=FITS)
    parser.add_argument("--steps", type=int, help="fewer updates, to try it")
    options = parser.parse_args()
    for task in options.tasks:
        missing = [name for name in options.fits if not (options.folder / f"{task} {name}.npz").is_file()]
        if not missing:
            continue
        gathered, prepared = Gathered.read(options.gathered / f"{task}.npz"), {}
        for name in missing:
            begun = time.perf_counter()
            arrays = fit(name, gathered, prepared, options.steps)
            options.folder.mkdir(parents=True, exist_ok=True)
            temporary = options.folder / f".{task} {name}.npz"
            np.savez_compressed(temporary, **arrays)
            temporary.rename(options.folder / f"{task} {name}.npz")
            print(f"{task}, {name}: {time.perf_counter() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
