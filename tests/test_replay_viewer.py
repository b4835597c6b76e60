"""The page that shows an episode: its numbers are MuJoCo's, and a real browser draws it, fast and safely."""

import html
import json
import os
import re

import jax
import numpy as np
import pytest
from viewer_pages import (
    TINY,
    angle_between,
    data_of,
    in_browser,
    needs_browser,
    numbers,
    outcome_of,
    poses_of,
    read_picture,
    unboxed,
    untrained,
)

import fcritic
from fcritic import envs
from fcritic.cli.dispatch import run
from fcritic.ensembles import member
from fcritic.networks.critics import FunctionalCritic
from fcritic.view.episode import actor_of, play
from fcritic.view.page import ROTATION_ERROR, as_script_data, page
from fcritic.view.values import whole_returns


@pytest.fixture(scope="module")
def cheetah(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("runs") / "cheetah", TINY, "cheetah-run", seeds=2, seed=3)


@pytest.fixture(scope="module")
def shown(cheetah):
    """The page of a whole episode of cheetah-run, and what the command printed."""
    out = cheetah.parent / "cheetah.html"
    return out, outcome_of("replay", cheetah, "--out", out)


def test_poses_in_the_page_are_those_of_mujoco(shown):
    out, outcome = shown
    data = data_of(out)
    assert data["error"]["rotation"] == ROTATION_ERROR < 1e-4
    for told in data["episodes"]:
        actions = numbers(told["actions"]).reshape(6, -1).T
        env = envs.make("cheetah-run", seed=0)
        env.reset()
        seen, rewards = [], []
        for action in actions:
            seen.append(np.concatenate([env.simulation()[1].xpos, env.simulation()[1].xquat], axis=1))
            rewards.append(env.step(action).reward)
        seen.append(np.concatenate([env.simulation()[1].xpos, env.simulation()[1].xquat], axis=1))
        expected = np.stack(seen)[:, data["scene"]["moving"]]
        positions, rotations = poses_of(told["poses"])
        assert positions.shape == (1001, 7, 3)
        assert np.abs(positions - expected[..., :3]).max() <= data["error"]["position"] * (1 + 1e-9)
        assert angle_between(rotations, expected[..., 3:]).max() <= ROTATION_ERROR * 1.001
        assert (np.abs(np.diff(rotations, axis=0)) < 0.5).all()  # no quaternion jumps to its negative
        np.testing.assert_allclose(numbers(told["rewards"]), rewards, rtol=1e-5, atol=1e-7)
        still = set(range(8)) - set(data["scene"]["moving"])
        for body in still:
            assert (np.stack(seen)[:, body] == data["scene"]["still"][body]).all()
        assert unboxed(told["observations"]).shape == (1001, 17)
    assert data["observation_names"][7:9] == ["position[7]", "velocity[0]"] and data["action_low"] == [-1] * 6
    assert outcome["bytes"] == out.stat().st_size < 3e6
    assert [each["actor"] for each in outcome["actors"]] == [0, 1] and outcome["seed"] == 3


