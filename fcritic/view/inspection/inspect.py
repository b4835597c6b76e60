"""All that is looked at, gathered into plain numbers that a page or a program can use."""

from collections.abc import Callable
import time
from typing import Any

import numpy as np

from fcritic import ensembles
from fcritic.agents.fac import FAC
from fcritic.api.load import TrainedAgent
from fcritic.errors import CheckpointError, UsageError
from fcritic.runs.checkpoint import newest_first
from fcritic.runs.directory import RunDirectory
from fcritic.training.saving import load_policies
from fcritic.view.inspection import predictions, slices
from fcritic.view.inspection.inspect import agreement, principal
from fcritic.view.inspection.measure import WIDTH, Returns, Rollouts

TOP_PROBES = 8
"""Probe states that are written out."""

LARGEST = 1e15
"""Far beyond the value of any policy."""

Say = Callable[[str], None]


def inspect(
    agent: TrainedAgent, corners: tuple[int, int, int], count: int, episodes: int, say: Say
) -> dict[str, Any]:
    """Looks into an agent: a slice and a line of policies, the codes of its actors, and its probe states."""
    require_functional(agent)
    slices.require_corners(corners, agent.actors)
    start = time.monotonic()
    x, y = slices.points(count)
    policies = slices.plane(agent.policies, corners, x, y)
    seen = _measure(agent, policies, episodes, say)
    say("asking the critics")
    predicted = _finite(predictions.values(agent, policies, seen.first), agent)
    square, line = np.arange(count**2), slices.on_line(count)
    report = {
        "agent": _facts(agent, seen) | {"corners": list(corners), "episodes": episodes},
        "places": slices.places(count).tolist(),
        "slice": _beside(predicted, seen, square),
        "line": {"x": x[line].tolist()} | _beside(predicted, seen, line),
        "embedding": _embedding(agent),
        "probes": _probes(agent, seen.first),
    }
    return report | {"seconds": round(time.monotonic() - start, 1)}


def require_functional(agent: TrainedAgent) -> None:
    """Refuses agents whose critics do not see the policy."""
    if not (isinstance(agent.config.agent, FAC) and agent.config.agent.functional):
        raise UsageError(
            f"the critics of {agent.directory} ({agent.config.recipe}) do not see the policy: there is nothing to "
            "inspect; name a run of fac, fac-shared or fac-small"
        )


def _measure(agent: TrainedAgent, policies: Any, episodes: int, say: Say) -> Returns:
    count = ensembles.size(policies)
    turns = -(-count // WIDTH)
    rollouts = Rollouts(agent, episodes, -(-count // turns))  # so that none runs for nothing
    told = lambda done: say(f"running {count} policies: {done} of {count * episodes} episodes")
    try:
        told(0)
        return rollouts.measure(policies, told)
    finally:
        rollouts.close()


def _finite(values: np.ndarray, agent: TrainedAgent) -> np.ndarray:
    """Returns the values; refuses NaN and what is so large that its squares and sums would be infinite."""
    if not (np.abs(values) < LARGEST).all():
        raise UsageError(f"the critics of {agent.directory} give NaN or endless values; take an earlier checkpoint")
    return values


def _facts(agent: TrainedAgent, seen: Returns) -> dict[str, Any]:
    config, discount = agent.config, agent.config.agent.discount
    return {
        "run": agent.directory.resolve().name,
        "recipe": config.recipe,
        "task": config.task,
        "seed": agent.seed,
        "frame": agent.frame,
        "actors": agent.actors,
        "critics": ensembles.size(agent.critics.head),
        "discount": discount,
        "longest": seen.longest,
        "beyond": discount**seen.longest,
    }


def _beside(predicted: np.ndarray, seen: Returns, chosen: np.ndarray) -> dict[str, Any]:
    """For chosen policies, predictions of every critic beside what was measured, and how well they agree."""
    predicted = predicted[:, chosen]
    plain, discounted = seen.plain[chosen].mean(axis=1), seen.discounted[chosen].mean(axis=1)
    judge = lambda values: agreement(values, discounted) | {"rank_plain": agreement(values, plain)["rank"]}
    return {
        "predicted": predicted.tolist(),
        "discounted": discounted.tolist(),
        "plain": plain.tolist(),
        "deviation": {
            "discounted": seen.discounted[chosen].std(axis=1).tolist(),
            "plain": seen.plain[chosen].std(axis=1).tolist(),
        },
        "agreement": {"mean": judge(predicted.mean(axis=0)), "critics": [judge(each) for each in predicted]},
    }


def _embedding(agent: TrainedAgent) -> dict[str, Any]:
    """The codes of the actors of every checkpoint that is kept, by today's encoders, on two components."""
    run, frames, found = RunDirectory.open_existing(agent.directory), [], []
    place = agent.config.seed_numbers.index(agent.seed)
    for path in reversed(newest_first(run.checkpoints)):
        try:
            policies, normalizer, _ = load_policies(agent.config, path, spec=agent.spec)
        except CheckpointError:  # an older one; the newest whole one was loaded
            continue
        own = [ensembles.member(tree, place) for tree in (policies, normalizer)]
        found.append(_finite(predictions.codes(agent, *own), agent))
        frames.append(int(path.name.removeprefix("step-")))
    critics = []
    for codes in np.moveaxis(np.stack(found), 1, 0)[: 1 if agent.critics.encoder.config.shared else None]:
        flat, shares = principal(codes.reshape(-1, codes.shape[-1]))
        critics.append({"points": flat.reshape(len(frames), -1, 2).tolist(), "shares": shares})
    return {"frames": frames, "critics": critics}


def _probes(agent: TrainedAgent, first: np.ndarray) -> list[dict[str, Any]]:
    """For every critic the sensitivity to each probe state, and the states that matter most."""
    found, states = predictions.sensitivity(agent, agent.policies, first), predictions.probes(agent)
    told = []
    _finite(found, agent)
    for own, probes in zip(found, states, strict=True):
        order = np.argsort(-own)
        share = own / (own.sum() or 1.0)
        top = [{"probe": int(i), "share": float(share[i]), "state": probes[i].tolist()} for i in order[:TOP_PROBES]]
        told.append({"sensitivity": own[order].tolist(), "top": top})
    return told
