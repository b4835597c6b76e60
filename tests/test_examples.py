"""The examples, run in small form: they work, and what they measure against known answers is right."""

import dataclasses
import importlib.util
import json
from pathlib import Path
import sys
import types

import numpy as np
import pytest

import fcritic
from fcritic import envs
from fcritic.agents import recipes
from fcritic.runs.directory import RunDirectory
from fcritic.training.loop import Training

EXAMPLES = Path(__file__).parents[1] / "examples"
ROBOT = f"{EXAMPLES}/own_robot/robot.py:make"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def small():
    """Compiled in little time."""
    return dataclasses.replace(fcritic.find_recipe("td3"), actor_hidden=(8,), critic_hidden=(9,), batch_size=8)


def test_the_robot_is_healthy_and_continues_exactly():
    report = fcritic.check(ROBOT, 400)
    assert report.named("error") == report.named("warning") == []
    assert {"resume", "mujoco"} <= set(report.named("note"))


def test_the_robot_falls_if_nothing_is_done_and_stands_with_a_plain_controller():
    """The hand-written one shows that the task can be solved, and that falling, not time, ends it."""
    lengths = []
    for gains in (np.zeros(5), np.array([0.3, 6.0, 0.6, 1.0, 0.0])):
        env = envs.make(ROBOT, seed=4)
        obs, last, length = env.reset(), False, 0
        while not last:
            obs, _, discount, last = env.step(np.array([np.clip(gains @ obs, -1, 1)]))
            length += 1
        lengths.append((length, discount))
    assert lengths[0][0] < 100 and lengths[0][1] == 0
    assert lengths[1] == (300, 1)


def test_the_notebook_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    """Its cells in turn, with fewer steps and a baseline that compiles in less time."""
    notebook = json.loads((EXAMPLES / "tour.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) == 4 and not any(cell["outputs"] for cell in cells)
    sizes = "warmup=20, batch_size=5, actor_hidden=(8,), critic_hidden=(9,), quiet=True"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recipes, "ALGORITHMS", recipes.ALGORITHMS.copy())
    monkeypatch.setattr("fcritic.config.ALGORITHMS", recipes.ALGORITHMS)
    module = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    for cell in cells:
        source = (
            "".join(cell["source"]).replace('"fac-small"', '"td3"').replace("eval_every=1_000", "eval_every=20")
        )
        source = source.replace("steps=6_000", f"steps=40, {sizes}").replace("steps=4_000", f"steps=40, {sizes}")
        exec(compile(source, "tour.ipynb", "exec"), vars(module))
    assert len(module.returns) == 2 and np.isfinite(module.total) and np.isfinite(module.found.mean)
    told = capsys.readouterr().out
    assert "TrainedAgent td3 on Pendulum-v1" in told and "give or take" in told
    assert fcritic.load("runs/mean", recipe=module.MeanTarget).frame == 40


def test_policy_evaluation_of_a_foreign_policy_class_comes_near_the_exact_answer(capsys):
    errors = example("own_policy").main(steps=400)
    assert errors[0] < 0.15
    assert "mean error of the value" in capsys.readouterr().out


def test_the_known_answer_is_that_of_a_rollout():
    own = example("own_policy")
    for gain in (0.1, 0.7):
        obs, act, total = 0.8, -0.3, 0.0
        for step in range(300):
            total -= own.DISCOUNT**step * (obs**2 + own.EFFORT * act**2)
            obs = own.DRIFT * obs + own.PUSH * act
            act = -gain * obs
        assert own.exact_value(gain, 0.8, -0.3) == pytest.approx(total, rel=1e-6)


def test_a_loop_of_ones_own_trains(small, capsys):
    returns = example("own_loop").main(steps=405, warmup=390, agent=small)
    assert len(returns) == 2 and all(-2000 < each < 0 for each in returns)


def test_values_of_policies_never_run_are_put_beside_rollouts(small, tmp_path, capsys):
    """On a probe with two steps, where a run's discounted return is known from its observations."""
    config = fcritic.TrainConfig(small, task="probe-policy", replay=40)
    with RunDirectory.create_or_open(tmp_path / "run", config.to_json(), "test") as run:
        training = Training.begin(config, run, quiet=True)
        training.save()  # untrained: what is told is wrong, what is run is right
        training.close()
    own = example("value_of_any_policy")
    agent = fcritic.load(tmp_path / "run")
    returns, starts = own.measured(agent, agent.policy(0), [5, 6])
    act = float(agent.act(np.ones(1))[0])  # the reward is obs * act, and the observations are 0 and 1
    np.testing.assert_allclose(returns, [0.99 * act] * 2, rtol=1e-5, atol=1e-7)
    assert starts.tolist() == [[0.0], [0.0]]
    assert -1 <= own.main(tmp_path / "run", episodes=1, copies=1) <= 1
    assert "rank correlation" in capsys.readouterr().out
    assert own.rank_correlation([1, 2, 3], [10, 30, 20]) == pytest.approx(0.5)
