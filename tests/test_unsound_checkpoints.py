"""Checkpoints whose hashes fit but whose numbers no training could have saved: refused before training."""

import dataclasses
import fnmatch
import hashlib
import shutil

import numpy as np
import pytest

from benchmarks.attacks.small import small_config, train_until
from fcritic.agents.fac import Explore
from fcritic.cli.dispatch import run as command
from fcritic.envs import task_spec
from fcritic.errors import CheckpointError, UsageError
from fcritic.runs import checkpoint
from fcritic.runs.directory import RunDirectory
from fcritic.training.saving import Checkpoints, learning_of, load_policies

NAN, INF = float("nan"), float("inf")
CONFIG = small_config("fac")
CONFIG = dataclasses.replace(CONFIG, agent=dataclasses.replace(CONFIG.agent, explore=Explore(noise=0.1)))
SPEC = task_spec(CONFIG.task)
ITERATIONS = 25


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    path = tmp_path_factory.mktemp("unsound") / "run"
    train_until(CONFIG, path, ITERATIONS)
    return path


@pytest.fixture
def run(pristine, tmp_path):
    return RunDirectory(shutil.copytree(pristine, tmp_path / "run"))


def loaded(run):
    return Checkpoints(run, CONFIG, learning_of(CONFIG, SPEC)).load()[0]


def change(run, group, name, value):
    """Puts a value into the first array of this name; the manifest vouches for it."""
    newest = run.latest_checkpoint()
    groups, facts = checkpoint.load(newest)
    found = fnmatch.filter(groups[group], name)[0]
    changed = groups[group][found].copy()
    changed[(0,) * changed.ndim] = value
    groups[group][found] = changed
    checkpoint.save(newest, groups, facts)


def change_replay(run, column, value):
    newest = run.latest_checkpoint()
    groups, facts = checkpoint.load(newest)
    piece = facts["replay"]["pieces"][0]
    path = run.replay.path / f"rows-{piece[0]:012d}.f32"
    rows = np.frombuffer(path.read_bytes(), np.float32).copy()
    rows[column] = value
    path.write_bytes(rows.tobytes())
    piece[2] = hashlib.sha256(rows.tobytes()).hexdigest()
    checkpoint.save(newest, groups, facts)


CASES = [
    ("agent", "agent/critics/params*weight", NAN),
    ("agent", "agent/actors/params*bias", INF),
    ("agent", "agent/critics/params*weight", 3e38),
    ("agent", "agent/actors/params*bias", -1e7),
    ("agent", "agent/targets*weight", 1e7),
    ("agent", "agent/critics/opt_state*count", -1),
    ("agent", "agent/actors/opt_state*/nu*bias", -1.0),
    ("agent", "normalizer/mean", NAN),
    ("agent", "normalizer/mean", 3e38),
    ("agent", "normalizer/variance", -0.5),
    ("agent", "normalizer/updates", ITERATIONS + 1),
    ("agent", "tally*critic_loss", NAN),
    ("agent", "tallied", -1),
    ("best", "policies*weight", NAN),
    ("best", "score", NAN),
    ("best", "score", INF),
    ("best", "frame", 40 * ITERATIONS + 1),
    ("rollout", "memory/actor", 3),
    ("rollout", "memory/actor", -1),
    ("rollout", "memory/noise", NAN),
    ("rollout", "pending/obs", INF),
    ("rollout", "pending/act", 1.5),
    ("rollout", "pending/discount", 2.0),
    ("rollout", "pending/reward", NAN),
    ("environments", "steps", ITERATIONS - 1),
    ("environments", "length", -1),
    ("environments", "length", ITERATIONS + 1),
    ("environments", "faults", -1),
    ("environments", "seeds", -1),
    ("environments", "obs", NAN),
    ("environments", "total_reward", INF),
    ("environments", "env/0/1/physics", NAN),
]


@pytest.mark.parametrize(("group", "name", "value"), CASES, ids=[f"{name} {value}" for _, name, value in CASES])
def test_numbers_that_no_training_saves_are_refused(run, group, name, value):
    change(run, group, name, value)
    with pytest.raises(
        CheckpointError, match="the file is damaged or of another program; take an earlier checkpoint"
    ) as caught:
        loaded(run)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("how", ["missing", "of another shape", "of another type"])
