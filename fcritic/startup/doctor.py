"""What this machine has, what is broken, and the command that repairs it."""

from collections.abc import Callable
import dataclasses
import importlib
import importlib.metadata
import importlib.util
import os
from pathlib import Path
import shutil
import subprocess
import sys
import time
from typing import Literal

import jax
from packaging.requirements import Requirement

from fcritic.disk import replace_file
from fcritic.envs.dmc import INSTALL, REQUIREMENT

Status = Literal["ok", "note", "broken"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """The result of one check. A `note` is something optional that is missing."""

    name: str
    status: Status
    found: str
    repair: str = ""
    """The command, or the change, that repairs it."""


def examine(self_test: bool, say: Callable[[Finding], None]) -> list[Finding]:
    """Runs all checks, the most important first, and reports each finding at once."""
    looks = [python, packages, control_suite, device, memory, disk, cache, graphics, programs, extras]
    findings = []
    for look in [*looks, *([survives_a_kill] if self_test else [])]:
        try:
            finding = look()
        except Exception as error:  # a doctor does not faint
            finding = Finding(look.__name__.replace("_", " "), "broken", f"{type(error).__name__}: {error}")
        findings.append(finding)
        say(finding)
    return findings


def python() -> Finding:
    """The version of Python."""
    found = f"{sys.version.split()[0]} at {sys.executable}"
    if (3, 11) <= sys.version_info[:2] <= (3, 14):
        return Finding("python", "ok", found)
    return Finding("python", "broken", found, "python3.13 -m venv .venv && .venv/bin/pip install -e .")


def packages() -> Finding:
    """Whether every package that is needed is there, in a version that was tested."""
    wrong, right = [], []
    for text in importlib.metadata.requires("fcritic") or ():
        need = Requirement(text)
        if need.name == "dm_control" or (need.marker is not None and not need.marker.evaluate({"extra": ""})):
            continue
        try:
            version = importlib.metadata.version(need.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append((need, "missing"))
            continue
        (right if need.specifier.contains(version, prereleases=True) else wrong).append((need, version))
    if not wrong:
        return Finding("packages", "ok", ", ".join(f"{need.name} {version}" for need, version in right))
    found = ", ".join(f"{need.name} is {version}, {need.specifier} is needed" for need, version in wrong)
    needs = " ".join(f"'{need.name}{need.specifier}'" for need, _ in wrong)
    return Finding("packages", "broken", found, f"{sys.executable} -m pip install {needs}")


def control_suite() -> Finding:
    """Whether the tasks of the DeepMind Control Suite can be built, with the version that was tested."""
    need = Requirement(REQUIREMENT)
    try:
        version = importlib.metadata.version(need.name)
    except importlib.metadata.PackageNotFoundError:
        return Finding("control suite", "note", "no dm_control, so none of its tasks", INSTALL)
    if need.specifier.contains(version):
        return Finding("control suite", "ok", f"dm_control {version}")
    return Finding("control suite", "broken", f"dm_control is {version}, {need.specifier} is needed", INSTALL)


def device() -> Finding:
    """What computes, and whether a GPU lies idle."""
    try:
        devices = jax.devices()
    except RuntimeError as error:
        return Finding("device", "broken", f"JAX finds none: {error}", "unset JAX_PLATFORMS, or check the driver")
    found = f"{len(devices)} x {devices[0].device_kind} ({jax.default_backend()}), {os.cpu_count()} CPU cores"
    if jax.default_backend() == "cpu" and _has_nvidia_gpu():
        repair = f"{sys.executable} -m pip install -e '.[gpu]'"
        return Finding("device", "note", f"{found}; there is a GPU that JAX does not use", repair)
    return Finding("device", "ok", found)


def _has_nvidia_gpu() -> bool:
    if not shutil.which("nvidia-smi"):
        return False
    return subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=20).returncode == 0


def memory() -> Finding:
    """Whether there is room for a training."""
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    if size < 3:
        return Finding("memory", "note", f"{size:.1f} GiB", "choose a smaller --replay or fewer --seeds")
    return Finding("memory", "ok", f"{size:.1f} GiB")


def disk() -> Finding:
    """Whether this folder can be written, how fast a file is safe on it, and how much is free."""
    folder = Path.cwd()
    free = shutil.disk_usage(folder).free / 2**30
    path = folder / f".fcritic-doctor-{os.getpid()}"
    try:
        start = time.perf_counter()
        for number in range(5):
            replace_file(path, bytes([number]) * 100_000)
        elapsed = (time.perf_counter() - start) / 5
    except OSError as error:
        repair = "run from, or name with --out, a folder that can be written"
        return Finding("disk", "broken", f"{folder} cannot be written: {error.strerror}", repair)
    finally:
        path.unlink(missing_ok=True)
    found = f"{free:.1f} GiB free, a file is safe after {1000 * elapsed:.1f} ms"
    if free < 1:
        return Finding("disk", "note", found, "free some space, or name another disk with --out")
    return Finding("disk", "ok", found)


def cache() -> Finding:
    """Whether compiled programs can be kept, so that a second start is fast."""
    folder = Path(jax.config.jax_compilation_cache_dir or "")  # pyright: ignore[reportAttributeAccessIssue]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        size = sum(path.stat().st_size for path in folder.iterdir()) / 2**20
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "not writable")
    except OSError as error:
        return Finding("cache", "note", f"{folder}: {error.strerror}", "set JAX_COMPILATION_CACHE_DIR to a folder")
    return Finding("cache", "ok", f"{size:.0f} MiB of compiled programs in {folder}")


