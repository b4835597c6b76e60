"""From the words on the command line to a command, and from its outcome to an exit code."""

import os
import sys

from fcritic.errors import EnvironmentFault, UsageError, did_you_mean

COMMANDS = {
    "train": "train an agent, or continue the run in --out",
    "resume": "continue a run, by default to its end",
    "evaluate": "run every actor of a run on fresh environments",
    "describe": "what a recipe is on a task: sizes, parameters, cost",
    "plot": "draw the learning curves of runs",
}
"""Each command is the function of the same name in `fcritic.cli.commands`."""


def run(args: list[str]) -> int:
    """Runs a command: 0 where it worked, 2 for input that cannot be used, 1 for an environment's fault."""
    try:
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
        from fcritic.cli import commands  # imports JAX, for which help and typing mistakes need not wait

        return getattr(commands, args[0])(args[1:]) or 0
    except UsageError as error:
        print(f"fcritic: {error}", file=sys.stderr)
        return 2
    except EnvironmentFault as error:
        print(f"fcritic: {error}; the last checkpoint is kept", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader, for example `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


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
