"""All that is looked at in an agent, gathered into plain numbers, and one HTML file that shows them."""

from collections.abc import Callable
from importlib.resources import files
import math
import time
from typing import Any

from jaxtyping import Float
import numpy as np

from fcritic import ensembles
from fcritic.agents.cloud import plane
from fcritic.agents.fac import FAC
from fcritic.api.load import TrainedAgent
from fcritic.errors import CheckpointError, UsageError
from fcritic.logs.metrics import ASKED, CORRECTED, KNOWLEDGE, SIGNS, each_row
from fcritic.runs.checkpoint import newest_first
from fcritic.runs.directory import RunDirectory
from fcritic.training.knowledge import agreement
from fcritic.training.saving import load_policies
from fcritic.view.inspection import measure
from fcritic.view.inspection.measure import WIDTH, Returns, Rollouts
from fcritic.view.inspection.replayed import Replayed
from fcritic.view.page import as_script_data, names_and_bounds


def principal(points: Float[np.ndarray, "n dims"]) -> tuple[Float[np.ndarray, "n 2"], list[float]]:
    """Points on their two principal components, and the share of the variance that each holds."""
    centred = points - points.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    flat = np.zeros((len(points), 2))
    kept = min(2, len(sizes))
    flat[:, :kept] = left[:, :kept] * sizes[:kept]
    total = float((sizes**2).sum()) or 1.0
    shares = [float(size**2) / total for size in sizes[:2]]
    return flat, shares + [0.0] * (2 - len(shares))


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
    measure.require_corners(corners, agent.actors)
    start = time.monotonic()
    x, y = measure.points(count)
    policies = plane(agent.policies, corners, x, y)
    seen = _measure(agent, policies, episodes, say)
    say("asking the critics")
    predicted = _finite(measure.values(agent, policies, seen.first), agent)
    replayed, change = Replayed.of(agent), None
    if replayed is not None:
        change = _finite(replayed.correction(policies, seen.first, len(x)), agent)
    square, line = np.arange(count**2), measure.on_line(count)
    report = {
        "agent": _facts(agent, seen) | {"corners": list(corners), "episodes": episodes},
        "places": measure.places(count).tolist(),
        "slice": _beside(predicted, change, seen, square),
        "line": {"x": x[line].tolist()} | _beside(predicted, change, seen, line),
        "embedding": _embedding(agent),
        "probes": _probes(agent, seen.first, corners),
        "trust": None if replayed is None else replayed.trust(),
    }
    report["names"] = names_and_bounds(agent.units, agent.spec.obs_dim)
    report["knowledge"] = told_in_training(agent)
    return report | {"seconds": round(time.monotonic() - start, 1)}


def told_in_training(agent: TrainedAgent) -> dict[str, Any] | None:
    """What the critics knew of each kind of policies when they were last asked (`train --knowledge`)."""
    run, found = RunDirectory.open_existing(agent.directory), None
    if run.metrics.status() is None:
        return None
    for _, row in each_row(run.metrics):
        if row.get("kind") == KNOWLEDGE and row.get("seed") == agent.seed:
            found = row
    if found is None:
        return None
    number = lambda value: value if isinstance(value, float) and math.isfinite(value) else None
    asked = [kind for kind in ASKED if f"rank_{kind}" in found]
    of = lambda kind, after: {sign: number(found.get(f"{sign}_{kind}{after}")) for sign in SIGNS}
    kinds = {kind: of(kind, "") | {"corrected": of(kind, CORRECTED)} for kind in asked}
    return {"frame": found.get("env_steps"), "kinds": kinds, "words": ASKED}


def require_functional(agent: TrainedAgent) -> None:
    """Refuses agents whose critics do not see the policy."""
    if not (isinstance(agent.config.agent, FAC) and agent.config.agent.sees_policies):
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
    critics: Any = agent.critics
    config, discount = agent.config, agent.config.agent.discount
    return {
        "run": agent.directory.resolve().name,
        "recipe": config.recipe,
        "task": config.task,
        "seed": agent.seed,
        "frame": agent.frame,
        "actors": agent.actors,
        "critics": ensembles.size(critics.head),
        "discount": discount,
        "longest": seen.longest,
        "beyond": discount**seen.longest,
    }


def _beside(predicted: np.ndarray, change: np.ndarray | None, seen: Returns, chosen: np.ndarray) -> dict[str, Any]:
    """For chosen policies, predictions of every critic beside what was measured, and how well they agree.

    Where there is a replay also the critics' mean, corrected by what it says of each policy.
    """
    predicted = predicted[:, chosen]
    plain, discounted = seen.plain[chosen].mean(axis=1), seen.discounted[chosen].mean(axis=1)
    judge = lambda values: agreement(values, discounted) | {"rank_plain": agreement(values, plain)["rank"]}
    corrected = None if change is None else predicted.mean(axis=0) + change[chosen]
    return {
        "predicted": predicted.tolist(),
        "corrected": None if corrected is None else corrected.tolist(),
        "discounted": discounted.tolist(),
        "plain": plain.tolist(),
        "deviation": {
            "discounted": seen.discounted[chosen].std(axis=1).tolist(),
            "plain": seen.plain[chosen].std(axis=1).tolist(),
        },
        "agreement": {"mean": judge(predicted.mean(axis=0)), "critics": [judge(each) for each in predicted]}
        | ({} if corrected is None else {"corrected": judge(corrected)}),
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
        found.append(_finite(measure.codes(agent, *own), agent))
        frames.append(int(path.name.removeprefix("step-")))
    critics, encoder = [], getattr(agent.critics, "encoder")  # noqa: B009
    for codes in np.moveaxis(np.stack(found), 1, 0)[: 1 if encoder.config.shared else None]:
        flat, shares = principal(codes.reshape(-1, codes.shape[-1]))
        critics.append({"points": flat.reshape(len(frames), -1, 2).tolist(), "shares": shares})
    return {"frames": frames, "critics": critics}


def _probes(agent: TrainedAgent, first: np.ndarray, corners: tuple[int, int, int]) -> list[dict[str, Any]]:
    """For every critic the sensitivity to each probe state, and what the states that matter most are like.

    Of these the observation and what the three actors do there, in the task's units.
    """
    found, states = measure.sensitivity(agent, agent.policies, first), measure.probes(agent)
    told = []
    _finite(found, agent)
    for own, probes in zip(found, states, strict=True):
        order = np.argsort(-own)
        share = own / (own.sum() or 1.0)
        chosen = order[:TOP_PROBES]
        acts = np.stack([agent.act(probes[chosen], actor).reshape(len(chosen), -1) for actor in corners], axis=1)
        top = [
            {"probe": int(i), "share": float(share[i]), "state": probes[i].tolist(), "actions": act.tolist()}
            for i, act in zip(chosen, acts, strict=True)
        ]
        told.append({"sensitivity": own[order].tolist(), "top": top})
    return told


_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"


def page(report: dict[str, Any]) -> str:
    """The whole file."""
    text = lambda name: (files("fcritic.view.inspection") / name).read_text(encoding="utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
        f'content="{_POLICY}"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>inspect</title><link rel="icon" href="data:,"><style>{text("view.css")}</style></head>'
        f"<body>{text('view.html')}"
        f'<script type="application/json" id="data">{as_script_data(_rounded(report))}</script>'
        f"<script>{text('drawing.js')}\n{text('view.js')}</script></body></html>"
    )


def _rounded(value: Any) -> Any:
    """Six digits are enough for a picture."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value