def graphics() -> Finding:
    """Whether pictures of the simulator can be drawn; only videos need it."""
    for backend in ("egl", "osmesa"):
        if can_draw(backend):
            return Finding("graphics", "ok", f"MuJoCo draws with {backend}")
    return Finding("graphics", "note", "no GL, so no videos", "sudo apt-get install libegl1 libosmesa6")


def programs() -> Finding:
    """Whether ffmpeg, for videos, and a browser, for tests of pages, are installed."""
    found = {name: next(filter(None, map(shutil.which, names)), None) for name, names in PROGRAMS.items()}
    missing = [name for name, path in found.items() if path is None]
    told = ", ".join(path for path in found.values() if path)
    if not missing:
        return Finding("programs", "ok", told)
    why = {"ffmpeg": "no ffmpeg, so no fcritic video", "chromium": "no Chromium, so tests of pages are skipped"}
    return Finding(
        "programs",
        "note",
        "; ".join([why[name] for name in missing] + [told] * bool(told)),
        f"sudo apt-get install {' '.join(missing)}",
    )


PROGRAMS = {"ffmpeg": ("ffmpeg",), "chromium": ("chromium", "chromium-browser", "google-chrome")}
"""Programs that are not Python packages, by the name of Debian's package."""

EXTRAS = {
    "ray": ("cluster", "experiment run --on ray"),
    "h5py": ("data", "rank on D4RL files"),
    "minari": ("data", "rank on Minari data"),
    "onnx": ("onnx", "export --onnx"),
    "onnxruntime": ("onnx", "rank with .onnx policies"),
    "optuna": ("tune", "tune"),
    "wandb": ("trackers", "train --log wandb"),
    "trackio": ("trackers", "train --log trackio"),
}
"""Optional packages: the extra that installs each, and the command that needs it."""


def extras() -> Finding:
    """Which optional packages are missing, and for which command."""
    missing = [name for name in EXTRAS if importlib.util.find_spec(name) is None]
    if not missing:
        return Finding("extras", "ok", ", ".join(EXTRAS))
    told = ", ".join(f"no {name}, so no fcritic {EXTRAS[name][1]}" for name in missing)
    groups = ",".join(dict.fromkeys(EXTRAS[name][0] for name in missing))
    return Finding("extras", "note", told, f"{sys.executable} -m pip install -e '.[{groups}]'")


def can_draw(backend: str) -> bool:
    """Whether MuJoCo draws with this backend, tried in a process of its own: a failed try spoils the next."""
    program = "import mujoco; mujoco.Renderer(mujoco.MjModel.from_xml_string('<mujoco/>'), 16, 16).render()"
    environment = os.environ | {"MUJOCO_GL": backend}
    try:
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, timeout=60)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def survives_a_kill() -> Finding:
    """Compares a training that is killed twice and continued, bit for bit, with one that is not."""
    from fcritic.startup import kills

    start = time.monotonic()
    result = kills.check(2, lambda line: None)
    found = f"trained, killed twice, continued: {time.monotonic() - start:.0f} s"
    if result["passed"] == result["of"] and result["same_end"]:
        return Finding("self-test", "ok", f"{found}; bit for bit the training that was never stopped")
    return Finding(
        "self-test", "broken", f"{found}; but it ended elsewhere: {result}", "report this with the output"
    )
