"""Golden values: what the program of commit 672c61a computed, to compare every later tree with.

    PYTHONPATH=$PWD python -m tests.golden.make --check            # all but studies, with the differences
    PYTHONPATH=$PWD python -m tests.golden.make --check trainings  # some parts: trainings:sac checks one entry
    PYTHONPATH=$PWD python -m tests.golden.make --write contract   # accept a change that a commit explains

Each part runs in a process of its own with the XLA flags that a user has, on the CPU. Bits depend on the versions
of packages and on the CPU, texts of programs on the versions only; elsewhere these parts are skipped. This module
reaches into the package in few places, all under "Doors", so that a move of modules is an edit there. Lines in
parentheses are remarks, no differences: arrays renamed, operations in another order.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
import contextlib
import difflib
import hashlib
import importlib
import importlib.metadata
import importlib.util
import io
import json
import lzma
import os
from pathlib import Path
import re
import subprocess
import sys
import tempfile
from typing import Any
from unittest import mock

HERE = Path(__file__).parent
PINNED = ("jax", "jaxlib", "equinox", "optax", "numpy", "gymnasium", "mujoco", "dm_control")

# Doors


def root() -> Path:
    """The folder of the package that is examined, with `trained` beside it."""
    return Path(importlib.util.find_spec("fcritic").origin).parents[1]


def command(line: list[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `fcritic ...`, run in this process."""
    from fcritic.__main__ import main

    out, err, code = io.StringIO(), io.StringIO(), 0
    streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with mock.patch("sys.argv", ["fcritic", *line]), streams[0], streams[1]:
        try:
            main()
        except SystemExit as left:
            code = left.code or 0
    return code, out.getvalue(), err.getvalue()


def checkpoint_groups(run: Path) -> dict[str, dict]:
    """The arrays of a run's last checkpoint, by group and name, and the files of its replay, as bytes."""
    import numpy as np
    from safetensors.numpy import load_file

    last = max((run / "checkpoints").glob("step-*"))
    groups = {path.stem: load_file(path) for path in sorted(last.glob("*.safetensors"))}
    rows = {path.name: np.fromfile(path, np.float32) for path in sorted((run / "replay").iterdir())}
    return groups | {"replay": rows}


def traced_update(agent: Any):
    """The jaxpr of an iteration in which the actors are updated."""
    import jax
    import jax.numpy as jnp

    from fcritic.agents.base import update
    from fcritic.types import EnvSpec, Transition

    spec = EnvSpec(obs_dim=17, act_dim=6)
    key = jax.eval_shape(lambda: jax.random.key(0))
    state = jax.eval_shape(lambda: agent.init(spec, jax.random.key(0)))
    shape = (agent.batches_per_iteration, agent.batch_size)
    of = lambda *rest: jax.ShapeDtypeStruct((*shape, *rest), jnp.float32)
    batches = Transition(of(17), of(6), of(), of(), of(17))
    due = agent.actor_due(agent.actor_delay - 1)
    return jax.make_jaxpr(lambda *given: update(agent, *given, due))(state, batches, key)


def recipes() -> dict[str, Any]:
    """The agent of each recipe."""
    from fcritic.agents.recipes import RECIPES

    return {name: agent for name, (agent, _) in RECIPES.items()}


def interpreted() -> contextlib.AbstractContextManager:
    """Kernels are interpreted, on whatever device there is."""
    for folder in (root() / "fcritic" / "kernels", root() / "fcritic" / "networks", root() / "fcritic" / "agents"):
        for path in folder.glob("*.py"):  # kernels may be imported on first use only
            importlib.import_module(f"fcritic.{folder.name}.{path.stem}")
    stack = contextlib.ExitStack()
    for name, module in list(sys.modules.items()):
        if name.startswith("fcritic.") and hasattr(module, "INTERPRET"):
            stack.enter_context(mock.patch.object(module, "INTERPRET", True))
    return stack


def as_on_a_gpu() -> contextlib.AbstractContextManager:
    """Programs are traced as on a GPU, kernels included, without one; attention as XLA computes it, not cuDNN."""
    import jax

    plain = jax.nn.dot_product_attention
    attention = lambda *given, implementation=None, **named: plain(*given, **named)
    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch("jax.default_backend", lambda: "gpu"))
    stack.enter_context(mock.patch("jax.nn.dot_product_attention", attention))
    return stack


# Trainings

