"""What a stranger may have put where a training begins: a run for `--from`, data for `--data`, a search."""

from collections.abc import Callable, Iterator
import json
import os
from pathlib import Path
import re

import numpy as np

from benchmarks.attacks import forging, sent_cases
from benchmarks.attacks.stranger_cases import Case, Scene, _only_begun, _task, checkpoints, put

SPACE = b"""[train]
task = "probe-delay"
recipe = "td3"
steps = 40
envs = 2
seeds = 1
warmup = 40
replay = 40
batch_size = 4
actor_hidden = [6]
critic_hidden = [6]
[search]
seed = [1]
"""
"""Of a search of the user's own, whose folder was received: trials that learn nothing."""


def cases() -> Iterator[Case]:
    """All of them."""
    for generator in (_from, _recorded, _data, _searches, _spaces):
        yield from generator()


def _from() -> Iterator[Case]:
    """Agents of a run that a training begins with."""
    nothing = lambda scene: None
    yield Case("begun, from", "nothing changed", nothing, ("from", "from-all", "describe-from"), works=True)
    for part, pattern in {
        "actors": "actor/params",
        "critics": "critics/params",
        "normaliser": "normalizer/",
    }.items():
        for value in (np.nan, np.inf, 3e38):

            def attack(scene: Scene, pattern: str = pattern, value: float = value) -> None:
                poison = lambda name, array: (
                    np.full_like(array, value) if array.dtype.kind == "f" and re.search(pattern, name) else array
                )
                for folder in checkpoints(scene.run):
                    forging.change_arrays(folder, "agent", poison)

            yield Case("begun, from", f"{part} = {value}", attack, ("from",), ("from",), never="learning rate")
    for thing, make in sent_cases._things().items():
        for name in ("config.json", "NEWEST/manifest.json", "NEWEST/agent.safetensors"):
            refused = ("from-all",) if name == "config.json" else ()  # there is an earlier checkpoint
            yield Case("begun, from", f"{name}: {thing}", put(name, make), ("from-all", "describe-from"), refused)
    for task in ("helper:X-v0", "helper:make", "WORK/helper.py:make"):
        commands = ("from-all", "describe-from")
        yield Case("begun, from", task, _task(task), commands, commands[:1], watched=("helper", "helpers"))


def _recorded() -> Iterator[Case]:
    """What a run says that it began with, and has not read yet."""
    names = ["/dev/zero", "/dev/tty", "/proc/self/mem", "../../home/diary", ".", "\0", "\ud800", "", "x" * 10**6]
    values: dict[str, list[object]] = {
        "begin_from": [*names, 5, []],
        "data": [*([name] for name in names), "x", [5], [["x"]], ["x"] * 10**5, ["minari:x/y-v0"]],
    }
    for field, each in values.items():
        for value in each:

            def attack(scene: Scene, field: str = field, value: object = value) -> None:
                _only_begun(scene)
                forging.change_config(scene.run, field, value)

            harmless = value in ("", [])
            commands = ("resume", "watch")
            yield Case(
                "begun, recorded", f"{field} = {value!r:.40}", attack, commands, () if harmless else commands[:1]
            )


def _data() -> Iterator[Case]:
    """Logged data that the replay begins with."""
    rows = 40
    column = np.zeros((rows, 1), np.float32)
    good = {
        "observations": column,
        "actions": column,
        "rewards": column[:, 0],
        "terminals": np.zeros(rows, bool),
        "timeouts": np.arange(rows) % 10 == 9,
        "next_observations": column,
    }
    odd = {
        "rewards of NaN": {"rewards": column[:, 0] + np.nan},
        "rewards of 3e38": {"rewards": column[:, 0] + np.float32(3e38)},
        "rewards of 1e308": {"rewards": np.full(rows, 1e308)},
        "observations of 3e38": {"observations": column + np.float32(3e38)},
        "actions of NaN": {"actions": column + np.nan},
        "observations of seven numbers": dict.fromkeys(("observations", "next_observations"), column.repeat(7, 1)),
        "actions of seven numbers": {"actions": column.repeat(7, 1)},
        "no rows": {name: array[:0] for name, array in good.items()},
        "a row less of rewards": {"rewards": column[1:, 0]},
        "complex rewards": {"rewards": column[:, 0] * 1j},
    }

    def npz(change: dict[str, np.ndarray]) -> Callable[[Scene], None]:
        def attack(scene: Scene) -> None:
            with scene.sent.open("wb") as file:
                np.savez(file, **(good | change))

        return attack

    yield Case("begun, data", "nothing changed", npz({}), ("train-data",), works=True)
    for name, change in odd.items():
        yield Case("begun, data", name, npz(change), ("train-data",), ("train-data",), never="learning rate")
    for case in sent_cases.cases():
        if case.commands == ("rank-data",) and not case.works and case.kind != "sent, damaged":
            refused = ("train-data",) if case.refused else ()
            attack, watched = case.attack, case.watched
            yield Case(
                "begun, data", f"{case.kind}: {case.name}", attack, ("train-data",), refused, watched=watched
            )


