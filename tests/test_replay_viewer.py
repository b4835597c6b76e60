"""The page that shows an episode: its numbers are MuJoCo's, and a real browser draws it, fast and safely."""

import base64
import contextlib
import dataclasses
import html
import io
import json
import os
from pathlib import Path
import re
import shutil
import subprocess

import gymnasium
import jax
from matplotlib.image import imread
import mujoco
import numpy as np
import pytest

from fcritic import envs
from fcritic.agents.fac import FAC
from fcritic.agents.sac import SAC
from fcritic.cli.dispatch import run
from fcritic.config import TrainConfig
from fcritic.ensembles import member
from fcritic.networks.actor_encoder import EncoderConfig
from fcritic.networks.critics import FunctionalCritic
from fcritic.networks.policies import DeterministicPolicy
from fcritic.replay import Normalizer
from fcritic.runs import RunDirectory
from fcritic.train import Training
from fcritic.viewers import meshes
from fcritic.viewers.cast import Actor, Cast
from fcritic.viewers.episode import play, record
from fcritic.viewers.packing import ROTATION_ERROR, in_box, pack_poses, position_error
from fcritic.viewers.page import SCRIPTS, as_script_data, moving_bodies, page
from fcritic.viewers.scene import radius_of, scene_of, tracked_body
from fcritic.viewers.values import critic_values, returns_to_go, whole_returns

VIEWERS = Path(__file__).parents[1] / "fcritic" / "viewers"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")
TINY = FAC(
    members=2,
    batch_size=4,
    actor_hidden=(8,),
    state_action_hidden=(8,),
    joint_hidden=(8,),
    actor_last_scale=2.0,
    encoder=EncoderConfig(probes=4, depth=1, code=4, width=8, heads=2),
)


def untrained(folder, agent, task, **more):
    """A run that has saved a checkpoint before it learned anything, which takes a moment."""
    config = TrainConfig(agent, recipe="fac-small", task=task, replay=10, **more)
    with RunDirectory.create_or_open(folder, config.to_json(), "") as directory:
        training = Training(config, directory, quiet=True)
        training.save()
        training.close()
    return folder


@pytest.fixture(scope="module")
def cheetah(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("runs") / "cheetah", TINY, "cheetah-run", seeds=2, seed=3)


@pytest.fixture(scope="module")
def shown(cheetah):
    """The page of a whole episode of cheetah-run, and what the command printed."""
    out = cheetah.parent / "cheetah.html"
    return out, outcome_of("replay", cheetah, "--out", out)


def outcome_of(*args):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert run([*map(str, args), "--json"]) == 0
    return json.loads(printed.getvalue())