def test_what_environments_need_is_there(run, how):
    groups, facts = checkpoint.load(run.latest_checkpoint())
    fresh = groups["environments"].pop("fresh")
    if how != "missing":
        groups["environments"]["fresh"] = fresh[:1] if how == "of another shape" else fresh.astype(np.float32)
    checkpoint.save(run.latest_checkpoint(), groups, facts)
    with pytest.raises(CheckpointError, match="environments/fresh is missing, or of another type or shape"):
        loaded(run)


WIDTH = {"observation": 0, "action": SPEC.obs_dim, "reward": SPEC.obs_dim + 1, "discount": SPEC.obs_dim + 2}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("observation", NAN),
        ("observation", 3e38),
        ("reward", -1e19),
        ("action", -1.01),
        ("reward", INF),
        ("discount", -0.1),
        ("discount", NAN),
    ],
)
def test_replay_rows_that_no_training_stores_are_refused(run, column, value):
    assert SPEC.act_dim == 1
    change_replay(run, WIDTH[column], value)
    with pytest.raises(CheckpointError, match=r"replay/\w+ holds .*: the file is damaged or of another program"):
        loaded(run)


def test_counts_that_do_not_fit_together_are_refused(run):
    groups, facts = checkpoint.load(run.latest_checkpoint())
    checkpoint.save(run.latest_checkpoint(), groups, facts | {"iteration": ITERATIONS + 1})
    with pytest.raises(CheckpointError, match="its replay has 24 steps after 26 iterations"):
        loaded(run)


@pytest.mark.parametrize("name", ["iteration", "log_position", "rollbacks", "prefilled"])
@pytest.mark.parametrize("count", [-1, 2**31, 10**400, 1.0, True, None])
def test_counts_that_no_training_reaches_are_refused(run, name, count):
    """Of rollbacks random numbers are made, which takes 32 bits."""
    groups, facts = checkpoint.load(run.latest_checkpoint())
    checkpoint.save(run.latest_checkpoint(), groups, facts | {name: count})
    with pytest.raises(CheckpointError, match="lacks the counters of its training"):
        loaded(run)


def test_an_agent_whose_actions_would_be_nan_is_not_asked(run, capsys):
    change(run, "agent", "normalizer/variance", -0.5)
    for line in (["evaluate", str(run.path)], ["export", str(run.path), "--out", str(run.path / "policy.onnx")]):
        assert command(line) == 2
        told = capsys.readouterr().err
        assert "normalizer/variance holds -0.5, not 0 to 1e+36" in told and told.count("\n") == 1


def test_the_command_says_so_before_it_trains(run, capsys):
    change(run, "agent", "agent/critics/params*weight", NAN)
    before = run.metrics.path.read_bytes()
    for line in (["resume", str(run.path), "--quiet"], ["evaluate", str(run.path)]):
        assert command(line) == 2
        told = capsys.readouterr().err
        assert (
            "holds NaN or infinities: the file is damaged or of another program" in told and told.count("\n") == 1
        )
        assert "learning-rate" not in told
    assert run.metrics.path.read_bytes() == before
    change(run, "best", "policies*weight", INF)
    with pytest.raises(UsageError, match="holds NaN or infinities"):
        load_policies(CONFIG, run.latest_checkpoint(), best=True)


def test_an_earlier_checkpoint_takes_the_place_of_one_with_nan(run):
    train_until(CONFIG, run.path, ITERATIONS + 2)
    change(run, "agent", "normalizer/mean", NAN)
    found, faults = Checkpoints(run, CONFIG, learning_of(CONFIG, SPEC)).load()
    assert found.snapshot.progress.iteration == ITERATIONS and len(faults) == 1


@pytest.mark.parametrize("words", [("evaluate", "--episodes", "1"), ("inspect", "--quick"), ("replay",)])
def test_actors_of_which_only_nan_can_come_are_not_run(run, capsys, words):
    """Finite weights, each of which is sound; but their products and sums are infinite."""
    change(run, "agent", "agent/actors/params*weight", 3e38)
    assert command([words[0], str(run.path), *words[1:]]) == 2
    assert "weight holds 3e+38, not -1e+06 to 1e+06: the file is damaged" in capsys.readouterr().err


def test_nor_are_the_best_ones(run, capsys):
    change(run, "best", "policies*weight", 3e38)
    assert command(["evaluate", str(run.path), "--best", "--episodes", "1"]) == 2
    assert "an actor has a weight of 3e+38" in capsys.readouterr().err
