"""A run that was received from a stranger, and real commands on it: does anything happen outside of its folder?

Every attack of `benchmarks.attacks.stranger_cases` is tried with the commands that its victim may type, each in a
process of its own. Whatever they do, nothing around the run's folder changes, no foreign code runs, nothing that
only the user knows is shown or copied, memory and time stay small, and the exit code is 0 or 2 with a few clear
lines.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
import contextlib
import hashlib
import json
import os
from pathlib import Path
import random
import re
import shutil
import stat
import subprocess
import tempfile
import unicodedata

from benchmarks.attacks.fork_server import ENTRY, LIMITS, Ended, ForkServer
from benchmarks.attacks.stranger_cases import SECRET, Case, Scene, cases
from fcritic.runs.versions import versions

MOST_LINES, LONGEST_LINE = 5, 1500
"""Of complaints."""

DEEPEST = 200
"""Folders in each other that are looked into."""

MOST_HASHED = 2**28
"""Bytes of a file whose content is compared; of larger ones, of holes, times and sizes are."""

_PROGRESS = re.compile(r"running [0-9,]+ policies.*|asking the critics.*")
"""Lines of `inspect` that say how far it is."""

_SIZES = "--task probe-delay --envs 2 --seeds 2 --warmup 40 --replay 40 --batch-size 4 --actor-hidden 6 --quiet"
_LEARNS = "--recipe td3 --critic-hidden 6 --steps 120 --eval-every 60 --save-every 40 --log-every 20"
# To learn would take long to compile, and no attack needs it.
_LEARNS_NOTHING = "--recipe fac --steps 40 --eval-every 40 --save-every 20"
_CRITICS = "--members 3 --state-action-hidden 6 --state-action-code 4 --joint-hidden 6"
_ENCODER = "--encoder.probes 4 --encoder.width 8 --encoder.code 4 --encoder.depth 1 --encoder.heads 2"
ACT = b"import numpy as np\ndef still(obs): return np.zeros((len(obs), 1), np.float32)\n"
"""A policy of the user's own."""

FIT = ["--steps", "2", "--members", "2", "--hidden", "8", "--encoder-hidden", "8", "--code", "4", "--probes", "4"]
"""Options of a fit to data that were received."""

TEMPLATES = {
    "td3": f"{_SIZES} {_LEARNS}",
    "mine": f"{_SIZES} {_LEARNS} --seed 7",
    "fac": f"{_SIZES} {_LEARNS_NOTHING} {_CRITICS} {_ENCODER}",
}
"""Options of the trainings whose runs are attacked, and of the user's own."""


def command_line(command: str, scene: Scene) -> tuple[list[str], Path]:
    """What is typed, and in which folder."""
    run, sent, name = str(scene.run), str(scene.sent), command.removesuffix("-fac")
    own, policy = str(scene.home / "templates" / "evaluator"), ["--policies", "act.py:still"]
    lines = {
        "resume": ["resume", run, "--quiet"],
        "continue": ["resume", run, "--steps", "140", "--quiet"],
        "train": ["train", "--out", run, *TEMPLATES["td3"].split()],
        "from": ["train", "--out", str(scene.out / "new"), "--from", run, *TEMPLATES["td3"].split()],
        "from-all": ["train", "--out", str(scene.out / "new"), "--from", run, "--quiet"],
        "train-data": ["train", "--out", str(scene.out / "new"), "--data", sent, *TEMPLATES["td3"].split()],
        "describe-from": ["describe", "--from", run],
        "tune": ["tune", f"{run}/space.toml", "--trials", "1", "--out", f"{run}/search"],
        "evaluate": ["evaluate", run, "--episodes", "1"],
        "best": ["evaluate", run, "--episodes", "1", "--best", "--json"],
        "inspect": ["inspect", run, "--quick"],
        "plot": ["plot", run],
        "behaviour": ["plot", run, "--what", "first-reward"],
        "replay": ["replay", run],
        "export": ["export", run, "--out", str(scene.out / "agent"), "--episodes", "1"],
        "export-inside": ["export", run, "--out", f"{run}/agent", "--episodes", "1"],
        "rank-data": ["rank", "--data", sent, *policy, *FIT],
        "rank-with": ["rank", "--with", sent, *policy],
        "rank-policy": ["rank", "--with", own, "--policies", sent],
        "rank-crowd": ["rank", "--with", own, "--policies", f"{run}/crowd"],
        "rank-run": ["rank", "--with", own, "--policies", run],
        "rank-its-data": ["rank", "--data", run, *policy, *FIT],
        "log": ["log", run, "--out", str(scene.out / "logged"), "--episodes", "1"],
        "watch-sent": ["watch", sent, "--json"],
        "watch": ["watch", str(scene.run.parent), "--json"],
        "resume-here": ["resume", ".", "--quiet"],
        "evaluate-here": ["evaluate", ".", "--episodes", "1"],
    }
    return lines[name], scene.run if name.endswith("-here") else scene.work


