"""The one setting: LOCKSTEP_XLA_LOWERINGS."""

from __future__ import annotations

import os

from lockstep.errors import ArgumentError

VARIABLE = "LOCKSTEP_XLA_LOWERINGS"


def enabled() -> bool:
    """Whether lockstep's lowerings are used; the default is yes.

    Raises:
        ArgumentError: If the variable is neither "0" nor "1".
    """
    value = os.environ.get(VARIABLE, "1")
    if value not in ("0", "1"):
        raise ArgumentError(
            f'{VARIABLE} must be "0" (XLA\'s own lowerings) or "1" (lockstep\'s where they are faster). '
            f"Received: {value!r}. Set it to 0 or 1, or remove it from the environment."
        )
    return value == "1"
