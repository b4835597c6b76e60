"""Signals that ask a training to stop: it ends its iteration, saves and leaves."""

import signal
import threading
from types import FrameType
from typing import Any, Self


class Interrupted(Exception):
    """The training was asked to stop; everything is saved."""

    def __init__(self, signal_number: int, frame: int):
        super().__init__(signal_number)
        self.signal_number, self.frame = signal_number, frame


class StopSignal:
    """While it is entered, SIGINT and SIGTERM only set `number`; the second one interrupts at once."""

    def __init__(self) -> None:
        self.number = 0
        """The signal that came, or 0."""
        self._handlers: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return self.number != 0

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # no other may handle signals
            numbers = (signal.SIGINT, signal.SIGTERM)
            self._handlers = {number: signal.signal(number, self._on_signal) for number in numbers}
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.number:
            raise KeyboardInterrupt
        self.number = number
