"""How a training begins: what is compiled ahead changes nothing but the time that it takes."""

from contextlib import contextmanager
import dataclasses
import gc
import logging
import os
import re
import subprocess
import sys
import threading

import equinox as eqx
import jax
import numpy as np
import pytest
from short_trainings import SPEC, config, training_of

from fcritic import randomness
from fcritic.__main__ import main
from fcritic.agents.recipes import find_recipe
from fcritic.config import TrainConfig
from fcritic.errors import UsageError
from fcritic.networks.initial import fresh_norm
from fcritic.runs.directory import RunDirectory
from fcritic.runs.fingerprint import fingerprint
from fcritic.training import cost
from fcritic.training.device import Device, Learning
from fcritic.training.loop import Training, train
from fcritic.training.report import LAPS

__all__ = ["config"]


@pytest.fixture
def delayed() -> TrainConfig:
    """An agent whose iterations take turns between two programs."""
    agent = dataclasses.replace(find_recipe("td3"), actor_hidden=(8,), critic_hidden=(9,), batch_size=5)
    assert agent.actor_delay == 2
    return TrainConfig(agent, task="probe-delay", steps=24, warmup=15, replay=40, eval_every=1000, save_every=1000)


@contextmanager
def compiled_by_thread():
    """The programs that JAX compiles or finds in its cache, by the name of the thread."""
    found: dict[str, list[str]] = {}

    class Listener(logging.Handler):
        def emit(self, record):
            words = record.getMessage().split()
            if words[0] == "Compiling":
                found.setdefault(record.threadName.removesuffix("_0"), []).append(words[1])

    logger, listener = logging.getLogger("jax._src.interpreters.pxla"), Listener()
    before = jax.config.jax_log_compiles, logger.propagate
    logger.addHandler(listener)
    jax.config.update("jax_log_compiles", True)
    logger.propagate = False
    try:
        yield found
    finally:
        logger.removeHandler(listener)
        jax.config.update("jax_log_compiles", before[0])
        logger.propagate = before[1]


# Compiled ahead


def test_programs_compiled_ahead_train_as_those_compiled_in_the_loop(config, tmp_path, monkeypatch):
    ahead = train(config, tmp_path / "ahead", quiet=True)
    monkeypatch.setattr(Device, "compile_ahead", lambda *_: None)
    jax.clear_caches()
    within = train(config, tmp_path / "within", quiet=True)
    assert fingerprint(ahead.path) == fingerprint(within.path)


@pytest.mark.parametrize("which", ["config", "delayed"])
def test_the_loop_itself_compiles_next_to_nothing(which, request, tmp_path):
    """No program for each shape of a parameter, and none of those for acting and learning."""
    config = request.getfixturevalue(which)
    config = dataclasses.replace(config, eval_every=10**6, save_every=10**6, log_every=10**6)
    jax.clear_caches()
    with compiled_by_thread() as found, training_of(config, tmp_path / "run") as training:
        training.advance(config.warmup_iterations + 3)
        training.device.wait()
    # JAX tells of what it lowers to export, too, but compiles the program that calls it.
    ahead = sorted(name for name in found["compiling ahead"] if name not in ("jit(_acted)", "jit(_learned)"))
    assert ahead == sorted(["jit(_remember)", "jit(_act)"] + ["jit(_learn)"] * config.agent.actor_delay)
    main = found[threading.current_thread().name]
    assert set(main) <= {"jit(convert_element_type)", "jit(broadcast_in_dim)", "jit(_store)"}
    assert len(main) <= 9  # the ring, a block, and the one actor of TD3 as a stack


def test_losses_evaluations_and_a_resume_compile_no_program_of_the_loop_again(config, tmp_path):
    with compiled_by_thread() as found:
        for steps in (config.steps, config.steps + 800):
            jax.clear_caches()
            train(dataclasses.replace(config, steps=steps), tmp_path / "run", quiet=True)
    programs = {f"jit({name})" for name in ("_act", "_learn", "_acted", "_learned")}
    assert programs <= set(found["compiling ahead"])
    assert not programs & set(found[threading.current_thread().name])


@pytest.mark.parametrize("wrong", ["act", (True,)], ids=["acting", "learning"])
def test_what_goes_wrong_ahead_reaches_whoever_waits(config, tmp_path, monkeypatch, wrong):
    own = Device.lowered

    def lowered(self, which):
        if which == wrong:
            raise MemoryError("no room for the program")
        return own(self, which)

    monkeypatch.setattr(Device, "lowered", lowered)
    with pytest.raises(MemoryError, match="no room for the program"):
        train(config, tmp_path / "run", quiet=True)
    last = RunDirectory(tmp_path / "run").newest_frame()
    assert 0 < last < config.warmup  # it came when learning was to begin, and what was saved is there


