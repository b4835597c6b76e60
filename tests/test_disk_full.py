"""A disk that fills up while a training runs."""

import os
import subprocess
import sys


def test_a_full_disk_ends_a_training_with_one_line(tmp_path):
    """Files may not grow beyond a few kilobytes here, as on a disk that fills up while training."""
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)); "
    program = limit + "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    program += "from fcritic.cli.dispatch import run; sys.exit(run(sys.argv[1:]))"
    command = ["train", "--recipe", "fac-small", "--task", "probe-both", "--steps", "400", "--members", "1"]
    done = subprocess.run(
        [sys.executable, "-c", program, *command, "--warmup", "400", "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        env=os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")},
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("fcritic: cannot write") and "choose another --out" in lines[-1]
