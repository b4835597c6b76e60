"""Measurements and attacks for a checkout; the installed package has none of them and never imports them.

`fcritic bench NAME` runs `NAME.py` of this folder: a class `Options`, `measure` and `report_text`.
"""

import os
import sys


def own_environment() -> dict[str, str]:
    """Variables for a child process that finds the modules which this process finds."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
