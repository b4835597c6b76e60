"""A training that begins with another run's agents or with logged data, and one whose learning rate changes."""

import dataclasses
import json
import shutil
from typing import Literal

import numpy as np
import optax
import pytest

from benchmarks.attacks.small import train_until
from fcritic.agents import recipes
from fcritic.agents.recipes import find_recipe
from fcritic.agents.td3 import TD3
from fcritic.api.beginning import beginning
from fcritic.cli.dispatch import run as command
from fcritic.config import TrainConfig
from fcritic.errors import UsageError
from fcritic.logs.metrics import read_rows
from fcritic.runs import checkpoint
from fcritic.runs.directory import RunDirectory
from fcritic.runs.fingerprint import fingerprint
from fcritic.training.loop import FREE_FIELDS, Training, train
from fcritic.training.saving import learning_of
from fcritic.types import EnvSpec

SPEC = EnvSpec(6, 1)
"""Of acrobot-swingup."""


@pytest.fixture(scope="module")
def config():
    """Two seeds with two environments each; 20 iterations, half of them learn."""
    agent = dataclasses.replace(find_recipe("td3"), actor_hidden=(8,), critic_hidden=(9,), batch_size=5)
    often = {"eval_every": 400, "log_every": 200, "save_every": 2400}
    where = {"task": "acrobot-swingup", "action_repeat": 20, "envs": 2, "seeds": 2, "seed": 3}
    return TrainConfig(agent, recipe="td3", **where, steps=800, warmup=400, replay=60, **often)


@pytest.fixture(scope="module")
def source(config, tmp_path_factory):
    """A run whose agents have learned a little."""
    return train(config, tmp_path_factory.mktemp("beginning") / "source", quiet=True).path


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """Nine transitions, the reward is the number of the row."""
    rows = np.arange(9)
    obs = np.linspace(-1, 1, 54, dtype=np.float32).reshape(9, 6)
    fields = {"observations": obs, "next_observations": obs + 1, "actions": np.full((9, 1), 0.5, np.float32)}
    fields |= {"rewards": rows.astype(np.float32), "terminals": rows == 4, "timeouts": rows == 8}
    path = tmp_path_factory.mktemp("data") / "log.npz"
    np.savez(path, **fields)
    return str(path)


def first_of(config, **changes):
    config = dataclasses.replace(config, **changes)
    return beginning(config)(learning_of(config, SPEC))


def saved(path, newest=0):
    place = checkpoint.newest_first(path / "checkpoints")[newest]
    return checkpoint.load(place)


def test_each_seed_begins_with_the_one_of_its_number(config, source):
    arrays = saved(source)[0]["agent"]
    snapshot, notes = first_of(config, begin_from=str(source), seeds=1, seed=4)
    weight = snapshot.state.agent.actor.params.network.layers[0].weight
    np.testing.assert_array_equal(weight, arrays["agent/actor/params/network/layers/0/weight"][1:2])
    np.testing.assert_array_equal(snapshot.state.normalizer.mean, arrays["normalizer/mean"][1:2])
    assert snapshot.state.normalizer.updates.tolist() == [10]
    assert snapshot.progress.iteration == snapshot.progress.prefilled == 0
    assert notes == [f"beginning with the agents of {source} at frame 800"]
    np.testing.assert_array_equal(snapshot.best.policies.network.layers[0].weight[:, 0], weight)


def test_all_seeds_may_begin_with_an_only_one(config, tmp_path):
    train_until(dataclasses.replace(config, seeds=1), tmp_path / "only", 1)
    snapshot, _ = first_of(config, begin_from=str(tmp_path / "only"), seeds=3, seed=7)
    weight = np.asarray(snapshot.state.agent.actor.params.network.layers[0].weight)
    own = saved(tmp_path / "only")[0]["agent"]["agent/actor/params/network/layers/0/weight"]
    np.testing.assert_array_equal(weight, np.repeat(own, 3, axis=0))
    assert len(np.unique(np.asarray(snapshot.state.keys), axis=0)) == 3


def test_data_lie_in_the_replay_of_every_seed_and_are_no_frames(config, logged):
    snapshot, notes = first_of(config, data=(logged,))
    ring = snapshot.state.replay
    assert int(ring.written) == snapshot.progress.prefilled == 4
    rows = np.asarray(ring.rows)
    assert rows.shape == (2, 60, 2, 15) and not rows[:, 4:].any()
    rewards, discounts = rows[..., 7], rows[..., 8]
    assert rewards[0, :4].tolist() == [
        [0, 4],
        [1, 5],
        [2, 6],
        [3, 7],
    ]  # a part for each environment
    assert discounts[0, :4].tolist() == [[1, 0], [1, 1], [1, 1], [1, 1]]
    np.testing.assert_allclose(rows[0, 1, 0, :6], np.linspace(-1, 1, 54)[6:12], rtol=1e-6)
    np.testing.assert_allclose(rows[0, 1, 0, 9:], np.linspace(-1, 1, 54)[6:12] + 1, rtol=1e-6)
    assert (rows[..., :4, :, 6] == 0.5).all()
    np.testing.assert_array_equal(rows[0], rows[1])
    assert snapshot.progress.iteration == 0
    assert notes == [f"the replay begins with 8 transitions of {logged}"]


