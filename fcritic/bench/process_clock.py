"""How long this process has been running, its imports included."""

import os
from pathlib import Path
import time

_IMPORTED = time.perf_counter()


def seconds_since_start() -> float:
    """Since the operating system started the process; where it does not tell, since these benches were imported."""
    try:
        # The second field, a name in brackets, may hold spaces; the 22nd counts ticks since the machine started.
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, AttributeError, ValueError, IndexError):  # not Linux
        return time.perf_counter() - _IMPORTED
