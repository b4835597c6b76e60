"""`fcritic COMMAND ...`, also as `python -m fcritic`."""

import sys
import warnings

from fcritic.cli.dispatch import run


def main() -> None:
    """Runs a command and leaves with its exit code."""
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"  # without lines of code
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