class Stage:
    """Folders, templates and a fork server, ready for one attack after another."""

    def __init__(self, folder: Path, server: ForkServer):
        self._folder, self._server = folder, server
        self.scene = Scene(folder / "around", folder / "planted", folder / "out")
        self._templates: dict[str, Path] = {}

    def trial(self, case: Case, command: str, entry: str = ENTRY) -> tuple[str, Ended | None]:
        """What went wrong with one command on an attacked run, or nothing; and how the command ended.

        Neither, where this machine cannot make what the attack needs.
        """
        scene = self.scene
        self._set_up(self.template("fac" if command.endswith("-fac") or command == "inspect" else "td3"))
        try:
            case.attack(scene)
        except PermissionError:  # only root can make devices
            return "", None
        before = _snapshot(scene)
        args, folder = command_line(command, scene)
        ended = self._server.run(args, folder, self._variables(), case.watched, entry)
        faults = list(_faults(case, command, scene, ended, before))
        if _snapshot(scene) != before:
            _remove(scene.around)
        scene.planted.unlink(missing_ok=True)
        return "; ".join(faults), ended

    def template(self, name: str) -> Path:
        """An unharmed run, made when it is first needed."""
        if name not in self._templates:
            path = self._folder / "templates" / name
            args = self._making(name, path)
            path.parent.mkdir(exist_ok=True)
            (path.parent / "act.py").write_bytes(ACT)
            ended = self._server.run(args, path.parent, {}, limits={})
            if ended.code != 0:
                raise RuntimeError(f"no run to attack: {ended.complained}")
            self._templates[name] = path
            self._warm_up(name)
        return self._templates[name]

    def _making(self, name: str, path: Path) -> list[str]:
        """The command that makes a template."""
        if name == "logged":
            return ["log", str(self.template("td3")), "--out", str(path), "--episodes", "2"]
        if name == "evaluator":
            data = str(self.template("logged"))
            return ["rank", "--data", data, "--policies", "act.py:still", *FIT, "--save", str(path)]
        return ["train", "--out", str(path), *TEMPLATES[name].split()]

    def _warm_up(self, name: str) -> None:
        """Compiles what attacked runs need, outside of the limits: how long that takes is not their doing."""
        used = {"td3": ("continue", "replay", "export"), "fac": ("inspect",)}.get(name, ())
        if not used:
            return
        scene = Scene(self._folder / "warm" / name, self.scene.planted, self._folder / "warm" / "out")
        shutil.copytree(self._templates[name], scene.run)
        scene.work.mkdir(parents=True)
        for command in used:
            args, folder = command_line(command, scene)
            self._server.run(args, folder, {}, limits={})

    def _set_up(self, template: Path) -> None:
        """The user's folders, where they were harmed, and a run that is fresh from the stranger."""
        scene = self.scene
        if not scene.around.exists():
            self._furnish()
        for folder in (scene.run.parent, scene.out):
            _remove(folder)
            folder.mkdir(parents=True)
        shutil.copytree(template, scene.run)

    def _furnish(self) -> None:
        scene = self.scene
        code = f"import pathlib\npathlib.Path({str(scene.planted)!r}).touch()\n"
        files = {
            "diary": SECRET * 50,
            "keep": SECRET,
            ".profile": b"# " + SECRET,
            ".bashrc": b"# " + SECRET,
            ".ssh/id_ed25519": SECRET,
            ".config/fcritic/trusted-tasks": str(scene.home / "own.py").encode(),
            "own.py": b"def make(): raise ValueError\n",
            "step-000000000001.tmp-7/precious": SECRET,
            "step-000000000001.tmp-8-replaced/precious": SECRET,
            "step-000000000050/precious": SECRET,
            "seed-0/precious": SECRET,
            "rows-000000000000.f32": SECRET,
            "work/act.py": ACT,
            "work/helper.py": f"{code}import gymnasium\ngymnasium.register('X-v0', lambda: 1 / 0)\n".encode(),
            "work/helpers/__init__.py": code.encode(),
            "work/helpers/inner.py": code.encode(),
        }
        for name, data in files.items():
            path = scene.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        shutil.copytree(self.template("mine"), scene.mine)
        for name in ("logged", "evaluator"):
            shutil.copytree(self.template(name), scene.home / "templates" / name)

    def _variables(self) -> dict[str, str]:
        home = self.scene.home
        where = {"CONFIG": ".config", "CACHE": ".cache", "DATA": ".local/share", "STATE": ".local/state"}
        temporary = self._folder / "tmp"
        temporary.mkdir(exist_ok=True)
        folders = {f"XDG_{name}_HOME": str(home / folder) for name, folder in where.items()}
        return folders | {"HOME": str(home), "TMPDIR": str(temporary)}