def test_values_are_those_of_the_actors_own_critic_in_normalised_states(shown, cheetah):
    told = data_of(shown[0])["episodes"][1]
    agent = fcritic.load(cheetah, 3)
    env = envs.make("cheetah-run", seed=0)
    obs, *_ = play(env, actor_of(agent, 1), 0, 60.0, lambda env, first: None)
    critics, policy = agent.critics, agent.policy(1)
    by_hand = []
    for index in range(2):
        critic = FunctionalCritic(member(critics.encoder, index), member(critics.head, index))
        states = agent.normalizer(obs[:20])
        by_hand.append(jax.jit(jax.vmap(lambda state, c=critic: c(policy, state, policy(state))))(states))
    np.testing.assert_allclose(numbers(told["value"])[:20], by_hand[1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(numbers(told["low"])[:20], np.min(by_hand, axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(numbers(told["high"])[:20], np.max(by_hand, axis=0), rtol=1e-4, atol=1e-5)
    honest = shown[1]["actors"][1]["critic"]
    assert honest["states"] == whole_returns(1000, False, 0.99) == 771
    assert honest["value"] == pytest.approx(numbers(told["value"])[:771].mean(), rel=1e-5)
    assert honest["measured"] == pytest.approx(numbers(told["measured"])[:771].mean(), rel=1e-5)


@needs_browser
def test_a_browser_draws_a_thousand_steps_at_thirty_frames_a_second(shown):
    fastest = 0.0
    for _ in range(8):  # the machine may be busy with something else
        dom, complaints = in_browser(shown[0], "#measure")
        assert complaints == [] and "data-errors" not in dom
        fastest = max(fastest, float(re.search(r'data-fps="([\d.]+)"', dom)[1]))
        if fastest >= 30:
            break
    assert fastest >= 30
    assert re.search(r'id="trouble"[^>]* hidden', dom) and "<dd>983 of 1,000</dd>" in dom


@needs_browser
def test_mouse_touch_and_keys_do_what_the_page_says(shown, tmp_path):
    hand = """
    const found = {}, canvas = byId("picture"), camera = player.camera;
    canvas.setPointerCapture = () => {};
    const point = (type, pointerId, clientX, clientY, more = {}) =>
      canvas.dispatchEvent(new PointerEvent(type, { pointerId, clientX, clientY, buttons: 1, ...more }));
    const drag = (act) => { camera.reset(); const before = { ...camera }; act(); return [before, { ...camera }]; };
    const key = (name, more = {}) => document.dispatchEvent(new KeyboardEvent("keydown", { key: name, ...more }));
    let [a, b] = drag(() => {
      point("pointerdown", 1, 100, 100); point("pointermove", 1, 200, 100); point("pointerup", 1, 200, 100);
    });
    found.turned = b.azimuth - a.azimuth;
    [a, b] = drag(() => {
      point("pointerdown", 1, 100, 100, { buttons: 2 }); point("pointermove", 1, 100, 150, { buttons: 2 });
      point("pointerup", 1, 100, 150);
    });
    found.panned = [b.azimuth - a.azimuth, b.shift[2] > 0];
    [a, b] = drag(() => {
      point("pointerdown", 1, 100, 100); point("pointerdown", 2, 200, 100); point("pointermove", 2, 300, 100);
      point("pointerup", 1, 0, 0); point("pointerup", 2, 0, 0);
    });
    found.pinched = b.distance / a.distance;
    [a, b] = drag(() => canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: 50, cancelable: true })));
    found.zoomed = b.distance / a.distance;
    player.goTo(0); key("ArrowRight"); key("ArrowRight", { shiftKey: true }); key("ArrowLeft");
    found.state = player.locate().state;
    key("]"); found.speed = player.speed; key("["); key("[");  found.slower = player.speed;
    key("1"); found.actor = player.episode.actor;
    const followed = camera.follow; key("f"); found.follow = camera.follow !== followed;
    key(" "); found.playing = player.playing; key(" "); found.paused = !player.playing;
    byId("scrub").value = "5"; byId("scrub").dispatchEvent(new Event("input")); found.scrubbed = player.time;
    const plot = player.traces[0].plot.getBoundingClientRect(), side = player.traces[0].left;
    const middle = plot.left + side + (plot.width - side) / 2;
    player.traces[0].plot.setPointerCapture = () => {};
    player.traces[0].plot.dispatchEvent(new PointerEvent("pointerdown", { clientX: middle }));
    found.sought = player.time;
    document.title = JSON.stringify(found);
    """
    file = tmp_path / "hand.html"
    file.write_text(shown[0].read_text().replace("</body>", f"<script>{hand}</script></body>"))
    dom, complaints = in_browser(file, "#action=0")
    assert complaints == []
    found = json.loads(html.unescape(re.search(r"<title>(.*?)</title>", dom)[1]))
    assert found["turned"] == pytest.approx(-0.8) and found["panned"] == [0, True]
    assert found["pinched"] == pytest.approx(0.5) and found["zoomed"] == pytest.approx(np.exp(0.15))
    assert found["state"] == 10 and found["speed"] == 2 and found["slower"] == 0.5
    assert found["actor"] == 1 and found["follow"] and found["playing"] and found["paused"]
    assert found["scrubbed"] == 5 and found["sought"] == pytest.approx(5, abs=0.02)


@needs_browser
def test_the_picture_shows_the_body_and_another_moment_another_one(shown, tmp_path):
    pixels = []
    for fragment in ("#action=0", "#action=400&actor=1"):
        picture = tmp_path / f"picture{len(pixels)}.png"
        in_browser(shown[0], fragment, "--virtual-time-budget=800", f"--screenshot={picture}", size=(390, 800))
        pixels.append(read_picture(picture))
    view = [each[90:300, 10:380].astype(int) for each in pixels]
    brown = [(each[..., 0] > each[..., 2] + 40) for each in view]
    assert all(each.sum() > 200 for each in brown)  # the cheetah's colour, which nothing else there has
    assert (brown[0] != brown[1]).sum() > 100


@needs_browser
def test_without_webgl_the_page_says_so_and_still_shows_the_traces(shown):
    dom, complaints = in_browser(shown[0], "#action=5", "--disable-3d-apis")
    assert "This browser has no WebGL 2" in dom and "<figcaption><b>value</b>" in dom
    assert "data-errors" not in dom
    assert [line for line in complaints if "Uncaught" in line] == []


EVIL = '</script><script>document.title="broken"</script><!--{{data}}<img src=x onerror=alert(1)>\u2028&amp;'


def test_text_of_strangers_stays_text():
    data = {"task": EVIL, "{{script}}": "{{style}}"}
    text = as_script_data(data)
    assert json.loads(text) == data and not set("<>&\u2028") & set(text)
    whole = page(EVIL, data)
    assert whole.count("</script>") == 2 and "<img" not in whole and whole.count("<!--") == 0
    (found,) = re.findall(r'type="application/json">(.*?)</script>', whole, re.DOTALL)
    assert json.loads(found) == data
    with pytest.raises(ValueError):
        as_script_data({"reward": float("nan")})


@needs_browser
def test_a_browser_shows_a_strangers_text_and_runs_none_of_it(shown, tmp_path):
    data = data_of(shown[0]) | {"task": EVIL, "recipe": EVIL, "notes": [EVIL]}
    file = tmp_path / "evil.html"
    file.write_text(page(EVIL, data), encoding="utf-8")
    dom, complaints = in_browser(file, "#action=3")
    assert complaints == [] and "data-errors" not in dom
    assert html.unescape(re.search(r"<title>(.*?)</title>", dom, re.DOTALL)[1]) == EVIL
    assert html.unescape(re.search(r'<h1 id="title">(.*?)</h1>', dom, re.DOTALL)[1]) == EVIL
    assert "<img" not in dom.replace("&lt;img", "")


def test_a_page_asks_for_nothing_from_anywhere(shown):
    text = shown[0].read_text()
    without_data = re.sub(r'<script id="data".*?</script>', "", text, flags=re.DOTALL)
    assert "default-src 'none'" in text
    assert not re.search(r"https?://|src=|@import|url\(|import\(", without_data)


def test_best_actors_have_no_critics(cheetah):
    outcome = outcome_of(
        "replay", cheetah, "--out", cheetah.parent / "best.html", "--best", "--actor", 1, "--seed", 4
    )
    (told,) = data_of(cheetah.parent / "best.html")["episodes"]
    assert "value" not in told and outcome["actors"][0]["critic"] is None and outcome["actors"][0]["actor"] == 1
    assert outcome["best"] and outcome["seed"] == 4


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["nowhere"], "nowhere does not exist"),
        (["--actor", "2"], "there is no actor 2; this agent has actors 0 to 1"),
        (["--actor", "-1"], "there is no actor -1; this agent has actors 0 to 1"),
        (["--seed", "9"], "has no seed 9; it has 3 to 4"),
        (["--episode-seed", "-1"], "--episode-seed must be at least 0, not -1"),
        (["--episode-seed", "4294967296"], "--episode-seed must be below 4294967296"),
        (["--out", "missing/x.html"], "the folder missing does not exist; make it or choose another --out"),
        (["--out", "x.png"], "cannot write to x.png; give --out a name that ends in .html or .htm"),
        (["--out", "folder.html"], "folder.html is a folder; choose another --out"),
        (["--autor", "1"], "unknown option --autor; did you mean --actor?"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(cheetah, tmp_path, monkeypatch, capsys, more, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.html").mkdir()
    directory = [] if more == ["nowhere"] else [str(cheetah)]
    capsys.readouterr()
    assert run(["replay", *directory, *more]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("fcritic: ") and message in err and err.count("\n") == 1
    assert os.listdir(tmp_path) == ["folder.html"] and not (cheetah / "replay.html").exists()
