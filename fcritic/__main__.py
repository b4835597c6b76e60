"""`fcritic COMMAND ...`, also as `python -m fcritic`."""

import gc
import os
import sys
import warnings

from fcritic.cli.dispatch import run


def main() -> None:
    """Runs a command and leaves with its exit code."""
    # A start makes hundreds of thousands of objects and hardly any garbage; searches took a sixth of its CPU time.
    gc.set_threshold(200_000, 10, 10)
    os.environ.setdefault("FCRITIC_KEEP_PROGRAMS", "yes")  # see `fcritic.startup.programs`
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"  # without lines of code
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
