"""What a stranger may have sent beside a run: logged data, policies in ONNX files and fitted evaluators.

Each case puts something at `Scene.sent`, which a command then names; libraries in C read most of it.
"""

from collections.abc import Callable, Iterator
import json
import os
from pathlib import Path
import shutil
import stat
import struct
from typing import Any
import zipfile

import numpy as np

from benchmarks.attacks import forging
from benchmarks.attacks.stranger_cases import Case, Scene, _bind, _pointing
from fcritic.runs.checkpoint import MANIFEST

ROWS = 9


def cases() -> Iterator[Case]:
    """All of them, the honest ones first."""
    for generator in (_honest, _places, _archives, _hdf5, _damaged, _minari, _folders, _onnx, _evaluators, _crowds):
        yield from generator()


def _fields() -> dict[str, np.ndarray]:
    """A small dataset in the layout of D4RL."""
    rows = np.arange(ROWS)
    obs = np.stack([rows, rows % 3], axis=1).astype(np.float32)
    return {
        "observations": obs,
        "actions": np.linspace(-1, 1, ROWS, dtype=np.float32)[:, None],
        "rewards": rows.astype(np.float32),
        "terminals": rows == ROWS - 1,
        "timeouts": rows == 4,
        "next_observations": obs + 1,
    }


def _sent(make: Callable[[Path, Scene], object]) -> Callable[[Scene], object]:
    """An attack that makes what is sent."""
    return lambda scene: make(scene.sent, scene)


def _npz(path: Path) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, **_fields())


def _h5(path: Path, **odd: Callable[[Any, str, np.ndarray], object]) -> None:
    """An HDF5 file in which some fields are made in another way."""
    import h5py

    with h5py.File(path, "w") as file:
        for name, array in _fields().items():
            if name in odd:
                odd[name](file, name, array)
            else:
                file.create_dataset(name, data=array)


def _log_folder(path: Path, scene: Scene) -> None:
    """A folder as `fcritic log` writes it."""
    shutil.copytree(scene.home / "templates" / "logged", path)


def _evaluator(path: Path, scene: Scene) -> None:
    shutil.copytree(scene.home / "templates" / "evaluator", path)


def _honest() -> Iterator[Case]:
    for name, make, command in (
        ("an NPZ file", lambda path, scene: _npz(path), "rank-data"),
        ("an HDF5 file", lambda path, scene: _h5(path), "rank-data"),
        ("a folder of fcritic log", _log_folder, "rank-data"),
        ("a dataset of Minari", lambda path, scene: _minari_folder(path), "rank-data"),
        ("an evaluator", _evaluator, "rank-with"),
        ("an ONNX file", lambda path, scene: path.write_bytes(_model()), "rank-policy"),
    ):
        yield Case("sent, honest", name, _sent(make), (command,), works=True)
    nothing = lambda scene: None
    yield Case("sent, honest", "a run", nothing, ("rank-run", "rank-its-data", "log"), works=True)


# Links, pipes and devices in every place


def _things() -> dict[str, Callable[[Path, Scene], object]]:
    zero, diary = "/dev/zero", lambda path, scene: scene.home / "diary"

    def holes(path: Path, scene: Scene) -> None:
        with path.open("wb") as file:
            file.truncate(6 * 2**30)

    return {
        "link to a file of the user": _pointing(diary),
        "link to itself": _pointing(lambda path, scene: path.name),
        "link to /dev/zero": _pointing(lambda path, scene: zero),
        "pipe": lambda path, scene: os.mkfifo(path),
        "socket": lambda path, scene: _bind(path),
        "a device like /dev/zero": lambda path, scene: os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5)),
        "6 GiB of holes": holes,
        "folder": lambda path, scene: path.mkdir(),
        "empty file": lambda path, scene: path.touch(),
    }


