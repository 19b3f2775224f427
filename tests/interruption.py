"""Interrupts a call at one of the places where Python looks for signals.

Those are where a function begins, where a loop turns, and where a call of something written in C
came back: there, and nowhere else, Ctrl-C becomes a KeyboardInterrupt.
"""

import dis
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import neve

_SOURCE: Final = str(Path(neve.__file__).parent)
_LOOKS: Final = frozenset({"RESUME", "CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD"})


@cache
def _instructions(code: CodeType) -> dict[int, tuple[str, int]]:
    """Return the name of each instruction, and where its errors are handled."""
    bytecode = dis.Bytecode(code)
    handlers: list[Any] = bytecode.exception_entries  # type: ignore[attr-defined]  # typeshed lacks it
    return {
        each.offset: (
            each.opname,
            next((entry.target for entry in handlers if entry.start <= each.offset < entry.end), 0),
        )
        for each in bytecode
    }


class _Interrupter:
    """A trace function that raises at the n-th place."""

    def __init__(self, place: int, part: str) -> None:
        self.left = place
        self._source = f"{_SOURCE}/{part}"
        self._before: dict[FrameType, tuple[str, int]] = {}
        self._returned = False

    def __call__(self, frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401 - typeshed's
        if not frame.f_code.co_filename.startswith(self._source):
            return None
        if event == "call":
            frame.f_trace, frame.f_trace_opcodes = self, True
            self._before[frame] = ("RESUME", 0)
            self._returned = False
        elif event == "return":
            self._returned = True
        elif event == "opcode":
            name, handler = self._before.get(frame, ("", 0))
            self._before[frame] = now = _instructions(frame.f_code).get(frame.f_lasti, ("", 0))
            # Python raises in the instruction before this one, which may have another handler.
            looks = not self._returned and name in _LOOKS and handler == now[1]
            self._returned = False
            if looks:
                self.left -= 1
                if not self.left:
                    raise KeyboardInterrupt
        return self


def interrupted(action: Callable[[], object], place: int, *, part: str = "") -> bool:
    """Run an action, interrupted at its n-th place in a part of the sources; False beyond its end.

    Other errors of the action are raised.
    """
    before = sys.gettrace()
    interrupter = _Interrupter(place, part)
    # Python 3.12 traces instructions when a frame asked for it before `settrace`; later ones when a
    # frame that has its own trace function asks.
    sys._getframe().f_trace_opcodes = True
    sys.settrace(interrupter)
    try:
        action()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return not interrupter.left
