"""Damaged and forged runs: always one clear error or a sound result; never a crash, a hang or foreign code."""

from collections.abc import Callable
import json
from pathlib import Path
import random
import shutil
import tempfile
import time
from typing import Any
import warnings

from benchmarks.attacks.forging import sign
from benchmarks.attacks.hostile import corpus
from benchmarks.attacks.memory import peak_mb
from benchmarks.attacks.small import small_config, train_until
from fcritic import envs
from fcritic.config import TrainConfig
from fcritic.errors import UsageError
from fcritic.runs.directory import RunDirectory
from fcritic.training.saving import Checkpoints, learning_of, load_policies, restore_environments
from fcritic.types import EnvSpec

SLOW = 10.0
"""Seconds that no file may take."""


class Victim:
    """A small run that is attacked, and the two ways in which its files are read."""

    def __init__(self, folder: Path):
        self.pristine, self.path, self.folder = folder / "pristine", folder / "run", folder
        self.config = small_config("td3")
        train_until(self.config, self.pristine, 30)
        self.learning = learning_of(self.config, envs.task_spec(self.config.task))
        self.vector = envs.make_vector(
            self.config.task, seeds=self.config.seed_numbers, envs=2, action_repeat=self.config.action_repeat
        )
        self.renew()

    def renew(self) -> None:
        """An unharmed copy."""
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.copytree(self.pristine, self.path, symlinks=True)

    def files(self) -> list[Path]:
        """Everything that is read from a run."""
        checkpoints = sorted((self.path / "checkpoints").glob("*/*"))
        return [self.path / "config.json", *checkpoints, *sorted((self.path / "replay").iterdir())]

    def read(self) -> str:
        """Reads the run as `evaluate` and as `resume` would; `loaded`, or the error's kind if it is a clear one."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run = RunDirectory.open_existing(self.path)
                config = TrainConfig.from_json(run.config)
                newest = run.latest_checkpoint()
                if newest is not None:
                    load_policies(config, newest, spec=self._spec_of(config))
                snapshot, _ = Checkpoints(run, self.config, self.learning).restore()
                if snapshot is not None:
                    restore_environments(self.vector, snapshot.environments)
        except UsageError as error:
            return "refused" if "\n" not in str(error) and len(str(error)) < 1000 else f"unclear: {error}"
        return "loaded" if snapshot is not None else "refused"

    def _spec_of(self, config: TrainConfig) -> EnvSpec | None:
        """The sizes of its own task are known; those of another are found out as always."""
        return self.learning.spec if config.task == self.config.task else None


def check(count: int, say: Callable[[str], None], seed: int = 0) -> dict:
    """`count` mutants of a run, half of them signed again by the forger, and the corpus of hostile ones."""
    generator = random.Random(seed)
    outcomes: dict[str, int] = {}
    bad: list[str] = []
    slowest = 0.0
    with tempfile.TemporaryDirectory() as name:
        victim = Victim(Path(name))
        before = peak_mb()
        mutants = ((f"mutant {number}", None) for number in range(count))
        planted = Path(name) / "planted"
        for label, attack in [*mutants, *corpus(planted).items()]:
            victim.renew()
            if attack is None:
                label = f"{label}: {mutate(victim, generator)}"
            else:
                attack(victim.path)
            started = time.monotonic()
            outcome = _outcome(victim)
            slowest = max(slowest, time.monotonic() - started)
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            if outcome not in ("loaded", "refused"):
                bad.append(f"{label}: {outcome}")
            if sum(outcomes.values()) % 1000 == 0:
                say(f"{sum(outcomes.values())} files: {outcomes}")
        grown, ran_code = peak_mb() - before, planted.exists()
    of = sum(outcomes.values())
    sound = of - len(bad) if slowest < SLOW and not ran_code else 0
    return {
        "passed": sound,
        "of": of,
        "outcomes": outcomes,
        "slowest_seconds": round(slowest, 3),
        "memory_grown_mb": round(grown, 1),
        "foreign_code_ran": ran_code,
        "bad": bad[:20],
    }


def _outcome(victim: Victim) -> str:
    try:
        return victim.read()
    except Exception as error:  # what must not happen, whatever it is
        return f"{type(error).__name__}: {error}"


def mutate(victim: Victim, generator: random.Random) -> str:
    """Changes one file of a run; tells what was done."""
    path = generator.choice(victim.files())
    data = bytearray(path.read_bytes())
    kind = generator.choice(["bytes", "bits", "cut", "grow", "empty", "remove", "repeat", "json"])
    if kind == "remove":
        path.unlink()
        return f"{path.name} removed"
    if kind in ("bytes", "bits"):
        for _ in range(generator.randint(1, 8)):
            place = generator.randrange(len(data))
            data[place] = (
                generator.randrange(256) if kind == "bytes" else data[place] ^ (1 << generator.randrange(8))
            )
    elif kind == "cut":
        del data[generator.randrange(len(data)) :]
    elif kind == "grow":
        data += generator.randbytes(generator.randint(1, 4000))
    elif kind == "repeat":
        start = generator.randrange(len(data))
        data[start:start] = data[start : start + generator.randint(1, 500)]
    elif kind == "json" and path.suffix == ".json":
        data = bytearray(json.dumps(_mutated_json(json.loads(data), generator)).encode())
    else:
        data = bytearray()
    path.write_bytes(bytes(data))
    signed = generator.random() < 0.5
    if signed:
        sign(path.parent)
    return f"{path.name} {kind}{' and signed' if signed else ''}"


def _mutated_json(value: Any, generator: random.Random) -> Any:
    """The same document with one value somewhere in it replaced."""
    strange = [None, True, -1, 0, 2**63, 1e308, "", "../../x", [], {}, [[]], {"a": {}}, "NaN", 0.5]
    if isinstance(value, dict) and value and generator.random() < 0.85:
        key = generator.choice(sorted(value))
        return value | {key: _mutated_json(value[key], generator)}
    if isinstance(value, list) and value and generator.random() < 0.7:
        place = generator.randrange(len(value))
        return [*value[:place], _mutated_json(value[place], generator), *value[place + 1 :]]
    return generator.choice(strange)
