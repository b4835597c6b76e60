"""How fast the whole training loop is, beside Stable-Baselines3 and SBX on the same machine in the same minutes.

Every contender is a process of its own that stays alive; they take turns in short rounds, in changing order, so
that a slow minute of the machine hits all of them. A ratio compares two contenders in the same round.
"""

import contextlib
import dataclasses
import json
import os
from pathlib import Path
import platform
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks import own_environment
from fcritic.errors import UsageError, require_at_least

PEERS = {"sbx": "SBX", "sb3": "Stable-Baselines3"}
ALGORITHMS = ("sac", "td3")
REQUIREMENTS = [
    "stable-baselines3==2.9.2",
    "sbx-rl==0.28.0",
    "dm_control==1.0.50",
    "mujoco>=3.17,<4",
]
"""What is installed for the peers, apart from fcritic's own environment."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Full training loop at one update per frame (256-256, batch 256) beside Stable-Baselines3 and SBX."""

    task: str = "cheetah-run"
    """domain-task of DeepMind Control."""
    rounds: int = 5
    """Rounds; in each every contender has one turn."""
    steps: int = 1000
    """Frames of one turn."""
    warmup: int = 1000
    """Frames with random actions before the first update, outside the measurement."""
    environment: str | None = None
    """Virtual environment of the peers; made and filled by pip where it is missing (about 3 GB)."""
    out: str | None = None
    """File for the JSON."""
    json: bool = False
    """Print JSON."""

    def __post_init__(self) -> None:
        require_at_least(1, rounds=self.rounds, steps=self.steps, warmup=self.warmup)


class Contender:
    """A process that trains when asked."""

    def __init__(self, command: list[str]):
        variables = own_environment() if command[0] == sys.executable else dict(os.environ)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=variables | {"MUJOCO_GL": "disabled", "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""},
        )
        self.facts = self._read()

    def steps_per_second(self, steps: int) -> float:
        """One turn."""
        print(steps, file=self._process.stdin, flush=True)
        return steps / self._read()["seconds"]

    def _read(self) -> dict[str, Any]:
        for line in self._process.stdout:
            if line.startswith("{"):  # a peer may greet with other lines
                return json.loads(line)
        reason = self._process.stderr.read().strip().splitlines()[-1:] or ["it said nothing"]
        raise UsageError(f"a contender stopped ({reason[0]}); delete the peers' environment to build it anew")

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()


def measure(options: Options, say=lambda line: None) -> dict[str, Any]:
    """Ratios with their spread, speeds, versions and settings; the medians of the ratios at the top level."""
    python = peers_python(options.environment, say)
    report: dict[str, Any] = {"spread": {}, "steps_per_second": {}, "contenders": {}}
    for algorithm in ALGORITHMS:
        with contextlib.ExitStack() as stack:
            contenders = {}
            for name, command in _commands(algorithm, options, python).items():
                contenders[name] = stack.enter_context(contextlib.closing(Contender(command)))
            say(f"{algorithm}: {', '.join(contenders)} have compiled and begun to learn")
            speeds = _take_turns(contenders, options, say)
        ratios = {
            f"vs_{peer}": [own / theirs for own, theirs in zip(speeds["fcritic"], speeds[peer], strict=True)]
            for peer in PEERS
        }
        report[algorithm] = {name: round(statistics.median(values), 3) for name, values in ratios.items()}
        report["spread"][algorithm] = {name: [round(min(v), 3), round(max(v), 3)] for name, v in ratios.items()}
        report["steps_per_second"][algorithm] = {
            name: [round(value, 1) for value in values] for name, values in speeds.items()
        }
        report["contenders"][algorithm] = {name: contender.facts for name, contender in contenders.items()}
    ordered = {name: report.pop(name) for name in ALGORITHMS}
    machine = {"cores": len(os.sched_getaffinity(0)), "platform": platform.platform()}
    sizes = {name: getattr(options, name) for name in ("task", "rounds", "steps", "warmup")}
    return ordered | report | {"machine": machine, "options": sizes}


def _commands(algorithm: str, options: Options, python: str) -> dict[str, list[str]]:
    """How each contender is started."""
    task = [algorithm, options.task, str(options.warmup)]
    script = str(Path(__file__).parent / "contenders" / "peer.py")
    own = {"fcritic": [sys.executable, "-m", "benchmarks.contenders.own", *task]}
    return own | {peer: [python, script, peer, *task] for peer in PEERS}


def _take_turns(contenders: dict[str, Contender], options: Options, say) -> dict[str, list[float]]:
    names, speeds = list(contenders), {name: [] for name in contenders}
    for turn in range(options.rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            time.sleep(0.5)  # threads of the one before stop to wait for work
            speeds[name].append(contenders[name].steps_per_second(options.steps))
        say(f"  round {turn + 1}: " + ", ".join(f"{name} {values[-1]:.0f}/s" for name, values in speeds.items()))
    return speeds


def peers_python(environment: str | None, say, requirements: list[str] = REQUIREMENTS, name: str = "peers") -> str:
    """The Python of the peers' environment, which is built where it does not exist."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fcritic" / name
    folder = Path(environment) if environment else cache
    python, finished = folder / "bin" / "python", folder / "installed.txt"
    if environment and python.exists() and not finished.exists():
        return str(python)  # somebody's own; it is not ours to change
    wanted = "\n".join(requirements)
    if not finished.exists() or finished.read_text(encoding="utf-8") != wanted:
        say(f"installing {', '.join(requirements)} into {folder}; this downloads up to 3 GB once")
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, *requirements], check=True, stdout=sys.stderr)
        except (OSError, subprocess.CalledProcessError) as error:
            raise UsageError(
                f"the peers cannot be installed ({error}); install them yourself and name their environment "
                "with --environment"
            ) from error
        finished.write_text(wanted, encoding="utf-8")
    return str(python)


def report_text(report: dict[str, Any]) -> str:
    """A table for a person."""
    lines = ["full training loop, frames per second; ratio = median over rounds (lowest to highest)"]
    for algorithm in ALGORITHMS:
        speeds = report["steps_per_second"][algorithm]
        lines.append(f"{algorithm}: fcritic {statistics.median(speeds['fcritic']):.0f}/s")
        for peer, title in PEERS.items():
            low, high = report["spread"][algorithm][f"vs_{peer}"]
            lines.append(
                f"  {title:<18} {statistics.median(speeds[peer]):4.0f}/s   fcritic is "
                f"{report[algorithm][f'vs_{peer}']:.2f} times as fast ({low:.2f} to {high:.2f})"
            )
    return "\n".join(lines)
