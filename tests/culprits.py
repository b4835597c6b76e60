"""Programs that do what no command may do; `tests/test_strangers.py` has them run in the place of a command."""

import os
from pathlib import Path
import subprocess
import sys
import time


def behaves():
    print("all is well")


def writes_in_the_home():
    (Path.home() / "diary").write_text("mine now")


def touches_and_restores():
    path = Path.home() / ".profile"
    content = path.read_bytes()
    path.write_bytes(b"")
    path.write_bytes(content)


def leaves_a_file_beside():
    Path("here").touch()


def removes():
    (Path.home() / "step-000000000001.tmp-7" / "precious").unlink()


def runs_foreign_code():
    import helper  # noqa: F401 - lies in the user's folder


def imports_what_it_should_not():
    import this  # noqa: F401


def shows():
    print((Path.home() / "diary").read_text())


def copies():
    (Path(sys.argv[2]) / "copy").write_bytes((Path.home() / ".ssh" / "id_ed25519").read_bytes())


def hangs():
    time.sleep(100)


def allocates():
    block = bytearray(os.urandom(2**20)) * 3000
    time.sleep(100)
    print(len(block))


def starts_many():
    for _ in range(60):
        subprocess.Popen(["sleep", "100"])
    time.sleep(100)


def leaves_a_process():
    subprocess.Popen(["sleep", "100"])


def raises():
    raise ValueError("a fault")


def exits_with_one():
    sys.exit(1)


def says_nothing():
    sys.exit(2)


def says_much():
    print("a line\n" * 50, file=sys.stderr)
    sys.exit(2)


def moves_the_cursor():
    print("\x1b[2J")


def is_killed():
    os.kill(os.getpid(), 11)