def _remove(folder: Path) -> None:
    """Removes a folder that may be deeper than Python can go."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except (OSError, RecursionError):
        subprocess.run(["rm", "-rf", str(folder)], check=True)


def _snapshot(scene: Scene) -> dict[str, tuple]:
    """All that is around the run's folder: kind, rights, size, time of change and content of everything."""
    found, own = {}, {scene.run, scene.run.resolve()}
    for folder, folders, files in os.walk(scene.around):
        if Path(folder) in own:
            folders.clear()
            continue
        if folder.count("/") > DEEPEST:
            folders.clear()
        for name in (".", *folders, *files):
            path = Path(folder, name)
            if path in own and not path.is_symlink():
                continue
            status = os.lstat(path)
            content = ""
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(status.st_mode) and status.st_size < MOST_HASHED:
                content = hashlib.sha256(path.read_bytes()).hexdigest()
            size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
            found[str(path)] = (status.st_ino, status.st_mode, size, status.st_mtime_ns, content)
    return found


def _faults(case: Case, command: str, scene: Scene, ended: Ended, before: dict[str, tuple]) -> Iterator[str]:
    """What went wrong, in a few words each."""
    now = _snapshot(scene)
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    if changed:
        names = ", ".join(os.path.relpath(name, scene.around) for name in changed[:3])
        yield f"changed {names}"
    if scene.planted.exists() or ended.imported:
        yield f"ran foreign code {' '.join(ended.imported)}".rstrip()
    if ended.killed:
        yield f"too many {ended.killed}"
    elif ended.seconds > LIMITS["seconds"] or ended.megabytes > LIMITS["megabytes"]:
        yield f"took {ended.seconds:.0f} s, {ended.megabytes:.0f} MB"
    if ended.left:
        yield f"left {ended.left} processes behind"
    lines = [line for line in ended.complained.splitlines() if line and not _PROGRESS.fullmatch(line)]
    if not ended.killed and ended.code not in (0, 2):
        yield f"exit code {ended.code}: {' | '.join(lines[-2:])[-300:]}"
    elif case.works and ended.code != 0:
        yield f"did not work: {' | '.join(lines)[-300:]}"
    elif command in case.refused and ended.code != 2 and not ended.killed:
        yield "was not refused"
    if "Traceback" in ended.complained:
        yield "printed a traceback"
    if len(lines) > MOST_LINES or max(map(len, lines), default=0) > LONGEST_LINE:
        yield f"printed {len(lines)} lines of complaint, the longest of {max(map(len, lines))} signs"
    if ended.code == 2 and not lines:
        yield "was refused without a word"
    if case.never and (found := re.search(case.never, ended.complained)):
        yield f"said '{found[0]}'"
    if any(unicodedata.category(sign) == "Cc" and sign not in "\n\t" for sign in ended.said + ended.complained):
        yield "printed control characters"
    if SECRET.decode() in ended.said + ended.complained or any(map(_tells, _files(scene))):
        yield "showed what only the user knows"
    if wrong := case.verify(scene):
        yield wrong