def _places() -> Iterator[Case]:
    folders = {
        "rank-with": (_evaluator, (MANIFEST, "critics.safetensors", "data.safetensors")),
        "rank-data": (_log_folder, ("dataset.json", "obs.npy", "act.npy", "reward.npy")),
        "rank-data of Minari": (
            lambda path, scene: _minari_folder(path),
            ("data", "data/metadata.json", "data/main_data.hdf5"),
        ),
    }
    for thing, make in _things().items():
        for command in ("rank-data", "rank-with", "rank-policy"):
            yield Case("sent, links", f"{command}: {thing}", _sent(make), (command,), (command,))
        for command, (whole, names) in folders.items():
            typed = command.split()[0]
            for name in names:

                def attack(
                    scene: Scene,
                    whole: Callable[[Path, Scene], object] = whole,
                    name: str = name,
                    make: Callable[[Path, Scene], object] = make,
                ) -> None:
                    whole(scene.sent, scene)
                    path = scene.sent / name
                    if path.is_dir():
                        os.rename(path, scene.sent / "elsewhere")
                    else:
                        path.unlink()
                    make(path, scene)

                yield Case("sent, links", f"{command}: {name}: {thing}", attack, (typed,), (typed,))

    def around(scene: Scene) -> None:
        _minari_folder(scene.home / "templates" / "minari")
        scene.sent.mkdir()
        (scene.sent / "data").symlink_to(scene.home / "templates" / "minari" / "data")

    yield Case("sent, links", "a link to the folder of another dataset", around, ("rank-data",), ("rank-data",))


# Arrays in NumPy's format


def _header(text: bytes, version: int = 1) -> bytes:
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text


def _described(shape: tuple[int, ...], descr: str = "<f4", fortran: bool = False) -> bytes:
    return _header(repr({"descr": descr, "fortran_order": fortran, "shape": shape}).encode() + b"\n")


