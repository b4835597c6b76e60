"""The second term of the off-policy gradient: how the direction suffers without it as behaviour moves away.

Protocol. In each problem a target policy is fixed and the behaviour policy moves away from it, its logits along a
random direction. J starts from the behaviour's stationary states, as in eq. (3), so all aim at one gradient.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from fcritic.results.plots import panels
from fcritic.study.spec import Findings, Study, Trainings, Verdict, judged
from fcritic.theory.control import Control, Fitted, TabularSoftmax, policy_gradient
from fcritic.theory.features import Successor
from fcritic.theory.mdp import FiniteMDP, float64
from fcritic.theory.problems import garnet, linear_mdp, river_swim
from fcritic.theory.trust import coverage
from studies.theory.control import exact_features

FORMULAS = {
    "both": "both terms (functional critic)",
    "first": "first term alone (Off-PAC)",
    "emphatic": "emphatic, exact emphasis",
    "emphatic-printed": "emphatic as printed in eq. (3)",
}
DISTANCES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""How far the behaviour's logits lie from the target's, along a direction of unit variance."""
TRANSITIONS = 5000
"""Of the behaviour policy, for a learned critic."""
LEARNED = ("linear MDP", "RiverSwim")
"""Families that also have a learned critic."""
LOST = 0.9
"""A mean cosine below this counts as a lost direction."""


def families(count: int) -> dict[str, list[tuple[FiniteMDP, Successor]]]:
    """Problems by family, `count` of each; RiverSwim is one problem, whose policies differ."""
    garnets = [garnet(seed) for seed in range(count)]
    rivers = [river_swim()] * count
    return {
        "linear MDP": [linear_mdp(seed) for seed in range(count)],
        "Garnet": [(mdp, exact_features(mdp)) for mdp in garnets],
        "RiverSwim": [(mdp, exact_features(mdp)) for mdp in rivers],
    }


def _cosine(one: Array, other: Array) -> Array:
    """Of two vectors; zero where one has no direction, as a gradient from data without any reward."""
    lengths = jnp.sqrt(jnp.sum(one**2) * jnp.sum(other**2))
    return jnp.where(lengths > 0, jnp.dot(one, other) / jnp.where(lengths > 0, lengths, 1.0), 0.0)


@float64
@jax.jit
def cosines(problem: Control, theta: Array, behaviours: Array, weights: Array) -> dict[str, Array]:
    """The cosine of each formula's gradient to the true one, for behaviours [n, S, A] and their weights [n, d]."""

    def one(mu: Array, xi: Array) -> dict[str, Array]:
        moved = dataclasses.replace(problem, rho=problem.mdp.stationary(mu))
        exact = policy_gradient("exact", moved, theta, xi, mu)
        found = {kind: policy_gradient(kind, moved, theta, xi, mu) for kind in FORMULAS}
        return {kind: _cosine(exact, each) for kind, each in found.items()}

    return jax.vmap(one)(behaviours, weights)


@float64
@functools.partial(jax.jit, static_argnums=3)
def learned_weights(problem: Control, pi: Array, behaviours: Array, seeds: int) -> Array:
    """Weights [n, seeds, d] of critics that learn from each behaviour's transitions."""
    critic, zero = Fitted(TRANSITIONS), jnp.zeros(problem.features.weights.shape)
    one = lambda mu, key: critic(problem, mu, pi, zero, key)
    keys = jax.random.split(jax.random.key(0), seeds)
    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(behaviours, keys)


def study(mdp: FiniteMDP, features: Successor, seed: int, seeds: int) -> dict[str, Any]:
    """All cosines of one problem: with exact values, and with learned ones where `seeds` is positive."""
    rng = np.random.default_rng(100 + seed)
    size = mdp.states * mdp.actions
    theta, direction = rng.normal(size=size), rng.normal(size=size)
    policy = TabularSoftmax(mdp.states, mdp.actions)
    pi = policy(theta)
    behaviours = np.stack([policy(theta + distance * direction) for distance in DISTANCES])
    problem = Control(mdp, features, policy, mdp.start)
    target = problem.pairs(pi)
    # The exact weights come first, then those of each seed.
    weights = np.tile(features.weights, (len(behaviours), 1, 1))
    if seeds:
        weights = np.concatenate([weights, learned_weights(problem, pi, behaviours, seeds)], axis=1)
    count = weights.shape[1]
    flat = cosines(problem, theta, np.repeat(behaviours, count, axis=0), weights.reshape(-1, weights.shape[-1]))
    found = {kind: values.reshape(-1, count) for kind, values in flat.items()}
    return {
        "distance": [np.sum(target.sum(1) * np.abs(mu - pi).sum(1)) / 2 for mu in behaviours],
        "coverage": [coverage(features(pi), target, problem.pairs(mu)) for mu in behaviours],
        "exact": {kind: values[:, 0] for kind, values in found.items()},
        "learned": {kind: values[:, 1:] for kind, values in found.items()},
    }


