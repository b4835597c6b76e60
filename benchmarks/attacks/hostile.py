"""Runs that an attacker would make: each entry changes an unharmed one in place."""

from collections.abc import Callable
import json
import os
from pathlib import Path
import struct

from benchmarks.attacks.forging import change_manifest, foreign_code, forge, header, newest
from fcritic.runs import checkpoint

Attack = Callable[[Path], None]


def corpus(planted: Path) -> dict[str, Attack]:
    """The attacks by name; one that is executed would make the file `planted`."""
    return _files(planted) | _manifests(planted) | _places() | _configs(planted)


def _files(planted: Path) -> dict[str, Attack]:
    tensor = lambda kind, shape, place: header(
        json.dumps({"x": {"dtype": kind, "shape": shape, "data_offsets": place}}).encode()
    )
    entry = b'"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    contents = {
        "pickle as tensors": foreign_code(planted),
        "empty file": b"",
        "header of 2^63 bytes": struct.pack("<Q", 2**63) + b"{}",
        "header of 99 MB": struct.pack("<Q", 99_000_000) + b"{}",
        "object type": tensor("O", [1], [0, 8]) + bytes(8),
        "unknown type": tensor("F8_E5M2", [8], [0, 8]) + bytes(8),
        "outside the file": tensor("F32", [4], [0, 16]) + bytes(8),
        "product that overflows": tensor("F32", [2**62, 2**62], [0, 8]) + bytes(8),
        "terabytes of nothing": tensor("F32", [2**40, 0], [0, 0]),
        "negative shape": tensor("F32", [-2, -1], [0, 8]) + bytes(8),
        "shape of text": tensor("F32", ["2"], [0, 8]) + bytes(8),
        "shape of floats": tensor("F32", [2.0], [0, 8]) + bytes(8),
        "a thousand axes": tensor("F32", [1] * 1000, [0, 4]) + bytes(4),
        "hidden bytes": tensor("F32", [1], [0, 4]) + bytes(4000),
        "name twice": header(b"{%s,%s}" % (entry, entry)) + bytes(4),
        "nested header": header(b"[" * 100_000),
        "header of a list": header(b"[]"),
        "header that is no text": header(b"\xff" * 100),
        "names that lead outside": header(b'{"../../x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}')
        + bytes(4),
    }
    attacks: dict[str, Attack] = {
        name: (lambda run, data=data: forge(newest(run), "agent", data)) for name, data in contents.items()
    }
    for group in ("rollout", "environments", "best"):
        attacks[f"another file as {group}"] = lambda run, group=group: forge(
            newest(run), group, contents["hidden bytes"][:70]
        )
        attacks[f"no arrays in {group}"] = lambda run, group=group: forge(newest(run), group, header(b"{}"))
    return attacks


def _manifests(planted: Path) -> dict[str, Attack]:
    contents = {
        "pickle": foreign_code(planted),
        "nested": b"[" * 1_000_000,
        "nested objects": b'{"a":' * 500_000,
        "list": b"[]",
        "null": b"null",
        "no keys": b"{}",
        "not text": b"\xff\xfe",
        "long number": b"9" * 9000,
        "larger than allowed": b"[" + b"[]," * 3_000_000 + b"0]",
    }
    attacks: dict[str, Attack] = {
        f"manifest: {name}": (lambda run, data=data: (newest(run) / checkpoint.MANIFEST).write_bytes(data))
        for name, data in contents.items()
    }
    changes = {
        "groups that lead outside": lambda m: m["groups"].update({"../../../x": m["groups"]["agent"]}),
        "no groups": lambda m: m["groups"].clear(),
        "group without size": lambda m: m["groups"].update(agent={"sha256": "0"}),
        "size as text": lambda m: m["groups"]["agent"].update(bytes="12"),
        "negative size": lambda m: m["groups"]["agent"].update(bytes=-1),
        "another format": lambda m: m.update(format=99),
        "facts as a list": lambda m: m.update(facts=[]),
        "iteration as text": lambda m: m["facts"].update(iteration="5"),
        "negative iteration": lambda m: m["facts"].update(iteration=-5),
        "no replay": lambda m: m["facts"].pop("replay"),
        "replay of text": lambda m: m["facts"].update(replay="x"),
        "replay that leads outside": lambda m: m["facts"]["replay"].update(pieces=[["../../x", 1, "0"]]),
        "replay without end": lambda m: m["facts"]["replay"].update(written=2**40),
        "replay of huge pieces": lambda m: m["facts"]["replay"].update(pieces=[[0, 2**40, "0"]]),
        "replay backwards": lambda m: m["facts"]["replay"].update(oldest=9, written=3),
    }
    for name, change in changes.items():
        attacks[f"manifest: {name}"] = lambda run, change=change: change_manifest(newest(run), change)
    return attacks


def _places() -> dict[str, Attack]:
    """Names that are not what they seem."""

    def replaced(name: str, make: Callable[[Path], object]) -> Attack:
        def attack(run: Path) -> None:
            path = newest(run) / name if name != "config.json" else run / name
            path.unlink()
            make(path)

        return attack

    def folder_link(run: Path) -> None:
        folder = newest(run)
        os.rename(folder, run / "elsewhere")
        folder.symlink_to(run / "elsewhere")

    def sparse(path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(2**40)

    attacks: dict[str, Attack] = {"a link in place of a checkpoint": folder_link}
    for name in ("agent.safetensors", checkpoint.MANIFEST, "config.json"):
        attacks |= {
            f"{name}: link to /dev/zero": replaced(name, lambda path: path.symlink_to("/dev/zero")),
            f"{name}: link to itself": replaced(name, lambda path: path.symlink_to(path)),
            f"{name}: pipe": replaced(name, lambda path: os.mkfifo(path)),
            f"{name}: folder": replaced(name, lambda path: path.mkdir()),
            f"{name}: a terabyte of holes": replaced(name, sparse),
        }
    return attacks


def _configs(planted: Path) -> dict[str, Attack]:
    def change(**fields: object) -> Attack:
        def attack(run: Path) -> None:
            config = json.loads((run / "config.json").read_bytes())
            (run / "config.json").write_text(json.dumps(config | fields))

        return attack

    return {
        "config: pickle": lambda run: (run / "config.json").write_bytes(foreign_code(planted)),
        "config: nested": lambda run: (run / "config.json").write_bytes(b"[" * 1_000_000),
        "config: a billion environments": change(envs=10**9),
        "config: a billion seeds": change(seeds=10**9),
        "config: text for a number": change(envs="2"),
        "config: unknown algorithm": change(algorithm="os.system"),
        "config: algorithm of a list": change(algorithm=[]),
        "config: unknown task": change(task="../../etc/passwd"),
        "config: unknown field": change(__class__="x"),
        "config: agent of text": change(agent="x"),
    }
