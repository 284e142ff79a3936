"""Which local copies still stand for arrays on the replicas."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import jax.numpy as jnp
import pytest

from lockstep._engine.step.state import LocalCopies


class Variable:
    """Equal to any other, as the comparison of Keras variables is one of values."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def test_a_copy_stands_for_its_array_until_another_value_is_assigned() -> None:
    copies, one, other = LocalCopies(), Variable(), Variable()
    local, placed = jnp.zeros(2), jnp.ones(2)
    copies.remember(one, local, placed)
    assert one in copies and other not in copies
    assert copies.placed(one, local) is placed
    assert copies.placed(one, jnp.zeros(2)) is None and copies.placed(other, local) is None
    copies.forget(one)
    assert copies.placed(one, local) is None


@pytest.mark.slow
def test_what_stands_for_a_variable_goes_with_it() -> None:
    """The next variable may get its id."""
    copies = LocalCopies()
    variable: Any = Variable()
    placed = jnp.ones(2)
    copies.remember(variable, jnp.zeros(2), placed)
    kept = weakref.ref(placed)
    del variable, placed
    gc.collect()
    assert kept() is None
