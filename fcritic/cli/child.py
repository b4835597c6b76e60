"""One run in a process that does not outlive the one that started it: `python -m fcritic.cli.child DIR`.

If the parent dies, by a kill or with its machine's services, the run saves and ends. Otherwise it would
keep the directory locked while another machine tries to continue it.
"""

import ctypes
import os
import signal
import sys

from fcritic.cli.dispatch import run

_PR_SET_PDEATHSIG = 1


def end_with_the_parent() -> None:
    """Asks Linux for a SIGTERM when the parent ends; elsewhere nothing happens."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died in between
            sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    end_with_the_parent()
    sys.exit(run(["resume", sys.argv[1], "--quiet", "--yes"]))