class SecondTerm(Study):
    """Cosines to the true gradient as behaviour moves away."""

    name = "second-term"
    question = (
        "The off-policy gradient needs its second term, or exact emphasis: without it the direction is lost as "
        "behaviour moves away from the target policy."
    )

    def find(self, runs: Trainings, quick: bool) -> Findings:
        """All families with exact values, some also with a learned critic."""
        count, seeds = (2, 5) if quick else (6, 20)
        found = {
            family: [
                study(mdp, features, seed, seeds if family in LEARNED else 0)
                for seed, (mdp, features) in enumerate(members)
            ]
            for family, members in families(count).items()
        }
        rows = [
            {
                "family": family,
                "problem": index,
                "distance": each["distance"][place],
                "coverage": each["coverage"][place],
            }
            | {kind: each["exact"][kind][place] for kind in FORMULAS}
            for family, studies in found.items()
            for index, each in enumerate(studies)
            for place in range(len(DISTANCES))
        ]
        return Findings(_claims(found), rows, _data(found))

    def draw(self, findings: Findings, path: Path) -> None:
        """One panel per family, and one with a learned critic."""
        colours = dict(zip(FORMULAS, ("C0", "C3", "C2", "C7"), strict=True))
        styles = dict(zip(FORMULAS, ("-", "-", "--", ":"), strict=True))
        shown = {f"{name}, exact values": curves for name, curves in findings.plot["exact"].items()}
        shown["RiverSwim, learned critic"] = findings.plot["learned"]["RiverSwim"]
        with panels(path, len(shown), "Cosine to the true off-policy gradient", width=3.9) as axes:
            for axis, (title, curves) in zip(axes, shown.items(), strict=True):
                for kind, label in FORMULAS.items():
                    axis.plot(
                        curves["distance"],
                        curves[kind],
                        styles[kind],
                        marker="o",
                        ms=3,
                        color=colours[kind],
                        label=label,
                    )
                axis.set_title(title, fontsize=10)
                axis.set_xlabel("distance of behaviour from target (total variation)")
                axis.set_ylim(min(-0.05, axis.get_ylim()[0]), 1.05)
            axes[0].set_ylabel("mean cosine")
            axes[0].legend(frameon=False, fontsize=8, loc="lower left")


def _mean(studies: list[dict], part: str) -> dict[str, np.ndarray]:
    values = {kind: np.mean([each[part][kind] for each in studies], axis=0) for kind in FORMULAS}
    values = {kind: value if value.ndim == 1 else value.mean(1) for kind, value in values.items()}
    return values | {"distance": np.mean([each["distance"] for each in studies], axis=0)}


def _data(found: dict[str, list[dict]]) -> dict[str, Any]:
    return {
        "exact": {family: _mean(studies, "exact") for family, studies in found.items()},
        "learned": {family: _mean(found[family], "learned") for family in LEARNED},
    }


def _claims(found: dict[str, list[dict]]) -> list[Verdict]:
    lowest = {
        kind: min(float(np.min(each["exact"][kind])) for studies in found.values() for each in studies)
        for kind in FORMULAS
    }
    exact = {
        "both": ("the sum of both terms", "eq-policy-grad-full", "paper"),
        "emphatic": (
            "the first term with m' = d_mu' (I - gamma P_pi)^-1",
            "eq-off-policy-formula-with-emphasis",
            "corrected",
        ),
        "emphatic-printed": (
            "the first term with m as printed",
            "eq-off-policy-formula-with-emphasis, to the letter",
            "paper",
        ),
    }
    always = [
        judged(
            f"With exact values {what} is the true gradient for every behaviour policy.",
            lowest[kind] > 1 - 1e-9,
            {"lowest cosine": lowest[kind]},
            source,
            whose,
        )
        for kind, (what, source, whose) in exact.items()
    ]
    return always + _claims_on_distance(found, lowest["first"])


def _claims_on_distance(found: dict[str, list[dict]], lowest: float) -> list[Verdict]:
    means = {family: _mean(studies, "exact") for family, studies in found.items()}
    start = min(float(mean["first"][0]) for mean in means.values())
    far = {family: float(mean["first"][-1]) for family, mean in means.items()}
    learned = {family: _mean(found[family], "learned") for family in LEARNED}
    return [
        judged(
            "The first term alone has the right direction where behaviour is the target policy itself.",
            start > 1 - 1e-9,
            {"lowest mean cosine there": start},
            "policy gradient theorem with rho = d_pi",
            "control",
        ),
        judged(
            f"Far away the first term alone loses the direction (mean cosine below {LOST}), in every family.",
            max(far.values()) < LOST,
            {"mean cosine at the farthest behaviour": far, "lowest of all": lowest},
            "section 2, after eq-policy-grad-full",
            "paper",
        ),
        judged(
            f"With a critic learned from {TRANSITIONS} transitions both terms point better than the first alone at "
            "the farthest behaviour.",
            all(curves["both"][-1] > curves["first"][-1] for curves in learned.values()),
            {
                family: {kind: float(curves[kind][-1]) for kind in ("both", "first", "emphatic")}
                for family, curves in learned.items()
            },
            "eq-our-gradient-formula",
            "paper",
        ),
    ]


STUDY = SecondTerm()
