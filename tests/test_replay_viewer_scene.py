"""What the viewer draws: shapes, meshes and poses as MuJoCo has them, and the matrices of its script by hand."""

import html
import json
from pathlib import Path
import re

import gymnasium
import jax
import mujoco
import numpy as np
import pytest
from viewer_pages import in_browser, needs_browser, numbers

from fcritic import envs
from fcritic.networks.policies import DeterministicPolicy
from fcritic.view.episode import record
from fcritic.view.page import SCRIPTS, moving_bodies
from fcritic.view.scene import (
    MOST_FACES,
    height_field_of,
    in_box,
    mesh_of,
    pack_all,
    pack_poses,
    position_error,
    radius_of,
    scene_of,
    thin,
    tracked_body,
)

VIEWERS = Path(__file__).parents[1] / "fcritic" / "view"


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
    vertices, faces = height_field_of(model, 0)
    assert vertices.shape == (6, 3) and faces.shape == (4, 3)
    assert vertices[0].tolist() == [-2, -3, 0] and vertices[3].tolist() == [2, 0, 4]
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    assert (np.cross(b - a, c - a)[:, 2] > 0).all()  # all are seen from above
    vertices, faces = mesh_of(model, 0)
    assert vertices.shape == (4, 3) and faces.shape == (4, 3)
    side = np.linspace(0, 1, 40)
    sheet = np.stack([*np.meshgrid(side, side), np.zeros((40, 40))], axis=-1).reshape(-1, 3)
    corner = (np.arange(39)[:, None] * 40 + np.arange(39)).ravel()
    cells = np.stack([corner, corner + 1, corner + 40], 1)
    fewer_vertices, fewer = thin(sheet, cells, 8)
    assert 0 < len(fewer) < len(cells) / 10 and fewer.max() < len(fewer_vertices) <= 81
    assert fewer_vertices.min() >= 0 and fewer_vertices.max() <= 1
    packed, coarser = pack_all([(sheet, cells)])
    assert not coarser and len(numbers(packed[0]["faces"], "<u2")) == 3 * len(cells)
    _, coarser = pack_all([(sheet, cells)] * (MOST_FACES // len(cells) + 1))
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
    act = lambda obs: np.asarray(policy(jax.numpy.asarray(obs)))
    episode = record(envs.GymEnv(Pusher(), seed=0), act, 0, 60.0)
    assert episode.terminated and episode.seconds and len(episode.rewards) == 10
    np.testing.assert_allclose(episode.times, 0.002 * np.arange(11), atol=1e-9)
    np.testing.assert_allclose(episode.poses[:, 1, 0], episode.obs[:, 0], atol=1e-7)
    assert moving_bodies([episode]) == [1]
    np.testing.assert_allclose(episode.centre, episode.poses[:, 1, :3])
