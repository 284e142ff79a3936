"""The one setting: LOCKSTEP_XLA_LOWERINGS."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from contextvars import ContextVar

from lockstep._runtime import switch

VARIABLE = "LOCKSTEP_XLA_LOWERINGS"

_is_off = ContextVar("lockstep's lowerings are switched off", default=False)


@contextlib.contextmanager
def switched_off() -> Generator[None]:
    """Leaves to XLA what is lowered meanwhile by this thread."""
    token = _is_off.set(True)
    try:
        yield
    finally:
        _is_off.reset(token)


def enabled() -> bool:
    """Whether lockstep's lowerings are used; the default is yes.

    Raises:
        ArgumentError: If the variable is neither 0 nor 1, nor empty.
    """
    if _is_off.get():
        return False
    return switch.is_on(VARIABLE, "lockstep's lowerings are used where they are faster than XLA's own")