def _files(scene: Scene) -> Iterator[Path]:
    """What the command may have written, but for names of files that lie elsewhere."""
    todo = [scene.run, scene.out]
    while todo:
        path = todo.pop()
        try:
            status = os.lstat(path)
            if stat.S_ISDIR(status.st_mode):
                todo += [path / name for name in os.listdir(path)]
            elif stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size < 2**24:
                yield path
        except OSError:  # gone, or deeper than a path can be long
            continue


def _tells(path: Path) -> bool:
    return SECRET in path.read_bytes()


def check(
    count: int,
    say: Callable[[str], None],
    seed: int = 0,
    kinds: tuple[str, ...] = (),
    finished: Path | None = None,
) -> dict:
    """`count` commands on attacked runs (or as many as there are), of every kind as evenly as that goes.

    With a file of finished ones, those that passed are not tried again.
    """
    with stage() as ready:
        return tried(ready, chosen(count, random.Random(seed), kinds), say, finished)


@contextlib.contextmanager
def stage() -> Iterator[Stage]:
    """A stage in a folder that is removed in the end."""
    folder = Path(tempfile.mkdtemp(prefix="strangers-"))
    try:
        with ForkServer(folder / "server") as server:
            yield Stage(folder, server)
    finally:
        _remove(folder)


def tried(
    stage: Stage, trials: list[tuple[Case, str]], say: Callable[[str], None], finished: Path | None = None
) -> dict:
    """The report on pairs of case and command; `finished` keeps them, so that a check that was stopped goes on."""
    done = _passed(finished)
    commit = versions().get("git")
    results: dict[str, dict] = defaultdict(lambda: {"passed": 0, "of": 0, "seconds": 0.0, "megabytes": 0.0})
    bad: list[dict] = []
    commits: Counter[str] = Counter()
    skipped = 0
    for number, (case, command) in enumerate(trials, start=1):
        row = done.get((case.kind, case.name, command))
        if row is None:
            wrong, ended = stage.trial(case, command)
            row = {"kind": case.kind, "case": case.name, "command": command, "wrong": wrong, "commit": commit}
            row |= {"seconds": ended.seconds, "megabytes": ended.megabytes} if ended else {"skipped": True}
            if finished:
                with finished.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
        commits[str(row["commit"])] += 1
        if row.get("skipped"):
            skipped += 1
            continue
        result, wrong = results[case.kind], row["wrong"]
        result["of"] += 1
        result["passed"] += not wrong
        for taken in ("seconds", "megabytes"):
            result[taken] = max(result[taken], row[taken])
        if wrong:
            say(f"{case.kind}: {case.name:.100}: {command}: {wrong:.300}")
            bad.append({"kind": case.kind, "case": case.name[:200], "command": command, "wrong": wrong[:500]})
        if number % 100 == 0:
            say(f"{number} of {len(trials)} commands: {len(bad)} went wrong")
    totals = {key: sum(each[key] for each in results.values()) for key in ("passed", "of")}
    return totals | {"skipped": skipped, "commits": dict(commits), "kinds": dict(results), "bad": bad}


def _passed(finished: Path | None) -> dict[tuple[str, str, str], dict]:
    """What an earlier, stopped check has found to be withstood, by kind, case and command."""
    if finished is None or not finished.exists():
        return {}
    rows = (json.loads(line) for line in finished.read_text(encoding="utf-8").splitlines() if line.endswith("}"))
    return {(row["kind"], row["case"], row["command"]): row for row in rows if not row["wrong"]}


def chosen(count: int, generator: random.Random, kinds: tuple[str, ...] = ()) -> list[tuple[Case, str]]:
    """Pairs of case and command: the first of each kind in an order by chance, then the second of each, ..."""
    by_kind: dict[str, list[tuple[float, tuple[Case, str]]]] = defaultdict(list)
    for case in cases():
        if not kinds or case.kind in kinds:
            by_kind[case.kind] += [(generator.random(), (case, command)) for command in case.commands]
    ranked = []
    for place, trials in enumerate(by_kind.values()):
        ordered = sorted(trials, key=lambda trial: trial[0])
        ranked += [(rank, place, trial) for rank, (_, trial) in enumerate(ordered)]
    ranked.sort(key=lambda each: each[:2])
    return [trial for _, _, trial in ranked[:count]]
