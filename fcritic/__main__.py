"""`fcritic COMMAND ...`, also as `python -m fcritic`."""

import os
import sys
import warnings

from fcritic.cli.dispatch import run


def main() -> None:
    """Runs a command and leaves with its exit code."""
    os.environ.setdefault("FCRITIC_KEEP_PROGRAMS", "yes")  # see `fcritic.startup.programs`
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"  # without lines of code
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
