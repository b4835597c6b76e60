"""`fcritic COMMAND ...`, also as `python -m fcritic`."""

import sys

from fcritic.cli.dispatch import run


def main() -> None:
    """Runs a command and leaves with its exit code."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
