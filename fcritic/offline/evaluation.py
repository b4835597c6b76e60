"""What policies are worth, from logged data: `fcritic.agents.evaluator` for data and policies as they are read."""

from collections.abc import Callable, Sequence
import dataclasses
import math
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from fcritic.agents import trust_metrics
from fcritic.agents.bellman import corrections
from fcritic.agents.evaluator import (
    Critic,
    EvaluatorConfig,
    Problem,
    Rows,
    equations_of,
    inputs,
    own_start_values,
    start_values,
    values,
)
from fcritic.disk import Place
from fcritic.errors import UsageError
from fcritic.offline.candidates import Candidate
from fcritic.offline.dataset import Dataset
from fcritic.offline.interface import Interface
from fcritic.runs import checkpoint
from fcritic.runs.arrays import flatten, unflatten
from fcritic.types import Transition

MOST_ROWS, MOST_NUMBERS = 200_000, 2**26
"""Transitions that a fit learns from at most, and numbers in the policies' actions there."""

STARTS, WITNESSES, JUDGES = 256, 8192, 1024
"""First states of episodes whose values are averaged, logged transitions that correct values, and those of them
that judge coverage."""

DRAWS = 16
"""Of a stochastic policy's action at a state."""

CHUNKS = 50
"""Parts of a fit, between which it tells how far it is and looks whether values have settled."""

WATCHED = 64
"""Policies whose values must settle, and first states at which they are looked at."""

COVERED = 4.0
"""The most coverage of a policy that is trusted, as a multiple of the data's own."""

FAR_QUANTILE = 0.99
"""Of the distances from each logged pair (s, a) to the nearest other one: what is farther is far."""

FAR = 0.25
"""The largest share of what a trusted policy does that is far from all that was logged."""

CONCENTRATED = 1000.0
"""The most logged rows of which one counts for a policy that is trusted."""

WIDENED = 2.0
"""Critics that learn from the same logs also err together. Intervals are wider by this factor than disagreement
alone would have them; read off two tasks of the study of evaluation, which tells how often values lie inside."""

AGREED = 0.5
"""The widest half of an interval of a policy that is trusted, as a share of the range of values."""

WIDEST = 2**14
"""Neurons of a layer in a file."""

Progress = Callable[[float], None]
Watch = Callable[[Critic], Float[np.ndarray, " policies"]]


class Estimate(NamedTuple):
    """The value of a policy per episode start, in the units of the rewards."""

    mean: float
    """The mean of the critics, corrected."""
    low: float
    """Of the 90 % interval."""
    high: float
    heads: np.ndarray
    """What each critic of the ensemble says before its correction."""

    @property
    def deviation(self) -> float:
        """The standard error that the interval stands for."""
        return (self.high - self.low) / 3.29


class Signs(NamedTuple):
    """What the logged data and the critics' features say about a policy, without its value."""

    coverage: float
    """C(pi, mu) over that of the data's own actions."""
    far: float
    """The share of its pairs (s, a) that are farther from all logged ones than `FAR_QUANTILE` of these are."""
    concentrability: float
    """E_mu[(d_pi / d_mu)^2]: of so many logged rows one counts for the policy; 1 where the data are its own."""
    residual: float
    """The root mean squared TD error of its values on logged rows, over the range of values."""


class Pairs(NamedTuple):
    """States as critics see them, and actions."""

    obs: Float[Array, "rows obs"]
    act: Float[Array, "rows act"]


class Trust(NamedTuple):
    """Whether the data can judge a policy."""

    mark: bool
    coverage: float
    """C(pi, mu) over that of the data's own actions: 1 where it does what was logged, infinite outside."""
    spread: float
    """Half the interval over the range of values."""
    reason: str
    signs: Signs
    """All that was measured."""


class Row(NamedTuple):
    """One policy of a ranking."""

    name: str
    estimate: Estimate
    chance_best: float
    """Among those that are trusted; 0 for the others."""
    trust: Trust


class Ranking(NamedTuple):
    """All policies, the highest value first."""

    rows: list[Row]


