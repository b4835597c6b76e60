"""A run's episodes, played and made into a page."""

from pathlib import Path
from typing import Any

from fcritic import envs
from fcritic.agents.sac import SAC
from fcritic.api.load import TrainedAgent
from fcritic.disk import Place
from fcritic.errors import writing
from fcritic.view.episode import LIMIT, Episode, actor_of, record
from fcritic.view.page import (
    accuracy,
    episode_data,
    honesty,
    in_units,
    moving_bodies,
    names_and_bounds,
    page,
    ranges,
)
from fcritic.view.scene import radius_of, scene_of, tracked_body
from fcritic.view.values import Values, critic_values

MOST_ACTORS = 10
"""Actors that a page shows where none are named."""


def write_replay(agent: TrainedAgent, actors: list[int], episode_seed: int, out: Path | Place) -> dict[str, Any]:
    """Plays one episode of each actor, all from the same start, writes the page and returns facts about it."""
    scene, episodes = play_all(agent, actors, episode_seed)
    values = [critic_values(agent, index, episode.obs) for index, episode in zip(actors, episodes, strict=True)]
    data = page_data(agent, actors, episode_seed, scene, episodes, values)
    text = page(f"{agent.config.task}: {agent.config.recipe}", data).encode()
    with writing("the page", str(out)):
        Place.of(out).replace(text)
    outcome = {name: data[name] for name in data if name not in ("scene", "episodes")}
    gamma, units = agent.config.agent.discount, agent.units
    told = [
        {name: shown[name] for name in ("actor", "return", "steps", "end")}
        | {"critic": honesty(episode, value, gamma)}
        | {"observations": ranges(units.obs_names(episode.obs.shape[1]), episode.obs)}
        | {"actions": ranges(units.action_names, in_units(units, episode.actions))}
        for shown, episode, value in zip(data["episodes"], episodes, values, strict=True)
    ]
    return {"page": str(out), "bytes": len(text), "geometry": scene is not None} | outcome | {"actors": told}


def play_all(agent: TrainedAgent, actors: list[int], seed: int) -> tuple[dict[str, Any] | None, list[Episode]]:
    """Returns how the task looks, and one episode of each actor."""
    config = agent.config
    env = envs.make(config.task, seed=seed, action_repeat=config.action_repeat)
    try:
        episodes = [record(env, actor_of(agent, index), seed, config.env_timeout) for index in actors]
        if episodes[0].poses is None:
            return None, episodes
        env.reseed(seed)
        env.reset()  # a task may draw sizes, places and colours at a reset: these are the episodes' own
        model, data = env.simulation() or (None, None)
        moving = moving_bodies(episodes)
        scene = scene_of(model) | {"moving": moving, "still": episodes[0].poses[0].tolist()}
        return scene | {"radius": radius_of(model, data, tracked_body(model, data))}, episodes
    finally:
        env.close()


def page_data(
    agent: TrainedAgent,
    actors: list[int],
    episode_seed: int,
    scene: dict[str, Any] | None,
    episodes: list[Episode],
    values: list[Values | None],
) -> dict[str, Any]:
    """Returns all data of the page."""
    config, units, moving = agent.config, agent.units, scene["moving"] if scene else []
    shown = [
        {"actor": index} | episode_data(episode, value, config.agent.discount, moving, units)
        for index, episode, value in zip(actors, episodes, values, strict=True)
    ]
    return {
        "task": config.task,
        "recipe": config.recipe,
        "seed": agent.seed,
        "frame": agent.frame if agent.best_frame is None else agent.best_frame,
        "best": agent.best_frame is not None,
        "episode_seed": episode_seed,
        "discount": config.agent.discount,
        "action_repeat": config.action_repeat,
        **names_and_bounds(units, episodes[0].obs.shape[1]),
        "error": accuracy(shown) if scene else None,
        "notes": _notes(agent, scene, episodes),
        "scene": scene,
        "episodes": shown,
    }


def _notes(agent: TrainedAgent, scene: dict[str, Any] | None, episodes: list[Episode]) -> list[str]:
    """What a reader must know to see it right."""
    notes = []
    if scene is None:
        notes.append(f"{agent.config.task} is not made with MuJoCo: the page has its traces, but nothing in 3D.")
    elif scene["coarser"]:
        notes.append("Meshes were made coarser to keep this page small.")
    if scene is not None and scene["skinned"]:
        notes.append("The model has a skin, which is not drawn; its shapes for collisions are.")
    if agent.best_frame is not None:
        notes.append("The critics of the best actors are not kept, so their values are not shown.")
    elif isinstance(agent.config.agent, SAC):
        notes.append("The critics of SAC also count entropy, which the measured return does not.")
    if not all(episode.over for episode in episodes):
        notes.append(f"Episodes that did not end were cut after {LIMIT:,} actions.")
    return notes
