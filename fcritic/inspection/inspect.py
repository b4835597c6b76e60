"""All that is looked at, gathered into plain numbers that a page or a program can use."""

from collections.abc import Callable
import time
from typing import Any

import numpy as np

from fcritic import ensembles
from fcritic.agents.fac import FAC
from fcritic.errors import UsageError
from fcritic.inspection import predictions, slices
from fcritic.inspection.agreement import agreement, principal
from fcritic.inspection.rollouts import WIDTH, Returns, Rollouts
from fcritic.retention import newest_first
from fcritic.runs import RunDirectory
from fcritic.saving import load_policies
from fcritic.trained import TrainedAgent

TOP_PROBES = 8
"""Probe states that are written out."""

Say = Callable[[str], None]


def inspect(
    agent: TrainedAgent, corners: tuple[int, int, int], count: int, episodes: int, say: Say
) -> dict[str, Any]:
    """Looks into an agent: a slice and a line of policies, the codes of its actors, and its probe states."""
    require_functional(agent)
    slices.require_corners(corners, agent.actors)
    start = time.monotonic()
    square = slices.plane(agent.policies, corners, *slices.grid(count))
    on_line = slices.plane(agent.policies, corners, *slices.line(count))
    rollouts = Rollouts(agent, episodes, min(ensembles.size(square), WIDTH))
    try:
        seen = _measure(rollouts, square, "slice", say)
        line_seen = _measure(rollouts, on_line, "line", say)
    finally:
        rollouts.close()
    say("asking the critics")
    report = {
        "agent": _facts(agent, seen) | {"corners": list(corners), "episodes": episodes},
        "places": slices.places(count).tolist(),
        "slice": _beside(predictions.values(agent, square, seen.first), seen),
        "line": {"x": slices.line(count)[0].tolist()}
        | _beside(predictions.values(agent, on_line, seen.first), line_seen),
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


def _measure(rollouts: Rollouts, policies: Any, name: str, say: Say) -> Returns:
    total = ensembles.size(policies) * rollouts.episodes
    say(f"running the {name}: 0 of {total} episodes")
    return rollouts.measure(policies, lambda done: say(f"running the {name}: {done} of {total} episodes"))


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


def _beside(predicted: np.ndarray, seen: Returns) -> dict[str, Any]:
    """Predictions of every critic beside what was measured, and how well they agree."""
    plain, discounted = seen.plain.mean(axis=1), seen.discounted.mean(axis=1)
    judge = lambda values: agreement(values, discounted) | {"rank_plain": agreement(values, plain)["rank"]}
    return {
        "predicted": predicted.tolist(),
        "discounted": discounted.tolist(),
        "plain": plain.tolist(),
        "deviation": {"discounted": seen.discounted.std(axis=1).tolist(), "plain": seen.plain.std(axis=1).tolist()},
        "agreement": {"mean": judge(predicted.mean(axis=0)), "critics": [judge(each) for each in predicted]},
    }


def _embedding(agent: TrainedAgent) -> dict[str, Any]:
    """The codes of the actors of every checkpoint that is kept, by today's encoders, on two components."""
    run, frames, found = RunDirectory.open_existing(agent.directory), [], []
    place = agent.config.seed_numbers.index(agent.seed)
    for path in reversed(newest_first(run.checkpoints)):
        policies, normalizer, _ = load_policies(agent.config, path, spec=agent.spec)
        own = [ensembles.member(tree, place) for tree in (policies, normalizer)]
        found.append(predictions.codes(agent, *own))
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
    for own, probes in zip(found, states, strict=True):
        order = np.argsort(-own)
        share = own / (own.sum() or 1.0)
        top = [{"probe": int(i), "share": float(share[i]), "state": probes[i].tolist()} for i in order[:TOP_PROBES]]
        told.append({"sensitivity": own[order].tolist(), "top": top})
    return told