class Sight(NamedTuple):
    """How critics see: observations with mean 0 and deviation 1, rewards centred, in units of values' deviation."""

    mean: np.ndarray
    deviation: np.ndarray
    reward_mean: float
    reward_scale: float

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """Returns observations as critics see them."""
        return np.clip((obs - self.mean) / self.deviation, -10, 10).astype(np.float32)

    def worth(self, values: np.ndarray, discount: float) -> np.ndarray:
        """Returns values in the rewards' own units."""
        return self.reward_mean / (1 - discount) + self.reward_scale * np.asarray(values, np.float64)

    def end_value(self, discount: float) -> np.float32:
        """Returns what it is worth to have ended, as critics see it."""
        return np.float32(-self.reward_mean / (1 - discount) / self.reward_scale)


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluator:
    """Critics that were fitted to logged data. They value policies by what these do, also ones they never met."""

    config: EvaluatorConfig
    interface: Interface
    """What policies see and do."""
    data: dict[str, Any]
    """What the data were, for reports."""
    names: tuple[str, ...]
    """The policies that it was fitted with."""
    sight: Sight
    probes: np.ndarray
    """(probes, obs_dim), states at which a policy's actions are its description."""
    starts: np.ndarray
    """(starts, obs_dim), first states of episodes."""
    witnesses: Rows
    """Some logged transitions as critics see them, and the raw next observations."""
    critics: Critic
    """Stacked."""
    updates: int
    """How many each critic has had."""
    span: float
    """How far values reach: the range of the known policies', and at least that of the data."""

    @staticmethod
    def fit(
        data: Dataset,
        policies: Sequence[Candidate],
        config: EvaluatorConfig | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> "Evaluator":
        """Returns an evaluator that has learned from data and policies; `progress` gets shares from 0 to 1."""
        config = config or EvaluatorConfig()
        rng = np.random.default_rng(seed)
        few = max(2000, MOST_NUMBERS // (len(policies) * data.act_dim))
        logged = data.thin(min(MOST_ROWS, few), rng)
        sight = _sight(logged, config.discount)
        probes = logged.obs[
            np.sort(rng.choice(len(logged.obs), config.probes, replace=len(logged.obs) < config.probes))
        ]
        rows = Rows(
            sight(logged.obs),
            logged.act,
            ((logged.reward - sight.reward_mean) / sight.reward_scale).astype(np.float32),
            logged.discount,
            sight(logged.next_obs),
        )
        problem = Problem(
            jax.tree.map(jnp.asarray, rows),
            jnp.asarray(sight.end_value(config.discount)),
            jnp.asarray(np.stack([_described(policy, probes, rng) for policy in policies])),
            jnp.asarray(np.stack([policy.act(logged.next_obs, rng) for policy in policies])),
            *_pools(config, len(logged.obs), len(policies), rng),
        )
        first = data.starts
        starts = first[np.sort(rng.choice(len(first), min(STARTS, len(first)), replace=False))]
        learned, updates = _learn(config, problem, seed, _watch(config, policies, problem, sight, starts), progress)
        chosen = np.sort(rng.choice(len(logged.obs), min(WITNESSES, len(logged.obs)), replace=False))
        witnesses = jax.tree.map(lambda leaf: np.asarray(leaf[chosen]), rows)._replace(
            next_obs=logged.next_obs[chosen]
        )
        names = tuple(policy.name for policy in policies)
        seen = (config, data.interface(), data.describe(), names, sight, probes, starts, witnesses)
        fitted = Evaluator(*seen, learned, updates, 1.0)
        known = [fitted.value(policy).mean for policy in policies]
        return dataclasses.replace(fitted, span=max(float(np.ptp(known)), 2 * sight.reward_scale))

    def value(self, policy: Candidate) -> Estimate:
        """Returns what a policy is worth per episode start."""
        rng, discount = np.random.default_rng(0), self.config.discount
        starts = np.repeat(self.starts, DRAWS, axis=0) if policy.stochastic else self.starts
        act, seen = policy.act(starts, rng), self.sight(starts)
        described, critics = _described(policy, self.probes, rng), self._critics_of(policy)
        if self.config.method == "fqe":
            found = own_start_values(critics, jnp.asarray(seen), jnp.asarray(act[None]))
        else:
            found = start_values(critics, jnp.asarray(described[None]), jnp.asarray(seen), jnp.asarray(act[None]))
        heads = self.sight.worth(np.asarray(found).reshape(-1), discount)
        change = 0.0
        if self.config.correct and self.config.method != "fqe":
            rows = self.witnesses._replace(next_obs=self.sight(self.witnesses.next_obs))
            next_act = policy.act(self.witnesses.next_obs, rng)
            facts = (described, rows, next_act, seen, act, np.float32(discount), self.sight.end_value(discount))
            change = self.sight.reward_scale * corrections(equations_of(critics, *jax.tree.map(jnp.asarray, facts)))
        corrected = heads + change
        if not np.isfinite(corrected).all():
            raise UsageError(f"the critics of this evaluator give {policy.name} no finite value; fit it again")
        mean, half = float(corrected.mean()), 0.0
        if len(heads) > 1:
            spread = WIDENED * _student(len(heads)) * heads.std(ddof=1) * math.sqrt(1 + 1 / len(heads))
            half = math.hypot(spread, mean - heads.mean())
        return Estimate(mean, mean - half, mean + half, heads)

    def trust(self, policy: Candidate) -> Trust:
        """Returns whether the data can judge a policy, and why."""
        return self._trust(policy, self.value(policy))

    def _trust(self, policy: Candidate, estimate: Estimate) -> Trust:
        signs = self.signs(policy)
        spread = (estimate.high - estimate.low) / 2 / self.span
        doubts = {
            "it goes where nothing was logged": not math.isfinite(signs.coverage),
            f"it leaves the data: coverage {signs.coverage:.1f}, above {COVERED:g}": signs.coverage > COVERED,
            f"{100 * signs.far:.0f} % of what it does is far from all that was logged": signs.far > FAR,
            f"one in {signs.concentrability:,.0f} logged rows says where it goes": not signs.concentrability
            <= CONCENTRATED,
            f"the critics disagree by {100 * spread:.0f} % of the range of values": spread > AGREED,
        }
        reason = next((why for why, doubted in doubts.items() if doubted), None)
        return Trust(reason is None, signs.coverage, spread, reason or "the data cover what it does", signs)

    def rank(self, policies: Sequence[Candidate], progress: Progress | None = None) -> Ranking:
        """Returns all policies by their value, each with its interval, its chance to be the best, and trust."""
        found = []
        for number, policy in enumerate(policies, start=1):
            estimate = self.value(policy)
            found.append((policy.name, estimate, self._trust(policy, estimate)))
            if progress is not None:
                progress(number / len(policies))
        trusted = [place for place, (*_, trust) in enumerate(found) if trust.mark]
        chances = np.zeros(len(found))
        if trusted:
            means, errors = np.array([(found[place][1].mean, found[place][1].deviation) for place in trusted]).T
            drawn = means + errors * np.random.default_rng(0).standard_normal((4000, len(trusted)))
            chances[trusted] = np.bincount(drawn.argmax(axis=1), minlength=len(trusted)) / 4000
        rows = [
            Row(name, estimate, float(chance), trust)
            for (name, estimate, trust), chance in zip(found, chances, strict=True)
        ]
        return Ranking(sorted(rows, key=lambda row: -row.estimate.mean))

    def _critics_of(self, policy: Candidate) -> Critic:
        """The critics that value a policy, stacked: with `fqe` its own, else all."""
        if self.config.method != "fqe":
            return self.critics
        if policy.name not in self.names:
            raise UsageError(f"fqe has no critic for {policy.name}; fit again with it, or use --method functional")
        number = self.names.index(policy.name)
        return jax.tree.map(lambda leaf: leaf[number][None], self.critics)

    def signs(self, policy: Candidate) -> Signs:
        """Returns what the data and the critics' features say about a policy, averaged over the critics.

        The states that it would meet are not known. Its own measure is taken apart as d_pi = (1 - gamma) starts +
        gamma P d_pi: first states, and logged next states weighted by how often the policy would come there, with
        the actions that it takes. What is far counts on all logged states too, whatever these weights are.
        """
        rng, starts, discount = np.random.default_rng(0), self.starts, self.config.discount
        rows = jax.tree.map(lambda leaf: leaf[:: -(-len(leaf) // JUDGES)], self.witnesses)
        critics, codes = self._critics_of(policy), _described(policy, self.probes, rng)
        own = Pairs(self.sight(rows.next_obs), policy.act(rows.next_obs, rng))
        first = Pairs(self.sight(starts), policy.act(starts, rng))
        facts = (codes, rows._replace(next_obs=own.obs), own, first, discount, self.sight.end_value(discount))
        of_each = _signs(critics, *jax.tree.map(jnp.asarray, facts))
        found = {name: float(np.mean(value)) for name, value in of_each.items()}
        found["concentrability"] = float(np.median(of_each["concentrability"]))  # one equation may be singular
        found["residual"] *= self.sight.reward_scale / self.span
        return Signs(**found)

    # Files

    def save(self, folder: str) -> None:
        """Writes a folder of safetensors and JSON, without code and without policies."""
        groups = {
            "critics": flatten(self.critics),
            "data": {"probes": self.probes, "starts": self.starts, "samples": self.interface.samples}
            | {f"witness_{name}": array for name, array in self.witnesses._asdict().items()}
            | {"mean": np.float32(self.sight.mean), "deviation": np.float32(self.sight.deviation)},
        }
        facts = {
            "evaluator": FORMAT,
            "config": dataclasses.asdict(self.config),
            "interface": self.interface.facts(),
            "data": self.data,
            "names": list(self.names),
            "updates": self.updates,
            "reward_mean": self.sight.reward_mean,
            "reward_scale": self.sight.reward_scale,
            "span": self.span,
            "sizes": {name: len(array) for name, array in groups["data"].items()},
        }
        checkpoint.save(folder, groups, facts)

    @staticmethod
    def load(folder: str) -> "Evaluator":
        """Returns the evaluator in a folder that `save` has written; nothing in it is executed."""
        place = Place.of(folder)
        if not (place / checkpoint.MANIFEST).is_file():
            raise UsageError(
                f"{folder} is not a fitted evaluator; name a folder that fcritic rank --save has written"
            )
        facts = checkpoint.verify(place, [])["facts"]
        config, seen = _config(facts, folder), Interface.of(facts.get("interface"), None, folder)
        names, sizes, data = (facts.get(name) for name in ("names", "sizes", "data"))
        numbers = [facts.get(name) for name in ("reward_mean", "reward_scale", "span")]
        updates = facts.get("updates")
        sound = (
            isinstance(names, list)
            and 0 < len(names) <= MOST_ROWS
            and all(isinstance(name, str) for name in names)
            and isinstance(sizes, dict)
            and all(type(size) is int and 0 < size <= MOST_ROWS for size in sizes.values())
            and type(updates) is int
            and 0 < updates <= config.steps
            and _is_description(data)
            and all(type(number) in (int, float) and -1e30 < number < 1e30 for number in numbers)
            and numbers[1] > 0 < numbers[2]
        )
        like = _data_like(config, seen, sizes) if sound else None
        if like is None:
            raise UsageError(f"{folder} is not a fitted evaluator of this version; fit it again")
        critic = jax.eval_shape(
            lambda key: config.init(seen.obs_dim, seen.act_dim, 1, key).critic.params, jax.random.key(0)
        )
        count = config.critics(len(names))
        critic = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape[1:]), leaf.dtype), critic)
        arrays, _ = checkpoint.load(place, ["critics", "data"], {"critics": critic, "data": like})
        for group in arrays.values():
            for name, array in group.items():
                if not np.isfinite(array).all():
                    raise UsageError(f"{folder}: {name} is not finite; fit it again")
        found = arrays["data"]
        if not (found["deviation"] > 0).all():
            raise UsageError(f"{folder}: deviation is not above 0; fit it again")
        sight = Sight(found["mean"], found["deviation"], numbers[0], numbers[1])
        witnesses = Rows(*(found[f"witness_{name}"] for name in Rows._fields))
        seen = dataclasses.replace(seen, samples=found["samples"])
        networks = unflatten(critic, arrays["critics"])
        states = (found["probes"], found["starts"], witnesses)
        return Evaluator(config, seen, data, tuple(names), sight, *states, networks, updates, numbers[2])


FORMAT = 3


def _sight(logged: Transition, discount: float) -> Sight:
    """Centred rewards are scaled so that a tenth of the values that they could lead to is 1."""
    mean = float(logged.reward.mean(dtype=np.float64))
    scale = float(logged.reward.std(dtype=np.float64)) / (1 - discount) / 10
    deviation = logged.obs.std(axis=0, dtype=np.float64) + 1e-3
    return Sight(
        logged.obs.mean(axis=0, dtype=np.float64).astype(np.float32),
        deviation.astype(np.float32),
        mean,
        scale if scale > 1e-12 else 1.0,
    )


@jax.jit
def _signs(
    critics: Critic,
    described: Float[Array, "probes _"],
    logged: Rows,
    own: Pairs,
    first: Pairs,
    discount: Float[Array, ""],
    end_value: Float[Array, ""],
) -> dict[str, Float[Array, "..."]]:
    """What each critic's features and values say about a policy; see `Signs`."""
    pairs = [jnp.concatenate([each.obs, each.act], axis=1) for each in (logged, own, first)]
    scale = jnp.std(pairs[0], axis=0) + 1e-3
    taken, met, begun = (each / scale[None] for each in pairs)
    each = jnp.arange(len(taken))
    usual = jnp.quantile(trust_metrics.nearest(taken, taken, each), FAR_QUANTILE)
    distances = jnp.concatenate([trust_metrics.nearest(met, taken, each), trust_metrics.nearest(begun, taken)])
    away = (distances > usual) * 1.0
    begins = jnp.full(len(begun), (1 - discount) / len(begun))
    usual_weights = jnp.concatenate([discount * logged.discount / len(taken), begins])
    usually_away = jnp.average(away, weights=usual_weights)

    def by_one(critic: Critic) -> dict[str, Float[Array, ""]]:
        codes = critic.codes(described[None])
        seen = lambda pairs: critic.head.features(*inputs(codes, pairs.obs[None], pairs.act[None]))[0]
        worth = lambda pairs: values(critic.head, codes, pairs.obs[None], pairs.act[None])[0]
        taken = Pairs(logged.obs, logged.act)
        here, there, begun = seen(taken), seen(own), seen(first)
        norm = trust_metrics.norm(here)
        ahead = discount * logged.discount
        visited = trust_metrics.visits(norm, here, there, begun, ahead)
        weights = jnp.concatenate([ahead * visited.clip(0.0) / len(visited), begins])
        pairs = jnp.concatenate([there, begun])
        covered = trust_metrics.coverage(norm, pairs, weights) / norm.rank
        left_out = norm.share_outside(pairs, weights)
        after = logged.discount * worth(own) + (1 - logged.discount) * end_value
        error = logged.reward + discount * after - worth(taken)
        return {
            "coverage": jnp.where(left_out > trust_metrics.OUTSIDE, jnp.inf, covered),
            "far": jnp.maximum(jnp.average(away, weights=weights), usually_away),
            "concentrability": trust_metrics.concentrability(visited),
            "residual": jnp.sqrt(jnp.mean(error**2)),
        }

    return jax.vmap(by_one)(critics)


def _described(policy: Candidate, probes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The means and deviations (probes, 2 act) of a policy's actions at the probes."""
    if not policy.stochastic:
        act = policy.act(probes, rng)
        return np.concatenate([act, np.zeros_like(act)], axis=1)
    drawn = policy.act(np.repeat(probes, DRAWS, axis=0), rng).reshape(len(probes), DRAWS, -1)
    return np.concatenate([drawn.mean(axis=1), drawn.std(axis=1)], axis=1)


def _pools(config: EvaluatorConfig, rows: int, policies: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """For each critic the numbers of the rows and of the policies that it learns from."""
    critics = config.critics(policies)
    if config.method == "fqe":
        return jnp.tile(jnp.arange(rows), (critics, 1)), jnp.arange(critics)[:, None]
    share = max(1, round(config.share * policies))
    known = np.stack([rng.permutation(policies)[:share] for _ in range(critics)])
    return jnp.asarray(rng.integers(0, rows, (critics, rows)), jnp.int32), jnp.asarray(known, jnp.int32)


def _learn(
    config: EvaluatorConfig, problem: Problem, seed: int, watch: Watch, progress: Progress | None
) -> tuple[Critic, int]:
    """Critics and the number of their updates.

    The step of Adam is constant until the values have settled, or three quarters of the steps are done; it then
    falls over a third as many updates as there have been.
    """
    key = jax.random.key(seed)
    obs_dim, act_dim = problem.rows.obs.shape[-1], problem.rows.act.shape[-1]
    fitted = config.init(obs_dim, act_dim, len(problem.row_pool), key)
    count, done, seen = -(-config.steps // CHUNKS), 0, []
    high, end = -(-3 * config.steps // 4), config.steps
    while done < end:
        part = max(0.0, (done + count / 2 - high) / max(1, end - high))
        rate = config.learning_rate * (0.525 + 0.475 * math.cos(math.pi * part))
        count = min(count, end - done)
        fitted, metrics = config.learn(fitted, problem, key, done, rate, count)
        done += count
        if not math.isfinite(float(metrics["loss"])):
            raise UsageError("the fit has diverged; lower --learning-rate or look for outliers in the rewards")
        seen.append(watch(fitted.critic.net))
        if done < high and _settled(np.array(seen), config.settled):
            high, end = done, min(end, done + -(-done // 3))
        if progress is not None:
            progress(done / end)
    return fitted.critic.net, done


def _watch(
    config: EvaluatorConfig, policies: Sequence[Candidate], problem: Problem, sight: Sight, starts: np.ndarray
) -> Watch:
    """What tells the values of some of the policies that are fitted."""
    rng, starts = np.random.default_rng(0), starts[:WATCHED]
    chosen = np.unique(np.linspace(0, len(policies) - 1, WATCHED).astype(int))
    seen = jnp.asarray(sight(starts))
    act = jnp.asarray(np.stack([policies[number].act(starts, rng) for number in chosen]))

    def values(critics: Critic) -> Float[np.ndarray, " policies"]:
        if config.method == "fqe":
            return np.asarray(own_start_values(jax.tree.map(lambda leaf: leaf[chosen], critics), seen, act))
        return np.asarray(start_values(critics, problem.probes[chosen], seen, act)).mean(axis=0)

    return values


def _settled(seen: Float[np.ndarray, "times policies"], most: float) -> bool:
    """Whether values have moved by less than a share of their range, from one fifth of the times to the next."""
    fifth = len(seen) // 5
    if fifth < 2 or most == 0:
        return False
    now, before = seen[-fifth:].mean(axis=0), seen[-2 * fifth : -fifth].mean(axis=0)
    return bool(np.abs(now - before).mean() < most * np.ptp(now))


def _student(count: int) -> float:
    """The 95 % quantile of Student's distribution for the mean of so many critics."""
    from scipy.stats import t

    return float(t.ppf(0.95, count - 1))


def _is_description(data: Any) -> bool:
    """Whether this could be what `Dataset.describe` returns, as far as reports tell of it."""
    return (
        isinstance(data, dict)
        and isinstance(data.get("sources"), list)
        and all(isinstance(name, str) for name in data["sources"])
        and all(type(data.get(name)) is int and 0 <= data[name] < 2**48 for name in ("transitions", "episodes"))
        and isinstance(data.get("task", 0), str | None)
    )


def _config(facts: dict[str, Any], folder: str) -> EvaluatorConfig:
    """The configuration in a file, if each option has the type and a size that one can have."""
    stored, hints = facts.get("config"), get_type_hints(EvaluatorConfig)
    if facts.get("evaluator") != FORMAT or not isinstance(stored, dict) or stored.keys() != hints.keys():
        raise UsageError(f"{folder} is not a fitted evaluator of this version; fit it again")
    values = {name: _option(kind, stored[name]) for name, kind in hints.items()}
    if None in values.values():
        name = next(name for name, value in values.items() if value is None)
        raise UsageError(f"{folder} has an unsound {name}; fit it again")
    return EvaluatorConfig(**values)


def _option(kind: Any, value: Any) -> Any:
    """An option of this type, or None for what is not one."""
    if get_origin(kind) is Literal:
        return value if value in get_args(kind) else None
    if get_origin(kind) is tuple:
        sound = (
            isinstance(value, list)
            and len(value) <= 64
            and all(type(each) is int and each <= WIDEST for each in value)
        )
        return tuple(value) if sound else None
    if kind is bool:
        return value if type(value) is bool else None
    if kind is int:
        return value if type(value) is int and value <= 2**31 else None
    return float(value) if type(value) in (int, float) else None


def _data_like(config: EvaluatorConfig, seen: Interface, sizes: dict[str, int]) -> dict[str, Any] | None:
    """The shapes of the arrays beside the critics; none where they do not fit together."""
    wide = {"witness_act": (seen.act_dim,), "witness_reward": (), "witness_discount": ()}
    witnesses = [f"witness_{name}" for name in Rows._fields]
    names = ["probes", "starts", "samples", *witnesses]
    if sizes.keys() != {*names, "mean", "deviation"} or sizes["probes"] != config.probes:
        return None
    if len({sizes[name] for name in witnesses}) > 1:
        return None
    shape = lambda *each: jax.ShapeDtypeStruct(each, np.float32)
    like = {name: shape(sizes[name], *wide.get(name, (seen.obs_dim,))) for name in names}
    return like | {name: shape(seen.obs_dim) for name in ("mean", "deviation")}
