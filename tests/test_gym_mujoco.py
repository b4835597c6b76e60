"""Every MuJoCo task of Gymnasium: an agent trains, is stopped in mid-episode, goes on exactly and is shown."""

import dataclasses

import gymnasium
import pytest
from test_envs_gym_state import MUJOCO, REFUSED
from test_train import stop_after
from viewer_pages import outcome_of

import fcritic
from fcritic.cli.dispatch import run
from fcritic.config import TrainConfig
from fcritic.logs.metrics import read_rows
from fcritic.runs.fingerprint import fingerprint
from fcritic.training.loop import train

SMALL = {"actor_hidden": (4,), "critic_hidden": (4,), "batch_size": 2}
OFTEN = {"warmup": 400, "replay": 300, "eval_every": 500, "log_every": 250}


def test_these_are_all_of_them():
    names = "Ant HalfCheetah Hopper Walker2d Humanoid HumanoidStandup Swimmer Reacher Pusher"
    names = [*names.split(), "InvertedPendulum", "InvertedDoublePendulum"]
    assert {f"{name}-v{version}" for name in names for version in (4, 5)} == {*MUJOCO}


@pytest.mark.filterwarnings("ignore:.*is out of date")
@pytest.mark.parametrize("task", sorted({*MUJOCO} - {REFUSED}))
def test_a_task_is_trained_continued_exactly_and_replayed(task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where MuJoCo leaves a file with its warnings
    config = TrainConfig.of("td3", task=task, steps=500, **OFTEN)
    config = dataclasses.replace(config, agent=dataclasses.replace(config.agent, **SMALL))
    whole = train(config, tmp_path / "whole", quiet=True)
    stop_after(437, config, tmp_path / "parts")
    assert run(["resume", "parts", "--quiet"]) == 0
    assert fingerprint(tmp_path / "parts") == fingerprint(whole.path)
    rows = list(read_rows(whole.path / "metrics.jsonl"))
    assert [row["env_steps"] for row in rows if row["kind"] == "evaluation"] == [500]
    assert sum(row["length"] for row in rows if row["kind"] == "episode") <= 500

    shown = outcome_of("replay", "whole", "--episode-seed", "3")
    assert shown["geometry"] and (whole.path / "replay.html").stat().st_size > 10_000
    total, steps = played(task, fcritic.load("whole"), seed=3)
    assert shown["actors"][0]["steps"] == steps
    assert shown["actors"][0]["return"] == pytest.approx(total, rel=1e-4, abs=1e-3)


def played(task, agent, seed):
    """The return and the length of an episode in Gymnasium itself, without any code of ours around it."""
    env = gymnasium.make(task)
    obs, total, steps, over = env.reset(seed=seed)[0], 0.0, 0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(agent.act(obs))
        total, steps, over = total + reward, steps + 1, terminated or truncated
    env.close()
    return total, steps
