"""Films: real pictures through a real pipe, and one line where the machine lacks what they need."""

import json
import os
from pathlib import Path
import shutil
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from fcritic import envs
from fcritic.agents.td3 import TD3
from fcritic.cli.dispatch import run
from fcritic.config import TrainConfig
from fcritic.envs import GymEnv
from fcritic.errors import UsageError
from fcritic.runs.directory import RunDirectory
from fcritic.training.loop import Training
from fcritic.view import film as film_module
from fcritic.view.film import Film

ROOT = Path(__file__).parents[1]
STAND_IN = """#!{python}
import json, pathlib, sys
out = pathlib.Path(sys.argv[-1].removeprefix("file:"))
out.write_bytes(sys.stdin.buffer.read())
pathlib.Path({record!r}).write_text(json.dumps(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run on the pendulum with 50 actions per episode, saved before it learned anything."""
    path = tmp_path_factory.mktemp("runs") / "pendulum"
    agent = TD3(actor_hidden=(8,), critic_hidden=(8,))
    config = TrainConfig(agent, recipe="td3", task="pendulum-swingup", replay=10, action_repeat=20)
    with RunDirectory.create_or_open(path, config.to_json(), "") as directory:
        training = Training.begin(config, directory, quiet=True)
        training.save()
        training.close()
    return path


def video(*args, **environment):
    """The command in a process of its own, since what draws is chosen once per process."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"} | environment
    command = [sys.executable, "-m", "fcritic", "video", *map(str, args)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def can_draw():
    probe = "import mujoco; mujoco.Renderer(mujoco.MjModel.from_xml_string('<mujoco/>'), 16, 16).render()"
    for way in ("egl", "osmesa"):
        done = subprocess.run(
            [sys.executable, "-c", probe], env=os.environ | {"MUJOCO_GL": way}, capture_output=True
        )
        if done.returncode == 0:
            return True
    return False


@pytest.fixture
def stand_in(tmp_path):
    """A program called ffmpeg that keeps the raw pictures, and the search path that finds it."""
    record, program = tmp_path / "arguments.json", tmp_path / "bin" / "ffmpeg"
    program.parent.mkdir()
    program.write_text(STAND_IN.format(python=sys.executable, record=str(record)))
    program.chmod(0o755)
    return record, f"{program.parent}:{os.environ['PATH']}"


def test_pictures_reach_the_encoder_in_order_and_at_the_pace_of_the_simulation(folder, tmp_path, stand_in):
    if not can_draw():
        pytest.skip("neither EGL nor OSMesa can draw here")
    record, path = stand_in
    out = tmp_path / "film.mp4"
    done = video(folder, "--out", out, "--width", 64, "--height", 48, "--fps", 4, "--json", PATH=path)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    # 50 actions of 20 frames of 0.02 s are 20 s: 80 pictures after the first one.
    assert outcome["steps"] == 50 and outcome["frames"] == 81 and outcome["actor"] == 0
    pictures = np.fromfile(out, np.uint8).reshape(81, 48, 64, 3)
    assert outcome["bytes"] == pictures.nbytes
    assert all(picture.std() > 5 for picture in pictures)
    assert (pictures[0] != pictures[40]).any()
    given = json.loads(record.read_text())
    assert given[given.index("-s") + 1] == "64x48" and given[given.index("-r") + 1] == "4"
    assert sorted(os.listdir(tmp_path)) == ["arguments.json", "bin", "film.mp4"]


class Striped(gymnasium.Env):
    """A task that draws itself: a picture of an odd size whose brightness tells the step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, picture=None):
        self.steps, self.picture = 0, picture

    def reset(self, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def render(self):
        return np.full((47, 63, 3), 40 * self.steps, np.uint8) if self.picture is None else self.picture


def filmed(env, out):
    """Three moments of an environment, then the first of its next episode, which is not part of the film."""
    film, wrapped = Film(out, 640, 480, 30, False), GymEnv(env, seed=0)
    for moment in range(4):
        env.steps = moment
        film(wrapped, moment in (0, 3))
    try:
        return film.frames, film.finish()
    finally:
        film.close()


def test_a_task_without_mujoco_draws_itself_and_a_real_encoder_makes_a_film_of_it(tmp_path):
    if shutil.which("ffmpeg") is None or shutil.which("ffprobe") is None:
        pytest.skip("no ffmpeg on the PATH")
    out = tmp_path / "-film.mp4"
    frames, size = filmed(Striped(), out)
    assert frames == 3 and size == out.stat().st_size > 0
    ask = ["ffprobe", "-v", "error", "-count_frames", "-show_entries", "stream=width,height,nb_read_frames"]
    told = subprocess.run([*ask, "-of", "json", f"file:{out}"], capture_output=True, text=True, check=True).stdout
    assert json.loads(told)["streams"] == [{"width": 64, "height": 48, "nb_read_frames": "3"}]


def test_what_cannot_be_filmed_is_one_line_and_leaves_nothing(tmp_path, stand_in, monkeypatch):
    monkeypatch.setenv("PATH", stand_in[1])
    with pytest.raises(UsageError, match="returned no picture from render"):
        filmed(Striped(picture=np.zeros(3)), tmp_path / "film.mp4")
    with pytest.raises(UsageError, match="probe-both has no picture"):
        film = Film(tmp_path / "film.mp4", 64, 48, 30, True)
        film(envs.make("probe-both", seed=0), True)
        film.finish()
    (tmp_path / "bin" / "ffmpeg").write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no such codec')\n")
    with pytest.raises(UsageError, match=r"ffmpeg could not write .*film.mp4: no such codec"):
        filmed(Striped(), tmp_path / "film.mp4")
    assert os.listdir(tmp_path) == ["bin"]


def test_a_machine_that_lacks_something_says_what_and_names_the_page(
    folder, tmp_path, stand_in, monkeypatch, capsys
):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["video", str(folder)]) == 2
    err = capsys.readouterr().err
    assert err.startswith("fcritic: video needs the program ffmpeg") and "fcritic replay" in err
    monkeypatch.setenv("PATH", stand_in[1])
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    assert run(["video", str(folder)]) == 2
    err = capsys.readouterr().err
    assert err.startswith("fcritic: nothing here can draw") and "libegl1 or libosmesa6" in err
    assert "fcritic replay" in err and err.count("\n") == 1
    assert not (folder / "video.mp4").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--actor", "2"], "there is no actor 2; this agent has actors 0 to 0"),
        (["--width", "8"], "--width must be at least 16, not 8"),
        (["--height", "5000"], "--width and --height must be at most 4096, --fps at most 240"),
        (["--fps", "0"], "--fps must be at least 1, not 0"),
        (["--out", "film.gif"], "cannot write to film.gif; give --out a name that ends in .mp4"),
        (["--out", "missing/film.mp4"], "the folder missing does not exist; make it or choose another --out"),
    ],
)
def test_mistakes_are_one_line(folder, tmp_path, monkeypatch, capsys, more, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(film_module, "find_encoder", lambda: "ffmpeg")
    monkeypatch.setattr(film_module, "choose_drawing", lambda: False)
    assert run(["video", str(folder), *more]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err == f"fcritic: {message}\n" and os.listdir(tmp_path) == []
