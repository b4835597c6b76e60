"""Nothing in the package opens, changes or removes a file but through `fcritic.disk`."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "fcritic"

CALLS = {
    *("open", "fdopen", "read_text", "write_text", "read_bytes", "write_bytes", "touch", "mkdir", "makedirs"),
    *("unlink", "rmdir", "rmtree", "removedirs", "copyfile", "copytree", "copy2", "symlink_to", "hardlink_to"),
    *(
        "iterdir",
        "glob",
        "rglob",
        "listdir",
        "scandir",
        "walk",
        "savefig",
        "imsave",
        "memmap",
        "fromfile",
        "tofile",
    ),
    *("loadtxt", "savetxt", "load_file", "save_file", "mkdtemp", "mkstemp", "TemporaryDirectory", "EventsWriter"),
    *("NamedTemporaryFile", "TemporaryFile", "SummaryWriter", "FileWriter", "resource_filename"),
}
"""Names of functions and methods, of any object, that reach for a file."""

OF_MODULES = {
    "os": {"open", "remove", "rename", "renames", "replace", "truncate", "mkfifo", "link", "symlink", "unlink"},
    "shutil": {"move", "copy", "rmtree", "copyfileobj", "unpack_archive", "make_archive"},
    "np": {"load", "save", "savez"},
    "io": {"open", "FileIO", "open_code"},
    "h5py": {"File"},
    "onnxruntime": {"InferenceSession"},
    "zipfile": {"ZipFile"},
}
"""And those whose names mean something else elsewhere."""

RESULTS = ("theory", "exploration", "study")
"""Studies write where their user says, and read what they wrote there; no runs of strangers."""

REASONS = {
    "disk": {"*": "the one place"},
    "api.to_onnx": {"tempfile.TemporaryFile(": "a nameless file of its own"},
    "cli.bench": {"*": "where --out says; the checkout that the package lies in"},
    "cli.dispatch": {"os.open(os.devnull, os.O_WRONLY)": "no file of anybody's"},
    "cli.experiment": {"tempfile.TemporaryDirectory()": "a new folder for quick trainings"},
    "cli.export": {"out.rglob('*')": "what it has just made"},
    "cli.watch": {"webbrowser.open(server.address)": "an address"},
    "envs.workers": {"tempfile.mkstemp(": "memory that processes share", "os.unlink(path)": "its name, at once"},
    "offline.apart_child": {
        "os.fdopen(handle, 'rb')": "a descriptor that `fcritic.disk` has opened",
        "h5py.File(file, 'r')": "a descriptor that `fcritic.disk` has opened",
        "onnxruntime.InferenceSession(file.read(),": "bytes of such a one",
        "open('/proc/self/statm',": "the machine",
        "os.listdir('/dev/fd')": "the machine",
    },
    "offline.d4rl": {
        "archive.open(": "a part of an archive that `fcritic.disk` has opened",
        "zipfile.ZipFile(pieces)": "a file that `fcritic.disk` has opened",
    },
    "offline.storage": {
        "tempfile.TemporaryFile(": "a nameless file of its own",
        "np.memmap(file,": "of that file, or of one that `fcritic.disk` has opened",
    },
    "results.plots": {
        "figure.savefig(picture,": "a picture in memory",
        "figure.savefig(drawn,": "a picture in memory",
        "Image.open(drawn)": "a picture in memory",
    },
    "runs.arrays": {
        "from safetensors import SafetensorError": "an error",
        "from safetensors import deserialize": "of bytes in memory",
    },
    "runs.trust": {"*": "the user's own list of what is trusted"},
    "runs.versions": {"Path('/proc/cpuinfo').read_text(encoding='utf-8')": "the machine"},
    "startup.doctor": {"*": "the user's own folders, which it tries"},
    "startup.kills": {"*": "new folders of its own"},
    "startup.programs": {"*": "the user's own cache of compiled programs"},
    "view.film": {
        "tempfile.TemporaryDirectory(prefix='fcritic-film-')": "a new folder for the encoder, which opens by name",
        "self._part.read_bytes()": "what the encoder has put there",
    },
    "view.page": {"files('fcritic.view').joinpath(name).read_text(encoding='utf-8')": "the package's own page"},
    "view.inspection.inspect": {
        "(files('fcritic.view.inspection') / name).read_text(encoding='utf-8')": "the package's own page"
    },
    "view.watch.run": {"Path('/proc/locks').read_text(encoding='ascii')": "the machine"},
    "view.watch.server": {"(files('fcritic.view.watch') / name).read_bytes()": "the package's own page"},
}
"""What may reach for files by itself: the calls of a module (`*`: all of them), and why."""


def reaches(tree: ast.AST) -> list[str]:
    """The calls in a module that could open, change or remove a file, and functions for it that it imports."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "shutil", "io", "tempfile", "safetensors"):
            found += [f"from {node.module} import {alias.name}" for alias in node.names]
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id in CALLS | {"safe_open"}:
            found.append(ast.unparse(node))
        elif isinstance(function, ast.Attribute):
            module = function.value.id if isinstance(function.value, ast.Name) else ""
            if function.attr in CALLS or function.attr in OF_MODULES.get(module, ()):
                found.append(ast.unparse(node))
    return found


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


OTHERS = [path for path in sorted(ROOT.rglob("*.py")) if path.relative_to(ROOT).parts[0] not in RESULTS]


def test_every_way_to_a_file_goes_through_one_door():
    used: dict[str, set[str]] = {}
    for path in OTHERS:
        name = module_name(path)
        allowed = REASONS.get(name, {})
        for call in reaches(ast.parse(path.read_text(encoding="utf-8"))):
            if call == "from os import PathLike":
                continue
            reason = "*" if "*" in allowed else next((known for known in allowed if call.startswith(known)), None)
            assert reason, f"fcritic.{name} reaches for a file with {call}: use fcritic.disk.Place"
            used.setdefault(name, set()).add(reason)
    unused = {name: set(known) - used.get(name, set()) for name, known in REASONS.items()}
    assert not any(unused.values()), f"reasons that nothing needs any more: {unused}"


OPEN_BY_THEMSELVES = ("h5py", "onnxruntime", "minari", "pyarrow", "tables", "onnx")
"""Libraries that open whatever a file names, by paths."""

APART = {
    "api.to_onnx": {"onnx"},
    "offline.apart_child": {"h5py", "onnxruntime"},
}
"""Who imports them: what writes ONNX, a process that opens no file."""


def test_libraries_that_open_files_by_themselves_are_used_apart():
    found: dict[str, set[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                if name.partition(".")[0] in OPEN_BY_THEMSELVES:
                    found.setdefault(module_name(path), set()).add(name)
    assert found == APART


@pytest.mark.parametrize(
    "code",
    [
        "h5py.File(file)",
        "zipfile.ZipFile(path)",
        "onnxruntime.InferenceSession(path)",
        "open('x')",
        "path.open('rb')",
        "os.open('x', 0)",
        "Path(x).write_text('y')",
        "os.replace(a, b)",
        "shutil.rmtree(x)",
        "from os import open as door",
        "with io.open(x): pass",
        "figure.savefig(out)",
        "np.load(path)",
        "[each for each in folder.iterdir()]",
    ],
)
def test_every_form_is_seen(code):
    assert reaches(ast.parse(code))


@pytest.mark.parametrize("code", ["text.replace('a', 'b')", "place.rename('b')", "place.reading()", "file.read()"])
def test_what_opens_nothing_is_not(code):
    assert not reaches(ast.parse(code))