SIZES = "--replay 60 --batch-size 8 --actor-hidden 16 12 --learning-rate 0.003"
OFTEN = "--eval-every 100 --log-every 20 --save-every 60"
PENDULUM = f"--task Pendulum-v1 --envs 2 --warmup 80 --steps 160 {SIZES} {OFTEN}"
CARTPOLE = f"--task cartpole-swingup --action-repeat 10 --warmup 600 --steps 1200 {SIZES}"
CARTPOLE += " --eval-every 1000 --log-every 100 --save-every 500"
FUNCTIONAL = "--members 3 --state-action-hidden 14 10 --state-action-code 6 --joint-hidden 12 10 --encoder.probes 8"
FUNCTIONAL += " --encoder.depth 2 --encoder.width 16 --encoder.code 8 --encoder.heads 2"

TRAININGS = {
    "fac": f"--recipe fac {PENDULUM} {FUNCTIONAL} --seeds 2 --seed 3 --prior-scale 0.5 --explore.noise 0.1",
    "fac-shared": f"--recipe fac-shared {PENDULUM} {FUNCTIONAL} --cycles 2 --actor-delay 2 --actor-reach 1.0",
    "sac": f"--recipe sac {CARTPOLE} --critic-hidden 14 10 --seeds 2",
    "sac+": f"--recipe sac+ {PENDULUM} --critic-hidden 14 10 --seed 5 --critics 4 --warmup-actions policy",
    "td3": f"--recipe td3 {PENDULUM} --critic-hidden 14 10 --seeds 3 --actor-batch last",
    "td3+": f"--recipe td3+ {CARTPOLE} --critic-hidden 14 10 --seeds 2 --no-normalize",
}
"""Options of `train`; half way each training ends and is resumed."""


