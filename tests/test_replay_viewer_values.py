"""The traces of the viewer: returns to go, the critics' values, and a task that has nothing else to show."""

import dataclasses
from pathlib import Path
import re

import jax
import numpy as np
import pytest
from viewer_pages import CHROMIUM, data_of, in_browser, numbers, outcome_of, unboxed, untrained

from fcritic import envs
from fcritic.agents.sac import SAC
from fcritic.api.load import TrainedAgent
from fcritic.api.valuation import critics_of
from fcritic.config import TrainConfig
from fcritic.ensembles import member
from fcritic.envs import Units
from fcritic.networks.critics import FunctionalCritic
from fcritic.training.replay import Normalizer
from fcritic.training.value_error import returns_to_go
from fcritic.view.values import critic_values, whole_returns


def test_returns_to_go_and_how_many_of_them_are_whole():
    togo = returns_to_go(np.array([1.0, 2.0, 4.0]), 0.5 * np.array([1.0, 1.0, 0.0]))
    assert togo.tolist() == [1 + 0.5 * (2 + 0.5 * 4), 2 + 0.5 * 4, 4]
    assert whole_returns(10, True, 0.5) == 10
    # Four steps before the end the rest weighs 0.5^4 = 0.0625, three before it 0.125: more than a tenth.
    assert whole_returns(10, False, 0.5) == 7
    assert whole_returns(3, False, 0.5) == 0 and whole_returns(3, False, 0.0) == 3


def test_shared_encoders_and_plain_critics_have_values_too(spec, tiny):
    obs = np.random.default_rng(0).normal(size=(4, spec.obs_dim)).astype(np.float32)

    def loaded(agent, state):
        networks = agent.evaluation_policies(state), critics_of(state), Normalizer.identity(spec.obs_dim)
        config = TrainConfig(agent, normalize=False)
        return TrainedAgent(*networks, networks[2], config, spec, Units.plain(spec), 0, 0, Path())

    shared = dataclasses.replace(tiny, encoder=dataclasses.replace(tiny.encoder, shared=True))
    state = shared.init(spec, jax.random.key(0))
    critic, policy = state.critics.params, member(state.actors.params, 2)
    found = critic_values(loaded(shared, state), 2, obs)
    own = FunctionalCritic(critic.encoder, member(critic.head, 2))
    by_hand = jax.jit(jax.vmap(lambda s: own(policy, s, policy(s))))(obs)
    np.testing.assert_allclose(found.value, by_hand, rtol=1e-4, atol=1e-5)
    assert (found.low < found.high).all()
    plain = dataclasses.replace(tiny, functional=False)
    found = critic_values(loaded(plain, plain.init(spec, jax.random.key(0))), 1, obs)
    assert (found.low == found.value).all() and (found.high == found.value).all()  # others know other actors


def test_a_task_without_mujoco_has_traces_and_says_that_it_has_no_geometry(tmp_path):
    folder = untrained(tmp_path / "pendulum", SAC(actor_hidden=(8,), critic_hidden=(8,)), "Pendulum-v1")
    outcome = outcome_of("replay", folder, "--episode-seed", 2)
    out = folder / "replay.html"
    data = data_of(out)
    assert outcome["page"] == str(out) and not outcome["geometry"] and data["scene"] is None
    assert any("is not made with MuJoCo" in note for note in data["notes"])
    assert any("entropy" in note for note in data["notes"])
    (told,) = data["episodes"]
    assert data["observation_names"] == ["observation[0]", "observation[1]", "observation[2]"]
    assert (data["action_names"], data["action_low"], data["action_high"]) == (["action[0]"], [-2], [2])
    observations = unboxed(told["observations"])
    env = envs.make("Pendulum-v1", seed=2)
    exact = [env.reset()]
    torques = numbers(told["actions"])
    exact += [env.step(np.array([torque / 2], np.float32)).obs for torque in torques]
    finest = np.ptp(exact, axis=0) / 65535
    assert (np.abs(observations - exact).max(axis=0) < 0.51 * finest + 1e-5).all()
    (printed,) = outcome["actors"]
    assert printed["actions"] == {"action[0]": pytest.approx([torques.min(), torques.max()])}
    assert printed["observations"]["observation[2]"] == pytest.approx(
        [min(each[2] for each in exact), max(each[2] for each in exact)], abs=1e-5
    )
    assert numbers(told["value"]).shape == (201,) and not told["seconds"]
    if CHROMIUM is not None:
        dom, complaints = in_browser(out, "#measure")
        assert complaints == [] and "data-errors" not in dom and 'data-drawn="none"' in dom
        assert "<b>observations</b>" in dom and "<b>actions, -2 to 2</b>" in dom
        assert re.search(r"observation\[2\]<output>-?\d", dom) and "This task has no geometry to draw" in dom
        assert re.search(r'id="view"[^>]* hidden', dom)
