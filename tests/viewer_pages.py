"""Pages of `fcritic replay`: made from a run, read as their script reads them, and opened in a browser."""

import base64
import contextlib
import io
import json
import re
import shutil
import subprocess

from matplotlib.image import imread
import numpy as np
import pytest

from fcritic.agents.fac import FAC
from fcritic.cli.dispatch import run
from fcritic.config import TrainConfig
from fcritic.networks.actor_encoder import EncoderConfig
from fcritic.runs.directory import RunDirectory
from fcritic.training.loop import Training

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
        training = Training.begin(config, directory, quiet=True)
        training.save()
        training.close()
    return folder


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


def unboxed(packed, name="data"):
    """Rows of numbers that were packed in the box that holds them."""
    low, size = np.array(packed["low"]), np.array(packed["size"])
    return low + size * numbers(packed[name], "<u2").reshape(-1, len(low)) / 65535


def poses_of(packed):
    """Positions (states, bodies, 3) and quaternions (states, bodies, 4)."""
    positions = unboxed(packed, "positions")
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


def read_picture(path):
    return (imread(path)[..., :3] * 255).astype(np.uint8)
