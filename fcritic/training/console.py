"""The progress lines of a training: a live line in a terminal, plain lines elsewhere."""

import threading
import time
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from fcritic.config import TrainConfig

SILENCE = 10.0
"""Seconds between progress lines where there is no live line."""


def duration(seconds: float) -> str:
    """A length of time in the two largest units that matter: `42 s`, `12 min`, `3 h 20 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{seconds / 86_400:.1f} days"


class TrainingConsole:
    """Steps per second, time left, returns and losses of a training."""

    def __init__(self, config: TrainConfig, start_frame: int, quiet: bool = False):
        self._config, self.quiet = config, quiet
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._live = Live(console=self._console, transient=True, refresh_per_second=4)
        self._start_frame, self._start_time = start_frame, time.monotonic()
        self._drawn, self._spoken, self._frame = 0.0, time.monotonic(), start_frame
        self._shown: dict[str, str] = {}
        self._compiling_since: float | None = None
        self._learning = config.iterations <= config.warmup_iterations  # or it never begins
        self._over, self._talker = threading.Event(), threading.Thread(target=self._talk, daemon=True)

    def __enter__(self) -> "TrainingConsole":
        if self._console.is_terminal and not self.quiet:
            self._live.start()
        elif not self.quiet:
            self._talker.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._live.stop()
        self._over.set()
        if self._talker.is_alive():
            self._talker.join()

    def _talk(self) -> None:
        """Prints a progress line after a silence, also while the training waits or evaluates."""
        while not self._over.wait(max(self._spoken + SILENCE - time.monotonic(), 0.01)):
            if time.monotonic() >= self._spoken + SILENCE:
                self.say(self._line(self._frame, waiting=self._compiling_since is not None and not self._learning))

    def say(self, line: str) -> None:
        """A line that stays."""
        if not self.quiet:
            self._spoken = time.monotonic()
            self._console.print(line, markup=False)

    def warn(self, line: str) -> None:
        """A line that stays and is shown even where nothing else is."""
        self._console.print(f"warning: {line}", markup=False)

    def restart_clock(self, frame: int, learning: bool = False) -> None:
        """Measures speed from here on, once `learning` for good, so that compiling and warm-up do not count."""
        self._start_frame, self._start_time = frame, time.monotonic()
        self._learning |= learning
        self._come_to(frame)

    def speed(self, frame: int) -> float:
        """Frames per second since the clock was started, all seeds together."""
        elapsed = max(time.monotonic() - self._start_time, 1e-9)
        return (frame - self._start_frame) * self._config.seeds / elapsed

    def update(self, frame: int, **values: float) -> None:
        """Shows the progress; values keep their last number until they change."""
        self._come_to(frame)
        self._shown |= {name.replace("_", " "): f"{value:.4g}" for name, value in values.items()}
        now = time.monotonic()
        if self._live.is_started and (values or now > self._drawn + 0.25):  # this is called in every iteration
            self._drawn = now
            self._live.update(Text(self._line(frame)))

    def evaluated(self, frame: int, mean_actor: float, best_actor: float) -> None:
        """A line that stays, for an evaluation."""
        self.update(frame, mean_actor=mean_actor, best_actor=best_actor)
        self.say(self._line(frame))

    def _come_to(self, frame: int) -> None:
        self._frame = frame
        if self._compiling_since is None and not self._in_warmup(frame):
            self._compiling_since = time.monotonic()

    def _in_warmup(self, frame: int) -> bool:
        return frame < self._config.warmup_iterations * self._config.frames_per_iteration

    def _line(self, frame: int, waiting: bool = False) -> str:
        """How far it is, with the newest numbers; while it is `waiting` there are none, so its time is told."""
        total, speed = self._config.steps, self.speed(frame)
        parts = [f"{frame:>9,} of {total:,} frames"]
        if waiting and self._compiling_since is not None:
            return f"{parts[0]} · compiling the update for {duration(time.monotonic() - self._compiling_since)}"
        if not self._learning:
            parts += ["warm-up" if self._in_warmup(frame) else "compiling the update"]
        elif speed > 0:
            left = (total - frame) * self._config.seeds / speed
            parts += [f"{speed:,.0f} frames/s", f"{duration(left)} left"]
        return " · ".join(parts + [f"{name} {value}" for name, value in self._shown.items()])