def _searches() -> Iterator[Case]:
    """The folder of a search that is gone on with."""
    created = {"op_code": 0, "worker_id": "x", "study_name": "fcritic", "directions": [2]}
    begun = {"op_code": 4, "worker_id": "y", "study_id": 0, "datetime_start": "2026-01-01T00:00:00"}
    choices = json.dumps({"name": "CategoricalDistribution", "attributes": {"choices": ["$(touch x)\x1b[2J"]}})
    drawn = {"op_code": 5, "worker_id": "y", "trial_id": 0, "param_name": "seed", "distribution": choices}
    told = {"op_code": 7, "worker_id": "y", "trial_id": 0, "step": 100, "intermediate_value": 1.0}
    journals: dict[str, list[object]] = {
        "a list": [[]],
        "null": [None],
        "another kind of row": [created, {"op_code": 99}],
        "two goals": [created | {"directions": [1, 2]}],
        "a goal that there is not": [created | {"directions": [9]}],
        "a date of text": [created, begun | {"datetime_start": "x"}],
        "a state that there is not": [created, begun | {"state": 77}],
        "a choice that there is not": [created, begun, drawn | {"param_value_internal": 99}],
        "a distribution that is code": [created, begun, drawn | {"distribution": '{"name": "os.system"}'}],
        "a frame of text": [created, begun, told | {"step": "x"}],
        "a return of a list": [created, begun, told | {"intermediate_value": [1]}],
        "a hundred thousand trials": [created, *[begun] * 100_000],
    }

    def journal(text: str | bytes) -> Callable[[Path, Scene], object]:
        data = text if isinstance(text, bytes) else text.encode()
        return lambda folder, scene: (folder / "optuna.journal").write_bytes(data)

    def holes(folder: Path, scene: Scene) -> None:
        with (folder / "optuna.journal").open("wb") as file:
            file.truncate(6 * 2**30)

    things: dict[str, Callable[[Path, Scene], object]] = {
        f"a journal with {name}": journal("".join(f"{json.dumps(row)}\n" for row in rows))
        for name, rows in journals.items()
    }
    things |= {
        "a journal of nests": journal("[" * 200_000 + "\n"),
        "a journal that is no text": journal(bytes(range(256)) * 20),
        "a journal of holes": holes,
    }
    for name in ("optuna.journal", "optuna.journal.lock", "space.json", "lock", "trial-0000"):
        for thing, make in sent_cases._things().items():
            things[f"{name}: {thing}"] = lambda folder, scene, name=name, make=make: make(folder / name, scene)
    things["trial-0000: link to a folder of the user"] = lambda folder, scene: (folder / "trial-0000").symlink_to(
        os.path.relpath(scene.home / "work" / "helpers", folder)
    )
    for name, make in things.items():

        def attack(scene: Scene, make: Callable[[Path, Scene], object] = make) -> None:
            folder = scene.run / "search"
            folder.mkdir()
            (scene.run / "space.toml").write_bytes(SPACE)
            make(folder, scene)

        yield Case("begun, searches", name, attack, ("tune",))


def _spaces() -> Iterator[Case]:
    """A file of options to search."""
    train, _, search = SPACE.partition(b"[search]\n")
    texts = {
        "steps of 1e-300": search.replace(b"[1]", b"{low = 0.0, high = 1.0, step = 1e-300}"),
        "a bound of 400 digits": search.replace(b"[1]", b"{low = 0, high = 1%s}" % (b"0" * 400)),
        "bounds of 1e308": b"learning_rate = {low = -1e308, high = 1e308}\n",
        "nests": search.replace(b"[1]", b"[" * 5000 + b"]" * 5000),
        "choices of nothing": search.replace(b"[1]", b"[{}]"),
        "another folder to write to": b'out = ["../../home/mine"]\n',
        "code to call": b'callback = ["helper.py:make"]\n',
        "code for a task": b'task-args = ["x=__import__(1)"]\n',
        "signs in a name": b'"a\\u001b[2J" = [1]\n',
        "a name of nothing": b'"" = [1]\n',
        "not text": b"\xff\xfe",
        "5 MB": b"#" + b"x" * 5_000_000,
    }
    for name, text in texts.items():

        def attack(scene: Scene, text: bytes = text) -> None:
            (scene.run / "space.toml").write_bytes(train + b"[search]\n" + text)

        yield Case("begun, spaces", name, attack, ("tune",), ("tune",), watched=("helper",))
