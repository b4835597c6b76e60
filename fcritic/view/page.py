"""Episodes as one HTML file that needs nothing else: no network, no library, no drawing on this machine."""

from html import escape
from importlib.resources import files
import json
import re
from typing import Any

import numpy as np

from fcritic.envs import Units
from fcritic.training.value_error import returns_to_go
from fcritic.view.episode import Episode
from fcritic.view.scene import ROTATION_ERROR, in_box, pack_poses, position_error, text_of
from fcritic.view.values import Values, whole_returns

SCRIPTS = ("mathematics.js", "shapes.js", "drawing.js", "traces.js", "camera.js", "player.js")
"""The program of the page, in order."""

MOST_TRACES = 64
"""Numbers of an observation that are drawn at most."""


def page(title: str, data: dict[str, Any]) -> str:
    """The whole file. `data` may hold any text: none of it can become markup or script."""
    script = "\n".join(_text(name) for name in SCRIPTS)
    parts = {"title": escape(title), "style": _text("replay.css"), "script": script, "data": as_script_data(data)}
    # In one pass, so that a name inside the data is not taken for a place to fill.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _text("replay.html"))


def as_script_data(data: Any) -> str:
    """JSON that can stand inside a script element, where ``</script>`` or ``<!--`` would end or change it."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def in_units(units: Units, actions: np.ndarray) -> np.ndarray:
    """Actions in [-1, 1] as the task takes them, each flat."""
    return units.actions.scale(actions).reshape(len(actions), -1)


def names_and_bounds(units: Units, obs_dim: int) -> dict[str, Any]:
    """What the numbers of observations and actions are called, and the task's bounds of actions."""
    low, high = units.actions.low.ravel().tolist(), units.actions.high.ravel().tolist()
    names = {"observation_names": units.obs_names(obs_dim), "action_names": units.action_names}
    return names | {"action_low": low, "action_high": high}


def ranges(names: list[str], values: np.ndarray) -> dict[str, list[float]]:
    """The lowest and the highest of each number."""
    return dict(zip(names, np.stack([values.min(axis=0), values.max(axis=0)], axis=1).tolist(), strict=True))


def episode_data(
    episode: Episode, values: Values | None, gamma: float, moving: list[int], units: Units
) -> dict[str, Any]:
    """What the page needs of one episode, in the task's units; poses are those of the bodies that move."""
    steps = len(episode.rewards)
    found: dict[str, Any] = {
        "steps": steps,
        "return": episode.total_reward,
        "end": "task" if episode.terminated else "time limit" if episode.over else "cut",
        "seconds": episode.seconds,
        "times": text_of(episode.times),
        "rewards": text_of(episode.rewards),
        "actions": text_of(in_units(units, episode.actions).T),
        "observations": in_box(episode.obs[:, :MOST_TRACES]),
        "measured": text_of(returns_to_go(episode.rewards, gamma * episode.discounts)),
        "whole": whole_returns(steps, episode.terminated, gamma),
    }
    if values is not None:
        found |= {name: text_of(trace) for name, trace in values._asdict().items()}
    if episode.poses is not None:
        found |= {"poses": pack_poses(_steady(episode.poses[:, moving])), "centre": text_of(episode.centre)}
    return found


def moving_bodies(episodes: list[Episode]) -> list[int]:
    """The bodies whose pose changes in any of the episodes."""
    poses: Any = [episode.poses for episode in episodes]
    changes = [(each != poses[0][0]).any(axis=(0, 2)) for each in poses]
    return np.flatnonzero(np.any(changes, axis=0)).tolist()


def accuracy(found: list[dict[str, Any]]) -> dict[str, float]:
    """The most that a pose in the page can be off: a coordinate in metres, an angle in radians."""
    return {"position": max(position_error(each["poses"]) for each in found), "rotation": ROTATION_ERROR}


def honesty(episode: Episode, values: Values | None, gamma: float) -> dict[str, float] | None:
    """The mean of what the critic says and of what was measured, over the states where both can be compared."""
    whole = whole_returns(len(episode.rewards), episode.terminated, gamma)
    if values is None or whole == 0:
        return None
    measured = returns_to_go(episode.rewards, gamma * episode.discounts)[:whole]
    return {"states": whole, "value": float(values.value[:whole].mean()), "measured": float(measured.mean())}


def _steady(poses: np.ndarray) -> np.ndarray:
    """The same poses, with quaternions that do not jump to their negatives from one step to the next."""
    poses = poses.copy()
    turned = (poses[1:, :, 3:] * poses[:-1, :, 3:]).sum(axis=-1) < 0
    flip = np.where(np.cumsum(turned, axis=0) % 2, -1.0, 1.0)
    poses[1:, :, 3:] *= flip[..., None]
    return poses


def _text(name: str) -> str:
    return files("fcritic.view").joinpath(name).read_text(encoding="utf-8")