def test_it_continues_exactly_also_without_what_it_began_with(config, source, logged, tmp_path):
    other = tmp_path / "source"
    shutil.copytree(source, other)
    data = tmp_path / "log.npz"
    shutil.copy(logged, data)
    config = dataclasses.replace(config, begin_from=str(other), data=(str(data),), warmup_actions="policy")
    whole = train(config, tmp_path / "whole", quiet=True, first=beginning(config))
    assert read_rows(whole.metrics.path)[0]["env_steps"] <= 400
    facts = saved(whole.path)[1]
    assert (facts["iteration"], facts["prefilled"], facts["replay"]["written"]) == (20, 4, 23)
    with RunDirectory.create_or_open(tmp_path / "parts", config.to_json(), "test", FREE_FIELDS) as run:
        snapshot, _ = beginning(config)(learning_of(config, SPEC))
        training = Training.begin(config, run, quiet=True, first=snapshot)
        training.close()
    shutil.rmtree(other)
    data.unlink()
    for iteration in (6, 13):  # from frame 0, from the warm-up
        train_until(config, tmp_path / "parts", iteration)
    parts = train(config, tmp_path / "parts", quiet=True, first=beginning(config))
    assert fingerprint(whole.path) == fingerprint(parts.path)


def test_the_replay_of_the_run_may_come_along(config, source):
    snapshot, _ = first_of(config, begin_from=str(source), data=(str(source),))
    assert snapshot.progress.prefilled == 2 * 19  # of both seeds, with 19 steps stored in each environment
    found = np.asarray(snapshot.state.replay.rows)[0, :38]
    assert len(np.unique(found.reshape(-1, 15), axis=0)) == 76


def forged(source, tmp_path, **changes):
    copy = tmp_path / "forged"
    shutil.copytree(source, copy)
    facts = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(facts | changes))
    return str(copy)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": 4}, "has the seeds 3 to 4, not 5; choose --seed and --seeds"),
        ({"normalize": False}, "has --normalize, which its networks rely on"),
        ({"agent": {"actor_hidden": (9,)}}, "has other networks; give this training the options --actor-hidden 8"),
        ({"agent": {"critics": 3, "tau": 0.1}}, "has other networks; give this training the options --critics 2"),
        ({"recipe": "sac"}, "is of the algorithm TD3, this training of SAC; choose its recipe"),
        ({"spec": EnvSpec(5, 1)}, "have observations of size 6, acrobot-swingup has observations of size 5"),
        ({"spec": EnvSpec(6, 2)}, "have actions of size 1, acrobot-swingup has actions of size 2"),
    ],
)
def test_agents_that_do_not_fit_are_one_line(config, source, changes, said):
    changes = dict(changes)
    spec = changes.pop("spec", SPEC)
    if "recipe" in changes:
        changes["agent"] = find_recipe(changes["recipe"])
    elif "agent" in changes:
        changes["agent"] = dataclasses.replace(config.agent, **changes["agent"])
    config = dataclasses.replace(config, begin_from=str(source), **changes)
    with pytest.raises(UsageError, match=said) as told:
        beginning(config)(learning_of(config, spec))
    assert "\n" not in str(told.value)


@dataclasses.dataclass(frozen=True)
class Chained(TD3):
    """TD3 with another optimiser."""

    links: Literal["none", "clip", "momentum"] = "none"
    """What stands before Adam."""

    def optimiser(self) -> optax.GradientTransformation:
        """Returns Adam with another link."""
        links = {"none": [], "clip": [optax.clip(1.0)], "momentum": [optax.trace(0.9)]}
        return optax.chain(*links[self.links], super().optimiser())


