"""`fcritic COMMAND ...`, also as `python -m fcritic`."""

import gc
import os
import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    # Python put the working folder first. Files of a stranger there must not pass for plugins or trackers.
    # Tasks that the user trusts are found in the working folder all the same, see `fcritic.code`.
    _package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if sys.path[0] in ("", os.getcwd()) and os.getcwd() != _package:
        del sys.path[0]

import warnings

from fcritic.cli.dispatch import run


def main() -> None:
    """Runs a command and leaves with its exit code."""
    # A start makes hundreds of thousands of objects and hardly any garbage; searches took a sixth of its CPU time.
    gc.set_threshold(200_000, 10, 10)
    os.environ.setdefault("FCRITIC_KEEP_PROGRAMS", "yes")  # see `fcritic.startup.programs`
    # Matrices here are small: a second thread gains nothing, and costs a factor of twenty beside other processes.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"  # without lines of code
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
