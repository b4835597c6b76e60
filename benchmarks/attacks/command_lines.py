"""Random command lines: the exit code is 0 or 2, there is one line of complaint, and never a traceback."""

from collections.abc import Callable
import contextlib
import io
from pathlib import Path
import random
import tempfile
import traceback

from benchmarks.attacks.small import small_config, train_until
from fcritic.agents.recipes import RECIPES
from fcritic.cli.dispatch import COMMANDS, run
from fcritic.cli.parsing import option_names
from fcritic.config import TrainConfig

WORDS = [
    "",
    " ",
    "-",
    "--",
    "-x",
    "--json",
    "--help",
    "0",
    "1",
    "-1",
    "2.5",
    "1e9",
    "nan",
    "inf",
    "none",
    "true",
    "x",
]
WORDS += [
    "cheetah-run",
    "cheetah-rum",
    "Pendulum-v1",
    "probe-delay",
    "runs/none",
    "/",
    "..",
    "é",
    "\n",
    "a b",
    "--é=1",
]
WORDS += ["=", "--=", "--steps=", "None", "[]", "{}", "()", "$HOME", "*", "%s", "{0}", "\\", "'", '"', "9" * 400]

VALID = (
    ("--help",),
    ("train", "--help"),
    ("describe", "--recipe", "sac", "--task", "probe-both", "--json"),
    ("evaluate", "runs/good", "--episodes", "1"),
    ("plot", "runs/good", "--out", "curve.svg"),
    ("check", "probe-both", "--steps", "20", "--json"),
    ("experiment", "list", "--json"),
    ("bench", "--help"),
)

SLOW_COMMANDS = {"bench", "theory", "explore", "experiment", "doctor", "watch"}
"""Commands that run for minutes, or until they are stopped, with valid input: only their mistakes are tried."""


def check(count: int, say: Callable[[str], None], seed: int = 0) -> dict:
    """`count` random command lines, run in this process, since starting one for each would take hours."""
    generator = random.Random(seed)
    codes: dict[str, int] = {}
    bad: list[str] = []
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        train_until(small_config("td3"), Path("runs/good"), 25)
        for number in range(count):
            args = command_line(generator)
            outcome, text = _try(args)
            codes[outcome] = codes.get(outcome, 0) + 1
            if outcome not in ("0", "2") or "Traceback" in text:
                bad.append(f"{args}: {outcome} {text[-300:]}")
            if (number + 1) % 500 == 0:
                say(f"{number + 1} command lines: {codes}")
    return {"passed": count - len(bad), "of": count, "exit_codes": codes, "bad": bad[:20]}


def command_line(generator: random.Random) -> list[str]:
    """A command, mostly a real one, with options that are real, mistyped or nonsense; one in ten is valid."""
    if generator.random() < 0.1:
        return list(generator.choice(VALID))
    command = generator.choice([*COMMANDS, "train", "describe", "trian", *WORDS])
    args = [command]
    options = ["--json", "--out", "--episodes", "--only", "--quick", "--best"]
    recipe = generator.choice([*RECIPES, "fca"] if command == "describe" else ["sac", "td3", "fac-small", "fca"])
    if command in ("train", "describe"):
        args += ["--recipe", recipe] if generator.random() < 0.7 else []
        known = TrainConfig.of(recipe if recipe in RECIPES else "fac")
        options += sorted(option_names(known))
    for _ in range(generator.randint(0, 5)):
        option = generator.choice(options)
        if generator.random() < 0.15:
            option = option[: generator.randint(1, len(option))] + generator.choice("xyz-")
        args += [option] if generator.random() < 0.8 else []
        args += [generator.choice(WORDS)] if generator.random() < 0.7 else ["runs/good"]
    if command == "train":  # what is valid must end soon
        args += [
            "--steps",
            "40",
            "--warmup",
            "40",
            "--task",
            generator.choice(["probe-both", "probe-delay", "nope"]),
        ]
        args += ["--envs", "1", "--seeds", "1", "--replay", "10", "--eval-episodes", "1", "--quiet"]
    if command in SLOW_COMMANDS:
        args.insert(1, generator.choice(["--hlep", "nonsense", "peer", "-"]))
    return args


def _try(args: list[str]) -> tuple[str, str]:
    """The exit code and all that was printed."""
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = run(args)
    except SystemExit as leaving:  # `--help`
        code = leaving.code or 0
    except BaseException:
        return "exception", traceback.format_exc()
    return str(code), output.getvalue()
