"""Functions that may read Keras variables, and must not assign to them."""

from __future__ import annotations

from typing import Any

import keras

from lockstep.errors import ArgumentError


class NoUpdates(keras.StatelessScope):
    """While open, Keras variables keep their values.

    Args:
        rule: What the function may do instead, for people.
        advice: What to do next.
    """

    def __init__(self, rule: str, advice: str) -> None:
        super().__init__()
        self._rule = rule
        self._advice = advice

    def add_update(self, update: Any) -> None:
        """Refuses."""
        raise ArgumentError(f"{self._rule} assigns to the Keras variable {update[0].path}. {self._advice}")
