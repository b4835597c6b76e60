"""An episode as a film: pictures drawn with OpenGL where there is one, encoded by the program ffmpeg."""

import os
from pathlib import Path
import platform
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any

import numpy as np

from fcritic import envs
from fcritic.api.load import TrainedAgent
from fcritic.disk import Place
from fcritic.envs import AbstractEnv, GymEnv
from fcritic.envs.arguments import split
from fcritic.errors import UsageError, writing
from fcritic.startup.doctor import can_draw
from fcritic.view.episode import actor_of, play
from fcritic.view.scene import radius_of, tracked_body

if TYPE_CHECKING:
    import mujoco

INSTEAD = "fcritic replay needs neither a graphics library nor ffmpeg"
SHADOW = 1024
"""Pixels across the picture of the shadows: MuJoCo's 4096 take half the time where a processor draws."""


def choose_drawing() -> bool:
    """Sets MUJOCO_GL to what can draw here, and says whether anything can; call it before MuJoCo is imported."""
    given = os.environ.get("MUJOCO_GL")
    ways = [given] if given is not None else ["egl", "osmesa"] if platform.system() == "Linux" else [""]
    for way in ways:
        if can_draw(way):
            os.environ["MUJOCO_GL"] = way
            return True
    return False


def find_encoder() -> str:
    """The path of ffmpeg."""
    found = shutil.which("ffmpeg")
    if found is None:
        raise UsageError(f"video needs the program ffmpeg on the PATH; install ffmpeg ({INSTEAD})")
    return found


