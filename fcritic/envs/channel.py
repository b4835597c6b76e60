"""How a training and its worker processes talk: JSON and raw arrays through a socket, never code.

A message is one byte for its kind. `MESSAGE` is followed by the lengths of a JSON object and of a safetensors
block, and by these. The step of a training and the usual answer to it need no more than the byte, because
actions and answers lie in memory that both sides share.
"""

import json
import os
import socket
import struct

import numpy as np
import safetensors.numpy

MESSAGE, STEP, DONE = b"m", b"s", b"."

_LENGTHS = struct.Struct("<II")


class Channel:
    """One end of a conversation. Reading from an end whose other side is gone raises EOFError."""

    def __init__(self, end: socket.socket):
        self._socket = end
        self.descriptor = end.fileno()

    def send_kind(self, kind: bytes) -> None:
        """Sends a single byte."""
        os.write(self.descriptor, kind)  # half the time of the socket's own method

    def send(self, message: dict, arrays: dict[str, np.ndarray] | None = None) -> None:
        """Sends an object and named arrays."""
        text = json.dumps(message).encode()
        block = safetensors.numpy.save(arrays) if arrays else b""
        self._socket.sendall(MESSAGE + _LENGTHS.pack(len(text), len(block)) + text + block)

    def receive_kind(self) -> bytes:
        """The first byte of a message; waits for it, unless the socket has a timeout."""
        kind = os.read(self.descriptor, 1)
        if not kind:
            raise EOFError
        return kind

    def receive(self) -> tuple[dict, dict[str, np.ndarray]]:
        """The rest of a message whose first byte was `MESSAGE`."""
        text_length, block_length = _LENGTHS.unpack(self._read(_LENGTHS.size))
        message = json.loads(self._read(text_length))
        return message, safetensors.numpy.load(self._read(block_length)) if block_length else {}

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def close(self) -> None:
        """Ends the conversation; the other side notices."""
        self._socket.close()


def pack_states(states: dict[int, dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The states of environments as one set of named arrays: ``<row>/<name>``."""
    return {f"{row}/{name}": value for row, state in states.items() for name, value in state.items()}


def unpack_states(arrays: dict[str, np.ndarray]) -> dict[int, dict[str, np.ndarray]]:
    """What `pack_states` has packed."""
    states: dict[int, dict[str, np.ndarray]] = {}
    for key, value in arrays.items():
        row, _, name = key.partition("/")
        states.setdefault(int(row), {})[name] = value
    return states