def data_of(path):
    """What a page holds, read as its script reads it."""
    (text,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', path.read_text(), re.DOTALL)
    return json.loads(text)


def numbers(text, kind="<f4"):
    return np.frombuffer(base64.b64decode(text), kind).astype(float)


def poses_of(packed):
    """Positions (states, bodies, 3) and quaternions (states, bodies, 4)."""
    low, size = np.array(packed["low"]), np.array(packed["size"])
    positions = low + size * numbers(packed["positions"], "<u2").reshape(-1, len(low)) / 65535
    rotations = numbers(packed["rotations"], "<u2") / 65535 * 2 - 1
    return positions.reshape(len(positions), -1, 3), rotations.reshape(len(positions), -1, 4)


def angle_between(p, q):
    """The angle of the rotation between two quaternions of any sign and length, also where it is tiny."""
    p, q = (each / np.linalg.norm(each, axis=-1, keepdims=True) for each in (p, q))
    return 4 * np.arcsin(
        np.minimum(1, np.minimum(np.linalg.norm(p - q, axis=-1), np.linalg.norm(p + q, axis=-1)) / 2)
    )


def in_browser(path, fragment="", *options, size=(1280, 860)):
    """The page as Chromium has it once loaded, without a graphics card, and what went wrong in it."""
    flags = ["--headless", "--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    flags += [f"--user-data-dir={path.parent}/browser", f"--window-size={size[0]},{size[1]}", *options]
    command = [CHROMIUM, *flags, "--enable-logging=stderr", "--dump-dom", f"file://{path}{fragment}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, complaints


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
    assert outcome["bytes"] == out.stat().st_size < 3e6
    assert [each["actor"] for each in outcome["actors"]] == [0, 1] and outcome["seed"] == 3


def test_one_position_and_one_quaternion_by_hand():
    poses = np.zeros((3, 1, 7))
    poses[:, 0, 0] = [1.0, 1.25, 3.0]  # a box from 1 to 3 in x, of no size in y and z
    poses[:, 0, 3:] = [[1, 0, 0, 0], [0, 1, 0, 0], [0.5, 0.5, -0.5, 0.5]]
    packed = pack_poses(poses)
    assert packed["low"] == [1, 0, 0] and packed["size"] == [2, 0, 0]
    assert numbers(packed["positions"], "<u2").reshape(3, 3)[:, 0].tolist() == [0, 8192, 65535]  # 0.125 * 65535
    assert numbers(packed["rotations"], "<u2").reshape(3, 4)[2].tolist() == [49151, 49151, 16384, 49151]
    assert position_error(packed) == pytest.approx(1 / 65535)
    assert in_box(np.zeros((0, 3)))["data"] == ""


def test_returns_to_go_and_how_many_of_them_are_whole():
    togo = returns_to_go(np.array([1.0, 2.0, 4.0]), np.array([1.0, 1.0, 0.0]), 0.5)
    assert togo.tolist() == [1 + 0.5 * (2 + 0.5 * 4), 2 + 0.5 * 4, 4]
    assert whole_returns(10, True, 0.5) == 10
    # Four steps before the end the rest weighs 0.5^4 = 0.0625, three before it 0.125: more than a tenth.
    assert whole_returns(10, False, 0.5) == 7
    assert whole_returns(3, False, 0.5) == 0 and whole_returns(3, False, 0.0) == 3


def test_values_are_those_of_the_actors_own_critic_in_normalised_states(shown, cheetah):
    told = data_of(shown[0])["episodes"][1]
    config = TrainConfig.from_json(json.loads((cheetah / "config.json").read_text()))
    cast = Cast(config, sorted((cheetah / "checkpoints").iterdir())[-1], 3, False)
    env = envs.make("cheetah-run", seed=0)
    obs, *_ = play(env, cast.actor(1), 0, 60.0, lambda env, first: None)
    critics, policy = cast._agent.critics.params, cast.actor(1).policy
    by_hand = []
    for index in range(2):
        critic = FunctionalCritic(member(critics.encoder, index), member(critics.head, index))
        states = cast.actor(1).normalizer(obs[:20])
        by_hand.append(jax.jit(jax.vmap(lambda state, c=critic: c(policy, state, policy(state))))(states))
    np.testing.assert_allclose(numbers(told["value"])[:20], by_hand[1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(numbers(told["low"])[:20], np.min(by_hand, axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(numbers(told["high"])[:20], np.max(by_hand, axis=0), rtol=1e-4, atol=1e-5)
    honest = shown[1]["actors"][1]["critic"]
    assert honest["states"] == whole_returns(1000, False, 0.99) == 771
    assert honest["value"] == pytest.approx(numbers(told["value"])[:771].mean(), rel=1e-5)
    assert honest["measured"] == pytest.approx(numbers(told["measured"])[:771].mean(), rel=1e-5)


def test_shared_encoders_and_plain_critics_have_values_too(spec, tiny):
    obs = np.random.default_rng(0).normal(size=(4, spec.obs_dim)).astype(np.float32)
    shared = dataclasses.replace(tiny, encoder=dataclasses.replace(tiny.encoder, shared=True))
    state = shared.init(spec, jax.random.key(0))
    critic, policy = state.critics.params, member(state.actors.params, 2)
    found = critic_values(shared, state, 2, obs)
    own = FunctionalCritic(critic.encoder, member(critic.head, 2))
    by_hand = jax.jit(jax.vmap(lambda s: own(policy, s, policy(s))))(obs)
    np.testing.assert_allclose(found.value, by_hand, rtol=1e-4, atol=1e-5)
    assert (found.low < found.high).all()
    plain = dataclasses.replace(tiny, functional=False)
    found = critic_values(plain, plain.init(spec, jax.random.key(0)), 1, obs)
    assert (found.low == found.value).all() and (found.high == found.value).all()  # others know other actors


SHAPES = """
<mujoco>
  <asset>
    <texture name="checks" type="2d" builtin="checker" rgb1="1 0 0" rgb2="0 0 1" width="64" height="64"/>
    <material name="floor" texture="checks" texrepeat="4 2"/>
    <material name="blue" rgba="0 0 1 1"/>
    <mesh name="tetrahedron" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/>
    <hfield name="hill" nrow="3" ncol="2" size="2 3 4 1" elevation="0 0  0 1  0 0"/>
  </asset>
  <worldbody>
    <geom name="floor" type="plane" size="8 6 1" material="floor"/>
    <geom type="hfield" hfield="hill"/>
    <body pos="0 0 2"><freejoint/>
      <geom type="sphere" size=".1" rgba="1 .5 0 1" material="blue"/>
      <geom type="capsule" size=".1 .3" material="blue" pos="0 1 0" euler="90 0 0"/>
      <geom type="ellipsoid" size=".1 .2 .3"/><geom type="cylinder" size=".1 .2"/><geom type="box" size=".1 .2 .3"/>
      <geom type="mesh" mesh="tetrahedron"/>
      <geom type="sphere" size="9" group="3"/><geom type="sphere" size="9" rgba="0 0 0 0"/>
      <site type="box" size=".1 .1 .1" rgba="1 1 1 .5"/><site size="9" group="4"/>
    </body>
    <body pos="0 30 0"><freejoint/><geom size=".5"/></body>
  </worldbody>
</mujoco>
"""


def test_every_kind_of_shape_with_its_colour_and_place():
    model = mujoco.MjModel.from_xml_string(SHAPES)
    scene = scene_of(model)
    kinds = [shape["kind"] for shape in scene["shapes"]]
    solids = ["sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh"]
    assert kinds == ["plane", "mesh", *solids, "sphere", "box"]  # a height field is drawn as a mesh
    floor, _, sphere, capsule, ellipsoid = scene["shapes"][:5]
    assert floor["checker"] == {"colours": [[1, 0, 0], [0, 0, 1]], "side": [2, 3]}  # 16 m / 4 repeats / 2 squares
    assert sphere["colour"] == [1, 0.5, 0, 1]  # its own before its material's
    assert capsule["colour"] == [0, 0, 1, 1] and capsule["size"][:2] == [0.1, 0.3]
    assert capsule["position"] == [0, 1, 0]
    np.testing.assert_allclose(capsule["rotation"], [0.5**0.5, 0.5**0.5, 0, 0])
    assert ellipsoid["colour"] == [0.5, 0.5, 0.5, 1]
    assert scene["shapes"][-1]["colour"][3] == 0.5
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    assert tracked_body(model, data) == 1 and radius_of(model, data, 1) < 3  # the far ball is not in the picture


def test_height_fields_meshes_and_their_thinning():
    model = mujoco.MjModel.from_xml_string(SHAPES)
    vertices, faces = meshes.height_field_of(model, 0)
    assert vertices.shape == (6, 3) and faces.shape == (4, 3)
    assert vertices[0].tolist() == [-2, -3, 0] and vertices[3].tolist() == [2, 0, 4]
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    assert (np.cross(b - a, c - a)[:, 2] > 0).all()  # all are seen from above
    vertices, faces = meshes.mesh_of(model, 0)
    assert vertices.shape == (4, 3) and faces.shape == (4, 3)
    side = np.linspace(0, 1, 40)
    sheet = np.stack([*np.meshgrid(side, side), np.zeros((40, 40))], axis=-1).reshape(-1, 3)
    corner = (np.arange(39)[:, None] * 40 + np.arange(39)).ravel()
    cells = np.stack([corner, corner + 1, corner + 40], 1)
    fewer_vertices, fewer = meshes.thin(sheet, cells, 8)
    assert 0 < len(fewer) < len(cells) / 10 and fewer.max() < len(fewer_vertices) <= 81
    assert fewer_vertices.min() >= 0 and fewer_vertices.max() <= 1
    packed, coarser = meshes.pack_all([(sheet, cells)])
    assert not coarser and len(numbers(packed[0]["faces"], "<u2")) == 3 * len(cells)
    _, coarser = meshes.pack_all([(sheet, cells)] * (meshes.MOST_FACES // len(cells) + 1))
    assert coarser


@needs_browser
def test_matrices_of_the_page_by_hand(tmp_path):
    """A quarter turn about z at (1, 2, 3) takes (1, 0, 0) to (1, 3, 3); half way to a half turn is a quarter."""
    checks = """
    const half = Math.SQRT1_2, found = {
      turned: transformPoint(poseMatrix(half, 0, 0, half, 1, 2, 3), [1, 0, 0]),
      longer: transformPoint(poseMatrix(2, 0, 0, 2, 1, 2, 3), [1, 0, 0]),
      between: transformPoint(bodyMatrix({ positions: [0, 0, 0, 2, 0, 0], rotations: [1, 0, 0, 0, 0, 0, 0, 1],
        bodies: 1 }, 0, 0, 0.5), [1, 0, 0]),
      shadow: transformPoint(shadowMatrix([0, 0, 1], [5, 5, 1], [0.5, 0, 1]), [3, 0, 5]),
      seen: transformPoint(lookAt([0, -4, 0], [0, 0, 0]), [1, 0, 2]),
      unpacked: Array.from(unbox([1, 0], [2, 1], btoa(String.fromCharCode(0, 0, 255, 255, 255, 255, 0, 0)))),
      capsule: Math.max(...ball([0.1, 0.1, 0.1], 0.3).corners.map((corner) => corner[2])),
      outward: [ball([1, 2, 3], 1), cylinder(1, 2), box([1, 2, 3])].map(({ corners, triangles }) => {
        let most = 0;
        for (let i = 0; i < triangles.length; i += 3) {
          const [a, b, c] = triangles.slice(i, i + 3).map((k) => corners[k].slice(0, 3));
          most = Math.min(most, dot(cross(minus(b, a), minus(c, a)), a));
        }
        return most;
      }),
    };
    document.body.textContent = JSON.stringify(found);
    """
    text = "".join((VIEWERS / name).read_text() for name in SCRIPTS[:2])
    file = tmp_path / "checks.html"
    file.write_text(f"<!doctype html><body></body><script>{text}\n{checks}</script>")
    dom, complaints = in_browser(file)
    assert complaints == []
    found = json.loads(html.unescape(re.search(r"<body>(.*?)</body>", dom)[1]))
    np.testing.assert_allclose(found["turned"], [1, 3, 3], atol=1e-6)
    np.testing.assert_allclose(found["longer"], [1, 3, 3], atol=1e-6)
    np.testing.assert_allclose(found["between"], [1, 1, 0], atol=1e-6)
    np.testing.assert_allclose(found["shadow"], [1, 0, 1], atol=1e-6)  # 4 above the plane, so 2 back along x
    np.testing.assert_allclose(found["seen"], [1, 2, -4], atol=1e-6)  # right, up, and 4 in front
    assert found["unpacked"] == [1, 1, 3, 0]
    assert found["capsule"] == pytest.approx(0.4)
    assert min(found["outward"]) > -1e-6  # every triangle of a convex shape around 0 faces away from 0


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
    const plot = player.traces[0].plot.getBoundingClientRect(), middle = plot.left + 44 + (plot.width - 44) / 2;
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


def read_picture(path):
    return (imread(path)[..., :3] * 255).astype(np.uint8)


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


def test_a_task_without_mujoco_has_traces_and_says_that_it_has_no_geometry(tmp_path):
    folder = untrained(tmp_path / "pendulum", SAC(actor_hidden=(8,), critic_hidden=(8,)), "Pendulum-v1")
    outcome = outcome_of("replay", folder, "--episode-seed", 2)
    out = folder / "replay.html"
    data = data_of(out)
    assert outcome["page"] == str(out) and not outcome["geometry"] and data["scene"] is None
    assert any("is not made with MuJoCo" in note for note in data["notes"])
    assert any("entropy" in note for note in data["notes"])
    (told,) = data["episodes"]
    observations = numbers(told["observations"]).reshape(3, 201)
    env = envs.make("Pendulum-v1", seed=2)
    np.testing.assert_allclose(observations[:, 0], env.reset(), rtol=1e-6)
    for step, action in enumerate(numbers(told["actions"])):
        expected = env.step(np.array([action], np.float32))
        np.testing.assert_allclose(observations[:, step + 1], expected.obs, atol=1e-5)
    assert numbers(told["value"]).shape == (201,) and not told["seconds"]
    if CHROMIUM is not None:
        dom, complaints = in_browser(out, "#measure")
        assert complaints == [] and "data-errors" not in dom and 'data-drawn="none"' in dom
        assert "<b>observations</b>" in dom and "This task has no geometry to draw" in dom
        assert re.search(r'id="view"[^>]* hidden', dom)


class Pusher(gymnasium.Env):
    """An environment of a user, made with MuJoCo: a ball on a rail that the action pushes."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self):
        self.model = mujoco.MjModel.from_xml_string(
            "<mujoco><worldbody><geom type='plane' size='1 1 1'/><body pos='0 0 1'><joint name='rail' type='slide' "
            "axis='1 0 0'/><geom size='.1'/></body></worldbody><actuator><motor joint='rail'/></actuator></mujoco>"
        )
        self.data = mujoco.MjData(self.model)

    def reset(self, *, seed=None, options=None):
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:] = 0.2
        mujoco.mj_forward(self.model, self.data)
        return self.data.qpos.copy(), {}

    def step(self, action):
        self.data.ctrl[:] = action
        mujoco.mj_step(self.model, self.data)
        mujoco.mj_forward(self.model, self.data)
        return self.data.qpos.copy(), 1.0, self.data.time > 0.0199, False, {}


def test_an_environment_of_a_user_is_seen_if_it_has_a_model_and_data():
    policy = DeterministicPolicy(1, (4,), 1, key=jax.random.key(0), last_scale=3.0)
    actor = Actor(policy, Normalizer.identity(1), False)
    episode = record(envs.GymEnv(Pusher(), seed=0), actor, 0, 60.0)
    assert episode.terminated and episode.seconds and len(episode.rewards) == 10
    np.testing.assert_allclose(episode.times, 0.002 * np.arange(11), atol=1e-9)
    np.testing.assert_allclose(episode.poses[:, 1, 0], episode.obs[:, 0], atol=1e-7)
    assert moving_bodies([episode]) == [1]
    np.testing.assert_allclose(episode.centre, episode.poses[:, 1, :3])


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
        (["--actor", "2"], "--actor must be 0 to 1 of this run, not 2"),
        (["--actor", "-1"], "--actor must be 0 to 1 of this run, not -1"),
        (["--seed", "9"], "--seed must be 3 to 4 of this run, not 9"),
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
    assert out == "" and err.startswith(f"fcritic: {message}") and err.count("\n") == 1
    assert os.listdir(tmp_path) == ["folder.html"] and not (cheetah / "replay.html").exists()