def test_nothing_is_compiled_ahead_of_a_run_that_ends_in_its_warm_up(config, tmp_path):
    with compiled_by_thread() as found:
        train(dataclasses.replace(config, steps=800), tmp_path / "run", quiet=True)
    assert "compiling ahead" not in found


def test_a_command_hardly_searches_for_garbage(monkeypatch):
    """Imports, and all that stays, are made without the thousand searches that Python would make."""
    before = gc.get_threshold()
    monkeypatch.setattr("fcritic.__main__.run", lambda _: gc.get_threshold()[0])
    try:
        with pytest.raises(SystemExit) as left:
            main()
    finally:
        gc.set_threshold(*before)
    assert left.value.code >= 100_000


# First parameters


def test_keys_taken_apart_are_those_of_a_split():
    for key in (randomness.stream(3), jax.random.key(3)):
        expected = jax.random.key_data(jax.random.split(key, 3))
        apart = randomness.apart(key, 3)
        assert {jax.random.key_impl(each) for each in apart} == {jax.random.key_impl(key)}
        np.testing.assert_array_equal(np.stack([jax.random.key_data(each) for each in apart]), expected)
        traced = jax.jit(lambda own: [jax.random.key_data(each) for each in randomness.apart(own, 3)])(key)
        np.testing.assert_array_equal(np.stack(traced), expected)
    keys = np.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], np.uint32)
    wrapped = jax.vmap(
        jax.vmap(lambda own: jax.random.key_data(jax.random.split(jax.random.wrap_key_data(own), 3)))
    )
    np.testing.assert_array_equal(randomness.split_all(keys, 3), wrapped(keys))


@pytest.mark.parametrize("recipe", ["fac-small", "sac", "td3"])
def test_a_first_state_is_on_the_device_and_made_from_the_keys_that_jax_splits(recipe, monkeypatch):
    learning = Learning(find_recipe(recipe), SPEC, envs=2, capacity=20, normalize=True, recency=8.0)
    found, own, split = learning.start([3, 4]), randomness.apart, []

    def plain(key, count=2):
        split.append(count)
        words = jax.random.key_data(jax.random.split(key, count))
        return [randomness.wrap(each) for each in np.asarray(words)]

    ours = [module for name, module in sys.modules.items() if name.startswith("fcritic.")]
    for module in [module for module in ours if vars(module).get("apart") is own]:
        monkeypatch.setattr(module, "apart", plain)
    expected = learning.start([3, 4])
    assert len(split) > 4 and all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(found))
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_a_fresh_norm_is_that_of_equinox():
    ours, theirs = fresh_norm(5), eqx.nn.LayerNorm(5)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.parametrize("recipe", ["fac-small", "sac", "td3"])
def test_optimisers_begin_as_they_themselves_would(recipe):
    agent = find_recipe(recipe)
    state = agent.init(SPEC, randomness.stream(0))
    for learner in (state.actors if recipe == "fac-small" else state.actor, state.critics):
        expected = agent.optimiser().init(learner.params)
        assert jax.tree.structure(learner.opt_state) == jax.tree.structure(expected)
        jax.tree.map(np.testing.assert_array_equal, learner.opt_state, expected)


# Environments


def test_the_cost_is_told_once_learning_has_shown_it(config, tmp_path, capsys):
    with RunDirectory.create_or_open(tmp_path / "run", config.to_json(), "test") as run:
        training = Training.begin(config, run)
        training.advance(config.warmup_iterations + LAPS)
        before = capsys.readouterr().err
        training.advance(1)
        told = capsys.readouterr().err
        training.advance(3)
        after = capsys.readouterr().err
        training.close()
    assert "of learning to the end" not in before + after
    assert "one iteration (3 critic + 1 actor updates per 80 frames for 2 seeds) takes" in told


def test_a_short_job_says_roughly_what_it_takes_before_anything_else(config, tmp_path, capsys):
    train(config, tmp_path / "run")
    first, *rest = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"roughly \d+ s to the end, judging by two CPU cores; a measured .*", first)
    assert rest
    train(config, tmp_path / "run")  # nothing is left to do
    assert "to the end" not in capsys.readouterr().err


def test_a_long_job_is_estimated_before_it_begins_and_started_where_that_was_agreed(
    config, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(cost, "DAY", 1e-3)
    with pytest.raises(UsageError, match=r"fac on acrobot-swingup to frame 4,800 is estimated .* add --yes"):
        train(config, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
    train(config, tmp_path / "run", yes=True)
    first, *rest = capsys.readouterr().err.splitlines()
    assert first.startswith("estimated time to the end: ") and "on this CPU" in first and rest


def test_a_device_that_cannot_be_woken_is_reported_once_by_who_needs_it():
    code = "from fcritic.startup.backend import wake_device; wake_device(); import jax; jax.devices()"
    told = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"JAX_PLATFORMS": "abacus"}, capture_output=True, text=True
    )
    assert told.returncode == 1
    assert "abacus" in told.stderr.splitlines()[-1] and "Exception in thread" not in told.stderr
