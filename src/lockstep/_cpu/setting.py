"""The setting `LOCKSTEP_XLA_LOWERINGS`."""

from __future__ import annotations

from lockstep._engine.runtime import environment

VARIABLE = "LOCKSTEP_XLA_LOWERINGS"


def enabled() -> bool:
    """Returns whether lockstep's lowerings are used; the default is yes.

    Raises:
        ArgumentError: If the variable is neither 0 nor 1, nor empty.
    """
    return environment.env_flag(VARIABLE, "lockstep's lowerings are used where they are faster than XLA's own")