class Film:
    """Writes a picture of an environment to ffmpeg for every moment of the film; used as the `note` of an episode.

    With MuJoCo a second of film is a second of the simulation; other tasks give one picture for each action.
    """

    def __init__(self, out: Path | Place, width: int, height: int, fps: int, can_draw: bool):
        self._size, self._fps, self._can_draw = (width, height), fps, can_draw
        self._out = Place.of(out)
        # The encoder opens its file by name, so it gets a folder in which nobody else has put anything.
        self._folder = tempfile.TemporaryDirectory(prefix="fcritic-film-")
        self._part = Path(self._folder.name) / "film.mp4"
        self._encoder: Any = None
        self._renderer: Any = None
        self._started: float | None = None
        self._over = False
        self.frames = 0
        self.trouble: UsageError | None = None
        """Why the film cannot be made; kept, since an error raised here would count as the environment's."""

    def __call__(self, env: AbstractEnv, first: bool) -> None:
        """Adds the pictures that are due."""
        self._over = self._over or self.trouble is not None or (first and self._started is not None)
        if self._over:  # nothing can be added, or the next episode has begun
            return
        try:
            self._take(env)
        except UsageError as error:
            self.trouble = error

    def _take(self, env: AbstractEnv) -> None:
        simulation = env.simulation()
        if simulation is None:
            self._started = 0.0
            self._add(_own_picture(env))
            return
        model, data = simulation
        if self._started is None:
            self._started = data.time
            self._renderer, self._camera = self._open(model, data)
        if data.time - self._started >= self.frames / self._fps - 1e-9:
            self._renderer.update_scene(data, self._camera)
            picture = self._renderer.render()
            while data.time - self._started >= self.frames / self._fps - 1e-9:
                self._add(picture)

    def _open(self, model: "mujoco.MjModel", data: "mujoco.MjData") -> tuple[Any, Any]:
        if not self._can_draw:
            packages = "libegl1 or libosmesa6"
            raise UsageError(
                f"nothing here can draw for MuJoCo; install {packages}, or unset MUJOCO_GL ({INSTEAD})"
            )
        import mujoco

        width, height = self._size
        model.vis.global_.offwidth = max(width, model.vis.global_.offwidth)
        model.vis.global_.offheight = max(height, model.vis.global_.offheight)
        model.vis.quality.shadowsize = min(SHADOW, model.vis.quality.shadowsize)
        camera = mujoco.MjvCamera()
        camera.type, camera.trackbodyid = mujoco.mjtCamera.mjCAMERA_TRACKING, tracked_body(model, data)
        camera.azimuth, camera.elevation = 110.0, -16.0  # as the page begins
        camera.distance = 1.5 * radius_of(model, data, camera.trackbodyid) / np.tan(np.radians(20.0))
        return mujoco.Renderer(model, height, width), camera

    def _add(self, picture: np.ndarray) -> None:
        if self._encoder is None:
            height, width = picture.shape[:2]
            self._encoder = self._start(width, height)
        try:
            self._encoder.stdin.write(np.ascontiguousarray(picture[..., :3], np.uint8).tobytes())
        except BrokenPipeError:
            raise self._failure() from None
        self.frames += 1

    def _start(self, width: int, height: int) -> subprocess.Popen:
        command = [find_encoder(), "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
        command += ["-s", f"{width}x{height}", "-r", str(self._fps), "-i", "-", "-an", "-pix_fmt", "yuv420p"]
        even = "pad=ceil(iw/2)*2:ceil(ih/2)*2"  # its pixels come in pairs
        command += ["-vf", even, "-movflags", "+faststart", f"file:{self._part}"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)

    def _failure(self) -> UsageError:
        said = " ".join(self._encoder.communicate()[1].decode(errors="replace").split())
        return UsageError(f"ffmpeg could not write {self._out}: {said:.300}; choose another --out")

    def finish(self) -> int:
        """Ends the film, gives it its name and returns its size in bytes."""
        if self.trouble is not None:
            raise self.trouble
        with writing("the film", self._out.path):
            self._encoder.stdin.close()
            self._encoder.stdin = None
            if self._encoder.wait():
                raise self._failure()
            film = self._part.read_bytes()
            self._out.replace(film)
            return len(film)

    def close(self) -> None:
        """Ends what is open; a film that was not finished is taken away."""
        if self._renderer is not None:
            self._renderer.close()
        if self._encoder is not None and self._encoder.poll() is None:
            self._encoder.kill()
            self._encoder.communicate()
        self._folder.cleanup()


def shoot(agent: TrainedAgent, actor: int, episode_seed: int, film: Film) -> dict[str, Any]:
    """Films one episode of an actor and returns facts about it."""
    config, act = agent.config, actor_of(agent, actor)
    env = envs.make(config.task, seed=episode_seed, action_repeat=config.action_repeat)
    if isinstance(env, GymEnv) and env.simulation() is None:
        env.close()
        name, arguments = split(config.task)
        drawn = {"render_mode": "rgb_array", **arguments}
        env = GymEnv(name, seed=episode_seed, action_repeat=config.action_repeat, **drawn)
    try:
        _, _, rewards, _, _ = play(env, act, episode_seed, config.env_timeout, film)
        size = film.finish()
    finally:
        film.close()
        env.close()
    told = {
        "task": config.task,
        "seed": agent.seed,
        "frame": agent.frame if agent.best_frame is None else agent.best_frame,
        "actor": actor,
        "episode_seed": episode_seed,
    }
    return told | {"return": float(rewards.sum()), "steps": len(rewards), "frames": film.frames, "bytes": size}


def _own_picture(env: AbstractEnv) -> np.ndarray:
    """What a task without MuJoCo draws of itself."""
    if not isinstance(env, GymEnv):
        raise UsageError(f"{env.name} has no picture; fcritic replay shows its observations, actions and values")
    try:
        picture = env.picture()
    except Exception as error:  # a missing library, or whatever a user's own code raises
        reason = " ".join(str(error).split())
        raise UsageError(f"{env.name} cannot draw itself: {reason:.300} ({INSTEAD})") from error
    if not isinstance(picture, np.ndarray) or picture.ndim != 3 or picture.shape[2] < 3:
        raise UsageError(f"{env.name} returned no picture from render(); fcritic replay shows its traces")
    return picture
