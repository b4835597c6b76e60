"""Checkpoints under kill at any moment and on a full disk: the newest whole one is always there."""

import os
from pathlib import Path
import subprocess
import sys
import textwrap

from fcritic.runs import checkpoint

ROOT = Path(__file__).parents[1]


def run_python(code, *arguments):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_kill_at_random_moments_leaves_a_loadable_newest(tmp_path):
    """A process that saves, replaces and prunes without pause is killed a dozen times."""
    code = """
        import os, random, signal, sys, time
        from pathlib import Path
        import numpy as np
        from fcritic.runs import checkpoint

        folder, done = Path(sys.argv[1]), Path(sys.argv[2])
        values = lambda step: {"agent": {"x": np.full(20_000, step)}, "replay": {"y": np.full(50_000, step)}}

        def work(step):
            checkpoint.sweep(folder)
            while True:
                step += 1
                for _ in range(2):  # the second replaces the first
                    checkpoint.save(folder / f"step-{step:012d}", values(step), {"step": step})
                    done.write_text(str(step).zfill(12))
                checkpoint.prune(folder, 1)

        step = 0
        for round in range(12):
            child = os.fork()
            if child == 0:
                work(step)
            time.sleep(random.Random(round).uniform(0.02, 0.3))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            checkpoint.sweep(folder)
            newest = checkpoint.latest(folder)
            assert newest is not None or not done.exists()
            if newest:
                loaded, facts = checkpoint.load(newest)
                text = done.read_text() if done.exists() else ""
                assert facts["step"] >= int(text or step), (facts, text)
                assert (loaded["replay"]["y"] == facts["step"]).all()
                step = facts["step"]
            assert not list(folder.glob("*.tmp-*"))
        print("steps", step)
        """
    result = run_python(code, tmp_path / "checkpoints", tmp_path / "done")
    assert result.returncode == 0, result.stderr
    assert int(result.stdout.split()[1]) > 5
    assert "UserWarning" not in result.stderr  # not even one damaged folder


def test_kill_before_every_call_that_changes_the_disk(tmp_path):
    """Die before the n-th sync, rename or removal, for every n, with a single checkpoint at stake."""
    code = """
        import os, signal, sys
        from pathlib import Path
        import numpy as np
        from fcritic.runs import checkpoint

        folder = Path(sys.argv[1])
        path = folder / "step-000000000001"
        save = lambda value: checkpoint.save(path, {"agent": {"x": np.full(9, value)}}, {"value": value})

        def die_before(call, left):
            def wrapped(*arguments, **options):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*arguments, **options)
            return wrapped

        save(0)
        value, outcomes = 0, []
        for count in range(100):
            child = os.fork()
            if child == 0:
                left = [count]
                for name in ("fsync", "rename", "mkdir", "unlink", "rmdir", "open"):
                    setattr(os, name, die_before(getattr(os, name), left))
                save(count + 1)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            checkpoint.sweep(folder)
            loaded, facts = checkpoint.load(checkpoint.latest(folder))
            assert facts["value"] in (value, count + 1), (facts, value, count)
            assert (loaded["agent"]["x"] == facts["value"]).all()
            outcomes.append(facts["value"] == count + 1)
            value = facts["value"]
            if status == 0:
                break
        assert status == 0 and outcomes[-1]
        print(outcomes.count(False), outcomes.count(True))
        """
    result = run_python(code, tmp_path)
    assert result.returncode == 0, result.stderr
    before, after = map(int, result.stdout.split())
    assert before >= 6 and after >= 2  # deaths on both sides of the commit


def test_disk_full_leaves_the_older_one_intact(tmp_path):
    """A real refusal by the operating system: files may not grow past 64 kB."""
    code = """
        import resource, sys
        from pathlib import Path
        import numpy as np
        from fcritic.runs import checkpoint
        from fcritic.errors import UsageError

        folder = Path(sys.argv[1])
        checkpoint.save(folder / "step-000000000001", {"agent": {"x": np.arange(9)}}, {"step": 1})
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
        for step in (1, 2):
            try:
                large = {"agent": {"x": np.arange(9)}, "replay": {"y": np.zeros(100_000)}}
                checkpoint.save(folder / f"step-{step:012d}", large, {})
            except UsageError as error:
                print(error)
        """
    result = run_python(code, tmp_path)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 2 and all("File too large; raise the file size limit" in line for line in lines)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000000001"]
    assert checkpoint.load(checkpoint.latest(tmp_path))[1] == {"step": 1}
