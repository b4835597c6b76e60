"""From the words on the command line to a command, and from its outcome to an exit code."""

import importlib.util
import io
import os
import signal
import sys

from fcritic.errors import Diverged, EnvironmentFault, UsageError, did_you_mean, one_line

COMMANDS = {
    "train": "train an agent, or continue the run in --out",
    "resume": "continue a run, by default to its end",
    "evaluate": "run every actor of a run on fresh environments",
    "export": "write a trained agent to give away, or its policy as an ONNX file for a robot",
    "log": "record what policies do on their task, as data for rank",
    "rank": "rank policies from logged data, without running them",
    "check": "find mistakes in an environment before training on it",
    "describe": "print the networks, parameters and cost of a recipe on a task",
    "plot": "draw the learning curves of runs, or what their agents did",
    "replay": "write an episode of each actor as one HTML file, in 3D for any browser",
    "video": "film an episode as an mp4 file; needs OpenGL and ffmpeg",
    "watch": "follow all runs below a folder in a web page, while they train",
    "inspect": "compare the critics' values of policies with measured returns",
    "tune": "search for options with Optuna, ending trials that lag behind",
    "experiment": "run a study, here or on Ray, follow it and write its report",
    "bench": "measure speed and reliability on this machine",
    "doctor": "check the installation and say how to repair what is broken",
    "theory": "judge statements of the paper on problems that can be solved exactly",
    "explore": "judge claims about exploration on small tasks with known answers",
}
"""Each command is the function of the same name, in a module of that name or in `fcritic.cli.commands`."""

LONGEST = 1000
"""Characters of a message, so that a mistyped argument cannot fill the screen."""


def run(args: list[str]) -> int:
    """Runs a command: 0 where it worked, 2 for input that cannot be used, 1 for an environment's fault."""
    try:
        _require_text(args)
        if not args or args[0] in ("-h", "--help", "help"):
            print(_help())
            return 0
        if args[0] in ("-V", "--version"):
            from importlib.metadata import version

            print(version("fcritic"))
            return 0
        if args[0] not in COMMANDS:
            hint = did_you_mean(args[0], COMMANDS) or f"; known are {', '.join(COMMANDS)}"
            raise UsageError(f"unknown command '{args[0]}'{hint}")
        module = f"fcritic.cli.{args[0]}"
        if importlib.util.find_spec(module) is None:
            module = "fcritic.cli.commands"
        # Only here, as it imports JAX, for which help and typing mistakes need not wait.
        command = getattr(importlib.import_module(module), args[0])
        code = command(args[1:]) or 0
        sys.stdout.flush()  # here, where a closed pipe is handled
        return code
    except UsageError as error:
        return _complain(error, 2)
    except (EnvironmentFault, Diverged) as error:
        return _complain(error, 1)
    except BrokenPipeError:  # the reader, for example `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _complain(f"cannot use {error.filename or 'a file'}: {error.strerror or error}", 2)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):  # JAX's word for it
            raise
        return _complain("there is too little memory; lower --seeds, --replay, --batch-size or the networks", 2)
    except KeyboardInterrupt:
        return _complain("interrupted", 128 + signal.SIGINT)


def _complain(error: object, code: int) -> int:
    print(f"fcritic: {one_line(str(error), LONGEST)}", file=sys.stderr)  # a name may hold a line break
    return code


def _require_text(args: list[str]) -> None:
    """Refuses what is not text, and lets a narrow terminal show `?` for signs that it does not have."""
    for arg in args:
        if not arg.isascii() and any("\ud800" <= sign <= "\udfff" for sign in arg):
            raise UsageError(f"{arg!r} is not valid UTF-8; choose another name")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _help() -> str:
    lines = [f"  {name:<10} {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "usage: fcritic COMMAND [OPTIONS]",
            "",
            "Functional critics for off-policy actor-critic: Q(policy, state, action).",
            "",
            *lines,
            "",
            "fcritic COMMAND --help lists its options.",
        ]
    )