def test_optimisers_may_be_chained_in_another_way_if_they_remember_the_same(config, tmp_path, monkeypatch):
    monkeypatch.setattr(recipes, "ALGORITHMS", recipes.ALGORITHMS.copy())
    monkeypatch.setattr("fcritic.config.ALGORITHMS", recipes.ALGORITHMS)
    recipes.register(Chained)
    agent = Chained(actor_hidden=(8,), critic_hidden=(9,), batch_size=5)
    theirs = dataclasses.replace(config, agent=agent, recipe="Chained")
    train(theirs, tmp_path / "source", quiet=True)
    changed = lambda links: dataclasses.replace(theirs, agent=dataclasses.replace(agent, links=links))
    snapshot, _ = first_of(changed("clip"), begin_from=str(tmp_path / "source"))
    arrays, adam = saved(tmp_path / "source")[0]["agent"], snapshot.state.agent.critics.opt_state[1][0]
    assert adam.count.tolist() == snapshot.state.agent.critics.updates.tolist() == [10, 10]
    name = "agent/critics/opt_state/0/0/mu/network/layers/0/weight"
    assert arrays[name].any()
    np.testing.assert_array_equal(adam.mu.network.layers[0].weight, arrays[name])
    with pytest.raises(UsageError, match="has other networks; give this training the options --links none"):
        first_of(changed("momentum"), begin_from=str(tmp_path / "source"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data": ("nowhere.npz",)}, "nowhere.npz does not exist"),
        (
            {"task": "cartpole-swingup"},
            "has observations of size 6 and actions of .*, cartpole-swingup has 5",
        ),
        ({"replay": 3}, "--data has 4 steps for each environment, --replay 3; raise it"),
        ({"envs": 10}, "--data has 9 transitions, fewer than --envs 10"),
    ],
)
def test_data_that_do_not_fit_leave_no_directory(config, logged, tmp_path, changes, said):
    config = dataclasses.replace(config, **({"data": (logged,)} | changes))
    with pytest.raises(UsageError, match=said):
        train(config, tmp_path / "run", quiet=True, first=beginning(config))
    assert not (tmp_path / "run").exists()


def test_data_of_another_action_repeat_are_refused(config, source):
    with pytest.raises(UsageError, match="for 20 frames, this training for 4; choose --action-repeat 20"):
        first_of(config, data=(str(source),), action_repeat=4)


def test_numbers_that_no_training_saves_are_refused(config, source, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(source, copy)
    groups, facts = saved(copy)
    place = checkpoint.newest_first(copy / "checkpoints")[0]
    name = next(name for name in groups["agent"] if "/nu/" in name)
    groups["agent"][name] = groups["agent"][name] - 1
    shutil.rmtree(place.path)
    checkpoint.save(place, groups, facts)
    with pytest.raises(UsageError, match="not at least 0: the file is damaged or of another program"):
        first_of(config, begin_from=str(copy))


def test_the_command_takes_the_options_of_the_run(source, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    began = ["train", "--from", str(source), "--data", str(source)]
    assert command([*began, "--steps", "40", "--learning-rate", "1e-5", "--out", "new", "--json"]) == 0
    assert [seed["seed"] for seed in json.loads(capsys.readouterr().out)["seeds"]] == [3, 4]
    found = json.loads((tmp_path / "new" / "config.json").read_text())
    known = json.loads((source / "config.json").read_text())
    changed = {"steps": 40, "begin_from": str(source), "data": [str(source)], "warmup_actions": "policy"}
    assert found == known | changed | {"agent": known["agent"] | {"learning_rate": 1e-5}}
    assert command([*began, "--recipe", "sac"]) == 2
    assert "has the recipe td3, which --from keeps; leave --recipe out" in capsys.readouterr().err


def test_a_strangers_run_cannot_name_the_code_of_its_task(source, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trap.py").write_text("raise SystemExit('it ran')\n")
    theirs = forged(source, tmp_path, task=f"{tmp_path}/trap.py:make")
    assert command(["train", "--from", theirs, "--out", "new"]) == 2
    assert "if you know and trust that code: fcritic check" in capsys.readouterr().err
    assert command(["train", "--from", theirs, "--task", "acrobot-swingup", "--steps", "40", "--out", "new"]) == 0


def test_a_learning_rate_may_change_on_resume_and_is_noted(config, source, tmp_path, capsys):
    paths = [tmp_path / name for name in ("same", "other")]
    for path in paths:
        shutil.copytree(source, path)
    for path, rate in zip(paths, ("3e-4", "0"), strict=True):
        assert command(["resume", str(path), "--steps", "1000", "--learning-rate", rate, "--quiet"]) == 0
    plain = train(dataclasses.replace(config, steps=1000), tmp_path / "plain", quiet=True)
    last = [fingerprint(each) for each in (plain.path, *paths)]
    weights = [saved(path)[0]["agent"] for path in (source, paths[1])]
    for name in weights[0]:
        moved = not np.array_equal(weights[0][name], weights[1][name])
        assert not moved or "/params/" not in name, name  # a rate of 0 moves nothing
    assert last[0] == last[1] != last[2]
    rows = [json.loads(line) for line in (paths[1] / "changes.jsonl").read_text().splitlines()]
    assert [(row["env_steps"], row["option"], row["was"], row["now"]) for row in rows] == [
        (800, "agent.learning_rate", 3e-4, 0.0),
        (800, "steps", 800, 1000),
    ]
    (only,) = (paths[0] / "changes.jsonl").read_text().splitlines()
    assert json.loads(only)["option"] == "steps"
    assert json.loads((paths[1] / "config.json").read_text())["agent"]["learning_rate"] == 0
    assert command(["resume", str(paths[1]), "--learning-rate", "-1"]) == 2
    assert "--learning-rate must be at least 0, not -1" in capsys.readouterr().err
