"""Models of MuJoCo, compiled once in a process: every environment gets a copy, which takes a tenth of the time.

A copy belongs to its environment alone, since some tasks change their model when an episode begins.
"""

from collections.abc import Iterator
import contextlib
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dm_control.mujoco.wrapper.core import MjModel

_building = threading.Lock()  # dm_control is changed for all threads
_compiled: "dict[tuple, MjModel]" = {}
"""The last model, by the text and the files it was made from: a process needs many copies of one, hardly of two."""


@contextlib.contextmanager
def compiled_once() -> Iterator[None]:
    """While it is entered, dm_control copies a model that it has just compiled from the same text."""
    from dm_control.mujoco.wrapper.core import MjModel

    def copied(kind: "type[MjModel]", xml_string: str | bytes, assets: dict[str, Any] | None = None) -> "MjModel":
        source = (xml_string, frozenset((assets or {}).items()))
        if source not in _compiled:
            _compiled.clear()
            _compiled[source] = compile_model(kind, xml_string, assets)
        return _compiled[source].copy()

    with _building:
        original = vars(MjModel)["from_xml_string"]
        compile_model = original.__func__
        MjModel.from_xml_string = classmethod(copied)
        try:
            yield
        finally:
            MjModel.from_xml_string = original