def _zeros(begin: bytes, size: int) -> Callable[[Any], None]:
    def write(member: Any) -> None:
        member.write(begin)
        for _ in range(size // 2**22):
            member.write(bytes(2**22))

    return write


def _archive(path: Path, name: str, write: Callable[[Any], object], how: int = zipfile.ZIP_DEFLATED) -> None:
    with zipfile.ZipFile(path, "w", how) as archive:
        for field, array in _fields().items():
            with archive.open(f"{field}.npy", "w", force_zip64=True) as member:
                write(member) if field == name else np.save(member, array)


def _archives() -> Iterator[Case]:
    """Fields of an NPZ file, and the same as a file of a folder."""

    class Planted:
        def __init__(self, planted: Path):
            self.planted = planted

        def __reduce__(self) -> tuple:
            return os.system, (f"touch {self.planted}",)

    beginnings = {
        "a header of 4 GiB": b"\x93NUMPY\x02\0" + struct.pack("<I", 2**32 - 1),
        "a nested header": _header(b"(" * 9000),
        "a header of signs": _header(b"-" * 9000 + b"1"),
        "a header that is no text": _header(b"\xff" * 100),
        "another format": b"\x93NUMPY\x09\0" + bytes(10),
        "negative sizes": _described((-9, -2)),
        "more sizes than there can be": _described((1,) * 500 + (9,)),
        "a size of 5,000 digits": _header(
            b"{'descr':'<f4','fortran_order':False,'shape':(" + b"9" * 5000 + b",2)}"
        ),
        "sizes of text": _header(b"{'descr':'<f4','fortran_order':False,'shape':('9',2)}"),
        "entries of a gigabyte": _described((9,), "|V1000000000"),
        "a type of Python objects": _described((9, 2), "|O"),
        "a type of parts": _header(
            b"{'descr':[('a','<f4'),('b','|O')],'fortran_order':False,'shape':(9,)}",
        ),
        "rows of a terabyte": _described((9, 2**38)),
        "a terabyte of rows": _described((2**38, 2)),
        "no end": _described((9, 2)),
    }
    for name, begin in beginnings.items():
        archive = lambda path, scene, begin=begin: _archive(path, "observations", lambda file: file.write(begin))
        yield Case("sent, arrays", f"NPZ: {name}", _sent(archive), ("rank-data",), ("rank-data",))

        def in_a_folder(scene: Scene, begin: bytes = begin) -> None:
            _log_folder(scene.sent, scene)
            (scene.sent / "obs.npy").write_bytes(begin)

        yield Case("sent, arrays", f"a folder: {name}", in_a_folder, ("rank-data",), ("rank-data",))
    unpack = {
        "a header of 500 MB that is there": _zeros(b"\x93NUMPY\x02\0" + struct.pack("<I", 2**29 - 2**22), 2**29),
        "observations of 500 MB from few bytes": _zeros(_described((9, 2**24 // 2)), 9 * 2**25),
        "in Fortran's order": _zeros(_described((9, 2**24 // 2), fortran=True), 9 * 2**25),
    }
    for name, write in unpack.items():
        make = lambda path, scene, write=write: _archive(path, "observations", write)
        yield Case("sent, arrays", f"NPZ: {name}", _sent(make), ("rank-data",), ("rank-data",))

    def pickled(path: Path, scene: Scene) -> None:
        objects = np.array([Planted(scene.planted)] * ROWS, object)
        _archive(path, "rewards", lambda file: np.save(file, objects, allow_pickle=True))

    def many_names(path: Path, scene: Scene) -> None:
        """A list of contents of 40 MB, written by hand: a million names of parts that are not there."""
        name = (
            b"PK\x01\x02" + struct.pack("<6H3L5H2L", *(20, 20, 0, 0, 0, 0), 0, 0, 0, *(1, 0, 0, 0, 0), 0, 0) + b"x"
        )
        count = 900_000
        end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 65_535, 65_535, count * len(name), 4, 0)
        path.write_bytes(b"PK\x03\x04" + name * count + end)

    yield Case("sent, arrays", "NPZ: pickles", _sent(pickled), ("rank-data",), ("rank-data",))
    yield Case("sent, arrays", "NPZ: a million names", _sent(many_names), ("rank-data",), ("rank-data",))
    for how in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        make = lambda path, scene, how=how: _archive(path, "none", lambda file: None, how)
        yield Case("sent, arrays", f"NPZ: packed in way {how}", _sent(make), ("rank-data",), ("rank-data",))


# HDF5


def _hdf5() -> Iterator[Case]:
    def external_file(file: Any, name: str, array: np.ndarray, target: str = "/dev/zero") -> None:
        file.create_dataset(name, array.shape, array.dtype, external=[(target, 0, array.nbytes)])

    def kinds(scene: Scene) -> dict[str, Callable[[Any, str, np.ndarray], object]]:
        import h5py

        diary, pipe = str(scene.home / "diary"), str(scene.sent) + ".pipe"
        lazily = lambda shape, chunks, **more: (
            lambda file, name, array: file.create_dataset(name, shape, array.dtype, chunks=chunks, **more)
        )

        def circle(file: Any, name: str, array: np.ndarray) -> None:
            file["rewards"] = file["/"]

        def virtual(file: Any, name: str, array: np.ndarray) -> None:
            layout = h5py.VirtualLayout(array.shape, array.dtype)
            layout[...] = h5py.VirtualSource(diary, "x", array.shape, array.dtype)
            file.create_virtual_dataset(name, layout)

        def bomb(file: Any, name: str, array: np.ndarray) -> None:
            """A stored piece that unpacks to far more than it is said to have."""
            import zlib

            made = file.create_dataset(name, array.shape, array.dtype, chunks=array.shape, compression="gzip")
            packer = zlib.compressobj(9)
            data = b"".join(packer.compress(bytes(2**22)) for _ in range(1024)) + packer.flush()
            made.id.write_direct_chunk((0,) * array.ndim, data)

        return {
            "numbers in another file": lambda *each: external_file(*each, target=diary),
            "numbers in /dev/zero": external_file,
            "numbers in a pipe": lambda *each: external_file(*each, target=pipe),
            "a link to another file": lambda file, name, array: file.__setitem__(
                name, h5py.ExternalLink(diary, "x")
            ),
            "a link to a pipe": lambda file, name, array: file.__setitem__(name, h5py.ExternalLink(pipe, "x")),
            "a link to itself": lambda file, name, array: file.__setitem__(name, h5py.SoftLink(f"/{name}")),
            "a view of another file": virtual,
            "a folder that holds itself": circle,
            "rows that were never written": lazily((2**40,), (2**16,), maxshape=(None,)),
            "a huge piece": lazily((ROWS,), (2**29,), maxshape=(None,), compression="gzip"),
            "a piece that unpacks to 4 GiB": bomb,
            "text": lambda file, name, array: file.create_dataset(name, data=["x"] * ROWS),
            "references": lambda file, name, array: file.create_dataset(
                name, data=np.array([file.ref] * ROWS, h5py.ref_dtype), dtype=h5py.ref_dtype
            ),
            "lists": lambda file, name, array: file.create_dataset(name, (ROWS,), h5py.vlen_dtype(np.float32)),
            "parts": lambda file, name, array: file.create_dataset(
                name, (ROWS,), np.dtype([("a", "f4"), ("b", "f4")])
            ),
            "nothing": lambda file, name, array: file.create_dataset(name, data=h5py.Empty("f4")),
            "one number": lambda file, name, array: file.create_dataset(name, data=1.0),
        }

    names = (
        *("numbers in another file", "numbers in /dev/zero", "numbers in a pipe", "a link to another file"),
        *("a link to a pipe", "a link to itself", "a view of another file", "a folder that holds itself"),
        *("rows that were never written", "a piece that unpacks to 4 GiB", "text"),
        *("references", "lists", "parts", "nothing", "one number"),
    )
    for name in (*names, "a huge piece"):

        def attack(scene: Scene, name: str = name) -> None:
            os.mkfifo(f"{scene.sent}.pipe")
            _h5(scene.sent, rewards=kinds(scene)[name])

        refused = ("rank-data",) if name in names else ()
        yield Case("sent, hdf5", name, attack, ("rank-data",), refused)
    for name in names[:6]:

        def hidden(scene: Scene, name: str = name) -> None:
            """Where it is looked whether the file is one of Minari's."""
            import h5py

            os.mkfifo(f"{scene.sent}.pipe")
            _h5(scene.sent)
            with h5py.File(scene.sent, "a") as file:
                kinds(scene)[name](file, "episode_0", np.zeros(ROWS, np.float32))

        yield Case("sent, hdf5", f"episode_0: {name}", hidden, ("rank-data",), ("rank-data",))


CRASHES = 40


def _damaged() -> Iterator[Case]:
    """Bytes of files that libraries in C read, changed by chance."""
    makers: dict[str, tuple[Callable[[Path], object], str]] = {
        "HDF5": (_h5, "rank-data"),
        "ONNX": (lambda path: path.write_bytes(_model()), "rank-policy"),
        "NPZ": (_npz, "rank-data"),
    }
    for kind, (make, command) in makers.items():
        for number in range(CRASHES):

            def attack(scene: Scene, make: Callable[[Path], object] = make, number: int = number) -> None:
                make(scene.sent)
                rng = np.random.default_rng(number)
                data = bytearray(scene.sent.read_bytes())
                for place in rng.integers(0, len(data), rng.integers(1, 9)):
                    data[place] = rng.integers(256)
                scene.sent.write_bytes(data)

            yield Case("sent, damaged", f"{kind}: {number}", attack, (command,))


# Minari


def _minari_folder(path: Path, odd: Callable[[dict, Any], object] = lambda facts, file: None) -> None:
    """A dataset in Minari's layout, changed by a function of its metadata and its file."""
    import h5py

    box = lambda size: {
        "type": "Box",
        "dtype": "float32",
        "shape": [size],
        "low": [-99.0] * size,
        "high": [99.0] * size,
    }
    action = box(1) | {"low": [-1.0], "high": [1.0]}
    facts = {"total_steps": 6, "total_episodes": 2, "data_format": "hdf5", "dataset_id": "a/b-v0"}
    facts |= {
        "minari_version": "0.5.4",
        "observation_space": json.dumps(box(2)),
        "action_space": json.dumps(action),
    }
    (path / "data").mkdir(parents=True)
    with h5py.File(path / "data" / "main_data.hdf5", "w") as file:
        for number in range(2):
            group = file.create_group(f"episode_{number}")
            group["observations"] = np.arange(8, dtype=np.float32).reshape(4, 2)
            group["actions"], group["rewards"] = np.zeros((3, 1), np.float32), np.arange(3.0)
            group["terminations"], group["truncations"] = np.zeros(3, bool), np.array([False, False, True])
        odd(facts, file)
    (path / "data" / "metadata.json").write_text(json.dumps(facts))


def _minari() -> Iterator[Case]:
    def replaced(file: Any, name: str, value: Any) -> None:
        del file[name]
        file[name] = value

    def of_file(change: Callable[[Any], object]) -> Callable[[dict, Any], object]:
        return lambda facts, file: change(file)

    def of_facts(**changes: object) -> Callable[[dict, Any], object]:
        return lambda facts, file: facts.update(changes)

    space = lambda **fields: json.dumps({"type": "Box", "dtype": "float32", "shape": [2]} | fields)
    nest = lambda depth: '{"type":"Tuple","subspaces":[' * depth + "]}" * depth
    h5 = lambda: __import__("h5py")
    odd: dict[str, Callable[[dict, Any], object]] = {
        "an episode in another file": of_file(
            lambda file: replaced(file, "episode_1", h5().ExternalLink("/dev/zero", "x"))
        ),
        "rewards in another file": of_file(
            lambda file: replaced(file, "episode_1/rewards", h5().ExternalLink("../../keep", "x"))
        ),
        "an episode that is another": of_file(
            lambda file: replaced(file, "episode_1", h5().SoftLink("/episode_0"))
        ),
        "a billion episodes": of_facts(total_episodes=10**9, total_steps=10**9),
        "a million million steps": of_facts(total_steps=10**12),
        "steps of text": of_facts(total_steps="6"),
        "steps 1e308": of_facts(total_steps=1e308),
        "steps of 400 digits": of_facts(total_steps=10**400),
        "negative episodes": of_facts(total_episodes=-1),
        "another format": of_facts(data_format="arrow"),
        "a format of text": of_facts(data_format="\x1b[2J"),
        "a space of a gigabyte": of_facts(observation_space=space(shape=[2**28], low=0, high=1)),
        "a space of text": of_facts(observation_space=space(dtype="U1000000000", low=["a"] * 2, high=["b"] * 2)),
        "a space of objects": of_facts(observation_space=space(dtype="O", low=[0, 0], high=[1, 1])),
        "a nested space": of_facts(observation_space=nest(50_000)),
        "a space nested in parts": of_facts(observation_space=nest(300)),
        "a space of a list": of_facts(observation_space="[]"),
        "a space of nothing": of_facts(observation_space="null"),
        "an environment of a list": of_facts(env_spec="[]"),
        "an environment of code": of_facts(env_spec=json.dumps({"id": "x", "entry_point": "helper:make"})),
        "an environment of signs": of_facts(env_spec=json.dumps({"id": "\x1b[2J\n"})),
        "spaces that code must tell": lambda facts, file: (
            facts.pop("observation_space"),
            facts.update(env_spec=json.dumps({"id": "helper:X-v0", "entry_point": "helper:make"})),
        ),
    }
    for name, change in odd.items():
        make = lambda path, scene, change=change: _minari_folder(path, change)
        refused = () if name.startswith("an environment") else ("rank-data",)
        yield Case("sent, minari", name, _sent(make), ("rank-data",), refused, watched=("helper",))


# Folders of fcritic log


def _folders() -> Iterator[Case]:
    changes: dict[str, object] = {
        "transitions": [0, -1, 2**47, 10**400, "9", 1e308, None, True],
        "obs_dim": [0, 2**40, -1, "2", None],
        "obs_shape": [[2**40], [], [[1]], "x", [0]],
        "action_shape": [[2**40], [[1]], None],
        "action_low": [[1e308], ["x"], [None], [], [float("nan")]],
        "task": ["\x1b[2J", "helper:X-v0", 5, "\ud800", "x" * 10**6],
        "action_repeat": [0, 10**400, "1"],
        "format": [2, None, "1"],
    }
    for field, values in changes.items():
        for value in values:  # pyright: ignore

            def attack(scene: Scene, field: str = field, value: object = value) -> None:
                _log_folder(scene.sent, scene)
                path = scene.sent / "dataset.json"
                path.write_text(json.dumps(json.loads(path.read_bytes()) | {field: value}))

            refused = () if field == "task" or (field, value) == ("obs_shape", []) else ("rank-data",)
            yield Case("sent, folders", f"{field} = {value!r:.40}", attack, ("rank-data",), refused)
    for name, text in {"nested": "[" * 10**6, "a list": "[]", "nothing": "", "not text": "\ud800"}.items():

        def replaced(scene: Scene, text: str = text) -> None:
            _log_folder(scene.sent, scene)
            (scene.sent / "dataset.json").write_bytes(text.encode(errors="surrogatepass"))

        yield Case("sent, folders", f"dataset.json: {name}", replaced, ("rank-data",), ("rank-data",))


# ONNX


def _model(nodes: Callable[[Any], list] | None = None, weights: Callable[[Any], list] | None = None) -> bytes:
    """A policy that acts by the mean of the observations, or one of other nodes."""
    import onnx

    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    mean = [helper.make_node("ReduceMean", ["obs"], ["act"], axes=[1], keepdims=1)]
    info = lambda name, width: helper.make_tensor_value_info(name, kind, ["n", width])
    graph = helper.make_graph(
        nodes(onnx) if nodes else mean,
        "policy",
        [info("obs", None)],
        [info("act", 1)],
        weights(onnx) if weights else [],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def _onnx() -> Iterator[Case]:
    mean = lambda onnx, to: onnx.helper.make_node("ReduceMean", ["obs"], [to], axes=[1], keepdims=1)
    node = lambda onnx, *args, **more: onnx.helper.make_node(*args, **more)
    constant = lambda onnx, name, value: onnx.numpy_helper.from_array(np.asarray(value), name)

    def outside(location: str, offset: int = 0) -> bytes:
        def weights(onnx: Any) -> list:
            tensor = onnx.TensorProto(name="w", data_type=1, dims=[1], data_location=onnx.TensorProto.EXTERNAL)
            for key, value in {"location": location, "offset": str(offset), "length": "4"}.items():
                entry = tensor.external_data.add()
                entry.key, entry.value = key, value
            return [tensor]

        return _model(lambda onnx: [mean(onnx, "m"), node(onnx, "Add", ["m", "w"], ["act"])], weights)

    def large(count: int) -> bytes:
        return _model(
            lambda onnx: [
                node(onnx, "ConstantOfShape", ["shape"], ["big"]),
                node(onnx, "ReduceSum", ["big"], ["sum"], keepdims=0),
                mean(onnx, "m"),
                node(onnx, "Add", ["m", "sum"], ["act"]),
            ],
            lambda onnx: [constant(onnx, "shape", np.array([count]))],
        )

    def endless() -> bytes:
        def nodes(onnx: Any) -> list:
            info = onnx.helper.make_tensor_value_info
            body = onnx.helper.make_graph(
                [node(onnx, "Identity", ["c"], ["still"]), node(onnx, "Cos", ["v"], ["next"])],
                "body",
                [info("i", 7, []), info("c", 9, []), info("v", 1, ["n", 1])],
                [info("still", 9, []), info("next", 1, ["n", 1])],
            )
            return [mean(onnx, "m"), node(onnx, "Loop", ["trips", "true", "m"], ["act"], body=body)]

        return _model(
            nodes, lambda onnx: [constant(onnx, "trips", np.int64(2**62)), constant(onnx, "true", np.bool_(True))]
        )

    def claims(dims: list[int]) -> bytes:
        return _model(
            lambda onnx: [mean(onnx, "m"), node(onnx, "Add", ["m", "w"], ["act"])],
            lambda onnx: [onnx.TensorProto(name="w", data_type=1, dims=dims, raw_data=b"1234")],
        )

    models: dict[str, Callable[[], bytes]] = {
        "weights in a file of the user": lambda: outside("../diary"),
        "weights in a file beside": lambda: outside("act.py"),
        "weights in /dev/zero": lambda: outside("/dev/zero"),
        "weights in a pipe": lambda: outside("pipe"),
        "weights in memory": lambda: outside("*/_ORT_MEM_ADDR_/*", 4096),
        "weights in nothing": lambda: outside(""),
        "a constant of 8 GiB": lambda: large(2**31),
        "a constant of a terabyte": lambda: large(2**38),
        "a loop without end": endless,
        "a weight of terabytes": lambda: claims([2**40]),
        "a weight of negative size": lambda: claims([-1]),
        "sizes that overflow": lambda: claims([2**32, 2**32]),
        "a node of another maker": lambda: _model(
            lambda onnx: [node(onnx, "Evil", ["obs"], ["act"], domain="evil")]
        ),
        "a node that needs itself": lambda: _model(lambda onnx: [node(onnx, "Add", ["act", "obs"], ["act"])]),
        "no nodes": lambda: _model(lambda onnx: []),
        "chance": lambda: os.urandom(5000),
        "nests": lambda: b"\x3a\xff\xff\xff\xff\x07" * 10_000,
    }
    for name, content in models.items():

        def attack(scene: Scene, content: Callable[[], bytes] = content) -> None:
            scene.sent.write_bytes(content())

        yield Case("sent, onnx", name, attack, ("rank-policy",), ("rank-policy",))


# Evaluators


def _evaluators() -> Iterator[Case]:
    def facts(**changes: object) -> Callable[[dict], object]:
        return lambda manifest: manifest["facts"].update(changes)

    def inner(name: str, **changes: object) -> Callable[[dict], object]:
        return lambda manifest: manifest["facts"][name].update(changes)

    changes: dict[str, Callable[[dict], object]] = {
        "no facts": lambda m: m.update(facts={}),
        "another version": facts(evaluator=99),
        "no names": facts(names=[]),
        "names of lists": facts(names=[[]]),
        "a million names": facts(names=["x"] * 300_000),
        "sizes of text": facts(sizes={"probes": "x"}),
        "sizes in the far future": inner("sizes", samples=2**40),
        "a span of text": facts(span="1"),
        "a span of 1e308": facts(span=1e308),
        "a span of nothing": facts(span=0),
        "a scale of 400 digits": facts(reward_scale=10**400),
        "a mean of infinity": facts(reward_mean=float("inf")),
        "no data": facts(data={}),
        "data of a list": facts(data=[]),
        "no sources": lambda m: m["facts"]["data"].pop("sources"),
        "sources of numbers": inner("data", sources=[1, 2]),
        "sources of text": inner("data", sources="\x1b[2J"),
        "transitions of text": inner("data", transitions="\x1b[2J"),
        "transitions of 400 digits": inner("data", transitions=10**400),
        "episodes of nothing": inner("data", episodes=None),
        "a task of a list": inner("data", task=[1]),
        "a task of signs": inner("data", task="\x1b[2J\n"),
        "critics without end": inner("config", members=2**31),
        "no critics": inner("config", members=0),
        "negative critics": inner("config", members=-3),
        "wide critics": inner("config", code=2**14),
        "a discount of 1": inner("config", discount=1.0),
        "a discount of 1e308": inner("config", discount=1e308),
        "a discount of NaN": inner("config", discount=float("nan")),
        "a method of text": inner("config", method="os.system"),
        "a method for each policy": inner("config", method="fqe"),
        "no probes": inner("config", probes=0),
        "a million million observations": inner("interface", obs_dim=2**20),
        "actions of a million": inner("interface", action_shape=[2**20]),
        "bounds of text": inner("interface", action_low=["x"]),
        "bounds of NaN": inner("interface", action_low=[float("nan")]),
        "a task that is code": inner("interface", task="helper:X-v0"),
    }
    may = {"a task of signs"}
    may |= {"a task that is code"}
    for name, change in changes.items():

        def attack(scene: Scene, change: Callable[[dict], object] = change) -> None:
            _evaluator(scene.sent, scene)
            forging.change_manifest(scene.sent, change)

        refused = () if name in may else ("rank-with",)
        yield Case("sent, evaluators", name, attack, ("rank-with",), refused, watched=("helper",))
    for group in ("critics", "data"):
        for value in (np.nan, np.inf, 3e38, -3e38, 0.0):

            def poison(scene: Scene, group: str = group, value: float = value) -> None:
                _evaluator(scene.sent, scene)
                forging.change_arrays(scene.sent, group, lambda name, array: np.full_like(array, value))

            refused = ("rank-with",) if (group == "critics" and value) or not np.isfinite(value) else ()
            yield Case("sent, evaluators", f"{group} = {value}", poison, ("rank-with",), refused)
        for size in (2**30 - 1, 40 * 2**30):

            def holes(scene: Scene, group: str = group, size: int = size) -> None:
                _evaluator(scene.sent, scene)
                with (scene.sent / f"{group}.safetensors").open("r+b") as file:
                    file.truncate(size)
                entry = {"bytes": size, "sha256": "0" * 64}
                forging.change_manifest(scene.sent, lambda manifest: manifest["groups"].update({group: entry}))

            yield Case("sent, evaluators", f"{group}: {size:,} of holes", holes, ("rank-with",), ("rank-with",))

        def code(scene: Scene, group: str = group) -> None:
            _evaluator(scene.sent, scene)
            forging.forge(scene.sent, group, forging.foreign_code(scene.planted))

        yield Case("sent, evaluators", f"{group}: a pickle", code, ("rank-with",), ("rank-with",))


# Thousands


def _crowds() -> Iterator[Case]:
    def deep(path: Path, depth: int = 5000) -> None:
        path.mkdir()
        handle = os.open(path, os.O_RDONLY)
        for _ in range(depth):
            os.mkdir("a", dir_fd=handle)
            below = os.open("a", os.O_RDONLY, dir_fd=handle)
            os.close(handle)
            handle = below
        os.close(handle)

    def many(path: Path, count: int = 100_001) -> None:
        path.mkdir()
        for number in range(count):
            os.mkdir(path / str(number)) if number % 1000 == 0 else (path / str(number)).touch()

    commands = ("rank-data", "rank-with", "watch-sent")
    yield Case(
        "sent, crowds", "5,000 folders in each other", lambda scene: deep(scene.sent), commands, commands[:2]
    )
    yield Case("sent, crowds", "100,001 files", lambda scene: many(scene.sent), commands, commands[:2])

    def in_the_run(make: Callable[[Path], object]) -> Callable[[Scene], object]:
        return lambda scene: make(scene.run / "crowd")

    used = ("resume", "evaluate", "watch", "export", "log", "rank-run", "rank-crowd")
    yield Case("sent, crowds", "5,000 folders in each other in a run", in_the_run(deep), used)
    yield Case("sent, crowds", "100,001 files in a run", in_the_run(many), used)

    def in_the_checkpoints(scene: Scene) -> None:
        for number in range(100_001):
            (scene.run / "checkpoints" / f"x{number}").touch()

    yield Case("sent, crowds", "100,001 files beside checkpoints", in_the_checkpoints, used)
