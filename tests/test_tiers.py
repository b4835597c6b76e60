"""Marks: those of the table are of tests that exist, and a test that starts a process needs one."""

from pathlib import Path
import re
import subprocess
import sys

import pytest
from tiers import MARKED, Guard

TESTS = Path(__file__).parent


def test_every_name_in_the_table_is_a_test():
    gone = []
    for name in (name for names in MARKED.values() for name in names):
        file, _, test = name.partition("::")
        text = (TESTS / file).read_text(encoding="utf-8") if (TESTS / file).exists() else ""
        if not re.search(rf"^def {test or 'test_'}", text, re.MULTILINE):
            gone.append(name)
    assert gone == []


@pytest.mark.slow
def test_a_process_is_noticed():
    guard = Guard()
    start = lambda *command: subprocess.run(command, capture_output=True, check=True)
    start(sys.executable, "-c", "")
    assert guard.started == ""  # it did not watch
    guard.watching = True
    start("git", "--version")
    assert guard.started == ""
    start(sys.executable, "-c", "")
    guard.watching = False
    assert guard.started == Path(sys.executable).name