def trainings(only: str | None) -> dict[str, Any]:
    """Of each training: its rows of metrics, and every array of its last checkpoint."""
    found = {}
    for name, line in chosen(TRAININGS, only):
        words = line.split()
        end = words[words.index("--steps") + 1]
        first = [*words, "--steps", str(int(end) * 7 // 10), "--out", name, "--quiet"]
        for step in (["train", *first], ["resume", name, "--steps", end, "--quiet"]):
            code, _, err = command(step)
            if code:
                raise SystemExit(f"fcritic {' '.join(step)}: {err}")
        found[name] = {"arrays": {}, "metrics": rows_of(Path(name))}
        for group, arrays in checkpoint_groups(Path(name)).items():
            found[name]["arrays"] |= {f"{group}: {key}": fingerprint(array) for key, array in arrays.items()}
    return found


def rows_of(run: Path) -> list[dict]:
    """The rows of metrics without times."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if "time" not in key and "second" not in key} for row in rows]


def fingerprint(array: Any) -> str:
    """Hash, type, shape and norm of an array."""
    import numpy as np

    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    norm = np.linalg.norm(np.asarray(array, np.float64).ravel())
    return f"{digest} {array.dtype} {array.shape} {norm:.8g}"


def compare_trainings(name: str, old: dict, new: dict) -> Iterator[str]:
    """Differences of metrics, then of arrays: by content, whatever their names; by name where contents differ."""
    for number, (was, now) in enumerate(zip(old["metrics"], new["metrics"], strict=False)):
        if was != now:
            keys = [key for key in was.keys() | now.keys() if was.get(key) != now.get(key)]
            yield f"{name}: metrics row {number}: " + "; ".join(
                f"{key} {was.get(key)} -> {now.get(key)}" for key in sorted(keys)
            )
            break
    if len(old["metrics"]) != len(new["metrics"]):
        yield f"{name}: {len(old['metrics'])} -> {len(new['metrics'])} rows of metrics"
    lost = Counter(old["arrays"].values()) - Counter(new["arrays"].values())
    added = Counter(new["arrays"].values()) - Counter(old["arrays"].values())
    for title, arrays, some in (("lost or changed", old["arrays"], lost), ("new or changed", new["arrays"], added)):
        if some:
            yield f"{name}: {some.total()} of {len(arrays)} arrays {title}, such as"
            shown = [key for key, value in arrays.items() if value in some][:8]
            yield from (f"    {key}  {arrays[key][:12]} {arrays[key][65:]}" for key in shown)
    if not lost and not added and old["arrays"] != new["arrays"]:
        yield f"(names only) {name}: all arrays are the same, {len(old['arrays'].keys() - new['arrays'])} renamed"


# Programs


def programs(only: str | None) -> dict[str, Any]:
    """The program of an update of each recipe: on the CPU, with kernels interpreted, as on a GPU."""
    import dataclasses

    kinds = {"cpu": contextlib.nullcontext, "interpreted": interpreted, "gpu": as_on_a_gpu}
    wanted = {f"{name} {kind}": (agent, kind) for kind in kinds for name, agent in recipes().items()}
    found = {}
    for name, (agent, kind) in chosen(wanted, only):
        if kind == "interpreted":
            if not getattr(agent, "functional", False):
                continue
            agent = dataclasses.replace(agent, precision="bfloat16")
        with kinds[kind]():
            jaxpr = traced_update(agent)
        found[name] = {"text": digest_of(normalised(str(jaxpr))), "operations": dict(sorted(count(jaxpr).items()))}
    return found


def digest_of(text: str) -> str:
    """The first 16 digits of a hash."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def normalised(text: str) -> str:
    """A text of a program without names of functions, places in sources and addresses."""
    text = re.sub(r"<(function|bound method|.*? object|.*?) [^<>]*at 0x[0-9a-f]+>", "<function>", text)
    text = re.sub(r"\bname=[^\s\]]+", "name=_", text)
    return re.sub(r"(/[\w.+-]+)+\.py(:\d+)?(:\d+)?", "_.py", text)


NAMELESS = {"pjit", "jit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call"}
"""Operations that only hold others."""
UNIMPORTANT = {
    "name",
    "name_and_src_info",
    "debug_info",
    "debug",
    "metadata",
    "call",
    "fwd",
    "bwd",
    "jvp_jaxpr_fun",
}
UNIMPORTANT |= {"fwd_jaxpr_thunk", "jvp_jaxpr_thunk", "out_trees", "symbolic_zeros", "grid_mapping", "ctx_mesh"}


def count(jaxpr: Any) -> Counter:
    """How often each operation occurs, with its parameters, constants and types, in any order."""
    import jax.extend.core as core

    found: Counter = Counter()
    jaxpr = jaxpr.jaxpr if isinstance(jaxpr, core.ClosedJaxpr) else jaxpr
    for eqn in jaxpr.eqns:
        inner, told = [], []
        for key, value in sorted(eqn.params.items()):
            parts = value if isinstance(value, tuple | list) else [value]
            jaxprs = [part for part in parts if hasattr(part, "eqns")]
            inner += jaxprs
            if not jaxprs and key not in UNIMPORTANT:
                told.append(f"{key}={value}")
        for each in inner:
            found += count(each)
        if str(eqn.primitive) not in NAMELESS:
            types = " ".join(str(var) if hasattr(var, "val") else var.aval.str_short() for var in eqn.invars)
            outs = " ".join(var.aval.str_short() for var in eqn.outvars)
            found[normalised(f"{eqn.primitive} {types} -> {outs}  {' '.join(told)}")] += 1
    return found


def compare_programs(name: str, old: dict, new: dict) -> Iterator[str]:
    """Differences of operations; another text alone is another order or other calls."""
    was, now = Counter(old["operations"]), Counter(new["operations"])
    if was != now:
        less, more = was - now, now - was
        yield f"{name}: {less.total()} operations fewer, {more.total()} more, of {was.total()}"
        for sign, some in (("-", less), ("+", more)):
            yield from (f"    {sign}{times} {line[:200]}" for line, times in some.most_common(6))
    elif old["text"] != new["text"]:
        yield f"(order only) {name}: the same operations in another order or grouping"


# Agents that are given away


def agents(only: str | None) -> dict[str, Any]:
    """Actions and values of the agents in `trained` for some observations."""
    import numpy as np

    import fcritic

    found = {}
    folders = {path.parent.name: path.parent for path in sorted((root() / "trained").glob("*/config.json"))}
    for name, folder in chosen(folders, only):
        agent = fcritic.load(folder)
        obs = np.random.default_rng(0).uniform(-1, 1, (4, agent.spec.obs_dim)).astype(np.float32)
        found[name] = {"frame": agent.frame, "actors": agent.actors, "seed": agent.seed}
        for actor in range(agent.actors):
            found[name][f"act {actor}"] = np.asarray(agent.act(obs, actor), np.float64).tolist()
            found[name][f"value {actor}"] = np.asarray(agent.value(actor, obs), np.float64).tolist()
    return found


def compare_agents(name: str, old: dict, new: dict) -> Iterator[str]:
    """Numbers that differ by more than 1e-5, or 1e-5 of themselves."""
    import numpy as np

    for key in sorted(old.keys() | new.keys()):
        if key not in old or key not in new or np.shape(old[key]) != np.shape(new[key]):
            yield f"{name}: {key} {old.get(key)} -> {new.get(key)}"
        elif isinstance(old[key], int) and old[key] != new[key]:
            yield f"{name}: {key} {old[key]} -> {new[key]}"
        elif not np.allclose(new[key], old[key], rtol=1e-5, atol=1e-5):
            yield f"{name}: {key} differs by {np.abs(np.subtract(new[key], old[key])).max():.3g}"


# The command line's contract

RUN = f"--recipe fac-shared {PENDULUM} {FUNCTIONAL} --quiet"
HELP = """
. | train | train --recipe sac | train --recipe td3 | resume | evaluate | export | check | describe | plot | replay
video | watch | inspect | experiment | experiment list | experiment run | experiment status | experiment report
bench | bench update | bench loop | bench peers | bench reliability | doctor | theory | explore
"""
"""Commands, each with `--help`."""

MISTAKES = """
tran | xyz | train --recipe fac-smal | train --recipe fac-small --recipe=x | train --task cheeta-run
train --task probe-bot | train --task pendulum-v1 | train --task CartPole-v1 | train --sead 1
train --task probe-both --action-repeat 2 | train --probe-scale=1 | evaluate begun --episode 3
evaluate begun --recipe fac | train extra | train fac-shared | train cheetah-run | describe sac++
evaluate begun file | train --normalize false | train --steps ten | train --steps 1.5 | resume begun --steps ten
train --tau much | train --actor-hidden 8 x | train --pairing none | train --envs 0 | train --seeds -1
train --seed -1 | train --learning-rate nan | train --tau 2 | train --discount 1 | train --encoder.heads 3
resume begun --steps 0 | evaluate begun --episodes 0 | train --out | train --recipe | describe --task | evaluate
resume --quiet | plot | train --task probe-both --out begun | train --task probe-both --out file
train --task probe-both --out file/run | train --task probe-both --out thesis | evaluate begun | evaluate beguun
evaluate thesis | resume file | evaluate . | plot begun | replay begun | inspect begun | video begun | inspect sac
inspect run --actors 0 0 1 | inspect run --grid 4 | replay run --actor 7 | replay run --out replay.txt
replay run --seed 9 | export run | export run --out thesis | export begun --out new | check nothing-run
check probe-both --steps 0 | plot run --out curve.bmp | plot run --what x | watch no/where | watch file
resume run --steps 40 | experiment runn | experiment run nothing | experiment status hoper | experiment report
experiment run quick --budget soon | experiment run quick --only nothing | theory theorem-3 | theory second-term x
explore deepse | explore riverswim --tasks a | bench updat | bench update --sead 1 | train --task nowhere.py:make
train --on-fault perhaps | train --warmup-actions none | train --encoder.depth 0 | train --members 0
train --prior-scale -1 | train --recipe sac --initial-temperature 0 | train --recipe td3 --noise-memory 1
train --critics 3 | train --explore.actors 11 | train --seed 5000000000 | describe --replay 99999999999
"""
"""Command lines that cannot work, in a folder with `run`, `sac`, `begun`, `thesis` and `file`."""

JSON = """
evaluate run --episodes 1 --json | export run --out given --episodes 1 --json | check probe-both --steps 20 --json
describe --json | describe --recipe sac --json | plot run --json | plot run --what diversity --json
replay run --actor 0 --json | watch . --json | inspect run --quick --json | experiment list --json
experiment status quick --json | experiment report laptop --dir none --add curves.csv --json
doctor --no-self-test --json | resume run --steps 180 --json
bench update --recipes sac --rounds 1 --seconds 0.1 --no-cached --json
"""
"""Commands that print JSON; those of `theory` and `explore` are the part `studies`."""


def lines_of(text: str) -> list[str]:
    """The command lines of a table."""
    return [line.strip() for row in text.strip().splitlines() for line in row.split("|")]


def contract(only: str | None) -> dict[str, Any]:
    """The text of each help, what is said of each mistake, and the keys of each JSON."""
    for out, words in (("run", RUN), ("sac", f"--recipe sac {PENDULUM} --quiet")):
        code, _, err = command(["train", *words.split(), "--out", out])
        if code:
            raise SystemExit(err)
    for folder in ("begun", "thesis"):
        Path(folder).mkdir()
    Path("begun/config.json").write_bytes(Path("run/config.json").read_bytes())
    Path("thesis/main.tex").write_text("mine")
    Path("file").write_text("mine")
    published = root() / "studies" / "training" / "laptop" / "laptop.csv"
    Path("curves.csv").write_bytes(published.read_bytes())
    found: dict[str, Any] = {}
    for line in lines_of(HELP):
        words = [word for word in line.split() if word != "."]
        found[f"{line} --help"] = asked([*words, "--help"])
    for line in lines_of(MISTAKES):
        found[line] = asked(line.split())
    for line in lines_of(JSON):
        code, out, err = command(line.split())
        found[line] = {"code": code, "err": [err] if code else [], "keys": form(json.loads(out)) if out else None}
    return dict(chosen(found, only))


def asked(line: list[str]) -> dict[str, Any]:
    """Exit code and what was said, line by line."""
    code, out, err = (
        text.replace(str(Path.cwd()), ".") if isinstance(text, str) else text for text in command(line)
    )
    return {"code": code, "out": [row.rstrip() for row in out.splitlines()], "err": err.splitlines()}


def form(value: Any) -> Any:
    """Keys and types of a JSON value; lists have those of their first entry."""
    if isinstance(value, dict):
        return {key: form(each) for key, each in value.items()}
    if isinstance(value, list):
        return [form(value[0])] if value else []
    kind = type(value).__name__
    return "number" if kind in ("int", "float") else kind


def compare_contract(name: str, old: dict, new: dict) -> Iterator[str]:
    """Other exit codes, keys and lines."""
    if old["code"] != new["code"]:
        yield f"fcritic {name}: exit code {old['code']} -> {new['code']}"
    if old.get("keys") != new.get("keys"):
        yield f"fcritic {name}: keys"
        yield from leaves_that_differ(old.get("keys"), new.get("keys"), "")
    told = [[*each.get("out", []), *each["err"]] for each in (old, new)]
    if told[0] != told[1]:
        yield f"fcritic {name}: text"
        yield from (
            f"    {row}" for row in difflib.unified_diff(*told, lineterm="", n=0) if row[:2] not in ("--", "++")
        )


def leaves_that_differ(old: Any, new: Any, path: str) -> Iterator[str]:
    """The places of two JSON values where they differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from leaves_that_differ(old.get(key, "(none)"), new.get(key, "(none)"), f"{path}/{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from leaves_that_differ(*pair, f"{path}/{index}")
    elif old != new and old == old:  # NaN
        yield f"    {path}: {str(old)[:80]} -> {str(new)[:80]}"


# Computed studies

STUDIES = {
    name: command_name
    for command_name, names in {
        "theory": "counterexamples theorem-1 disjoint-support theorem-2 metric-validity second-term",
        "explore": "riverswim deepsea calibration sparse",
    }.items()
    for name in names.split()
}
"""Name -> the command that has it."""


def studies(only: str | None) -> dict[str, Any]:
    """The findings of each study, quick: what it prints as JSON, and the numbers that it writes."""
    found = {}
    for name, its_command in chosen(STUDIES, only):
        code, out, err = command([its_command, name, "--quick", "--json", "--out", "out"])
        if code:
            raise SystemExit(f"fcritic {its_command} {name}: {err}")
        written = Path("out", f"{name}.json")
        found[name] = timeless({"printed": json.loads(out), "written": json.loads(written.read_text())})
    return found


def timeless(value: Any) -> Any:
    """A JSON value without what it says of seconds."""
    if isinstance(value, dict):
        return {key: timeless(each) for key, each in value.items() if not key.endswith("seconds")}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def compare_studies(name: str, old: dict, new: dict) -> Iterator[str]:
    """Every number and word that differs, the first twelve of them."""
    found = list(leaves_that_differ(old, new, ""))
    if found:
        yield f"{name}: {len(found)} values differ, such as"
        yield from found[:12]


# The command


def chosen(everything: dict[str, Any], only: str | None) -> list[tuple[str, Any]]:
    """Name and value of all entries, or of the one that is asked for."""
    found = [(name, value) for name, value in everything.items() if only in (None, name)]
    if not found:
        raise SystemExit(f"{only} is unknown; known are {', '.join(everything)}")
    return found


PARTS = {
    "trainings": (trainings, compare_trainings, "cpu"),
    "programs": (programs, compare_programs, "versions"),
    "agents": (agents, compare_agents, None),
    "contract": (contract, compare_contract, "versions"),
    "studies": (studies, compare_studies, "cpu"),
}
"""Name -> what makes it, what compares an entry, and what its values depend on."""


QUICK = [name for name in PARTS if name != "studies"]
"""What is checked where no part is named; the studies take several minutes."""


def surroundings() -> dict[str, str]:
    """The versions of packages, and the CPU with its widest instructions."""
    facts = {name: importlib.metadata.version(name) for name in PINNED}
    facts["python"] = ".".join(map(str, sys.version_info[:2]))
    lines = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"model name\s*:\s*(.*)", lines)
    widest = next((flag for flag in ("avx512f", "avx2", "avx", "asimd") if f" {flag} " in lines), "")
    facts["cpu"] = f"{model[1] if model else ''} {widest}".strip()
    return facts


def why_not(part: str) -> str | None:
    """Why the values of a part are not those of this machine; none where they are."""
    depends = PARTS[part][2]
    if depends is None:
        return None
    made, here = json.loads((HERE / "made.json").read_text())[part], surroundings()
    names = [name for name in made if name != "cpu" or depends == "cpu"]
    other = [f"{name} {made[name]}, here {here[name]}" for name in names if made[name] != here[name]]
    return "made with " + "; ".join(other) if other else None


def produce(part: str, only: str | None) -> dict[str, Any]:
    """The values of a part, made by a process of its own in an empty folder."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("XLA_", "JAX_", "FCRITIC_"))}
    fixed = {
        "JAX_PLATFORMS": "cpu",
        "FCRITIC_KEEP_PROGRAMS": "no",
        "COLUMNS": "100",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        environment = kept | fixed | {"PYTHONPATH": str(root()), "PYTHONHASHSEED": "0"}
        words = [
            sys.executable,
            str(Path(__file__).resolve()),
            "--produce",
            part if only is None else f"{part}:{only}",
        ]
        result = subprocess.run([*words, "--to", "result.json"], cwd=folder, env=environment)
        if result.returncode:
            raise SystemExit(f"{part} could not be made")
        return json.loads((Path(folder) / "result.json").read_text())


def read(part: str) -> dict[str, Any]:
    """The golden values of a part."""
    return json.loads(lzma.decompress((HERE / f"{part}.json.xz").read_bytes()))


def write(part: str, values: dict[str, Any]) -> None:
    """Writes the golden values of a part."""
    text = json.dumps(values, indent=1)
    (HERE / f"{part}.json.xz").write_bytes(lzma.compress(text.encode(), preset=9))
    facts = HERE / "made.json"
    made = json.loads(facts.read_text()) if facts.exists() else {}
    facts.write_text(json.dumps(made | {part: surroundings()}, indent=1) + "\n")


def differences(part: str, only: str | None = None) -> list[str]:
    """How this tree differs from the golden values; nothing where it does not."""
    old, new = read(part), produce(part, only)
    if only is not None:
        old = {only: old[only]}
    found = [f"{name}: gone" for name in old if name not in new] + [
        f"{name}: new" for name in new if name not in old
    ]
    for name in old:
        if name in new:
            found += PARTS[part][1](name, old[name], new[name])
    return found


def main() -> int:
    """Checks or writes parts; 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = f"{', '.join(PARTS)}; PART:ENTRY for one entry"
    parser.add_argument("--check", nargs="*", metavar="PART", help=names)
    parser.add_argument("--write", nargs="*", metavar="PART")
    parser.add_argument("--produce", help=argparse.SUPPRESS)
    parser.add_argument("--to", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.produce:
        part, _, only = options.produce.partition(":")
        Path(options.to).write_text(json.dumps(PARTS[part][0](only or None)))
        return 0
    code = 0
    for asked in options.check or QUICK if options.write is None else options.write:
        part, _, only = asked.partition(":")
        if options.write is not None:
            values = produce(part, only or None)
            write(part, (read(part) if only else {}) | values)
            print(f"{part}: wrote {len(values)} entries")
        elif reason := why_not(part):
            print(f"{part}: skipped, {reason}")
        else:
            found = differences(part, only or None)
            print(f"{asked}: {'same' if not found else 'DIFFERENT'}", *found, sep="\n    ")
            code |= any(not line.startswith("(") for line in found)
    return code


if __name__ == "__main__":
    sys.exit(main())
