"""Settings in the environment that are on or off."""

from __future__ import annotations

import os

from lockstep.errors import ArgumentError


def is_on(name: str, meaning: str, default: bool = True) -> bool:
    """Whether a setting is on.

    Args:
        name: Of the variable.
        meaning: What it does when it is on.
        default: What it is unless the environment says otherwise.

    Raises:
        ArgumentError: If it is neither 0 nor 1.
    """
    text = os.environ.get(name) or str(int(default))
    if text not in ("0", "1"):
        raise ArgumentError(f"{name} must be 1 ({meaning}) or 0. Received: {text!r}.")
    return text == "1"
