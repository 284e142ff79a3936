"""Initial rows are those of the whole table, to the bit, whichever are asked for and however many at a time."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from lockstep._engine.servers.compiled import load
from lockstep._engine.servers.initial_rows import initializer_of
from lockstep.errors import UnsupportedError

SHAPE = (1000, 16)
INITIALIZERS = ["RandomUniform", "RandomNormal", "TruncatedNormal", "GlorotUniform", "HeNormal", "LecunNormal"]


@pytest.mark.slow
@pytest.mark.parametrize("name", INITIALIZERS)
def test_random_rows(name: str) -> None:
    make = getattr(keras.initializers, name)
    whole = np.asarray(make(seed=7)(SHAPE, dtype="float32"))
    program = load(initializer_of(make(seed=7), SHAPE, "float32"))
    for ids in (np.arange(1000), np.asarray([999, 0, 500]), np.random.default_rng(0).permutation(1000)[:77]):
        assert np.asarray(program(ids)).tobytes() == whole[ids].tobytes()


@pytest.mark.parametrize("name", ["Zeros", "Ones", "Constant"])
def test_constant_rows(name: str) -> None:
    program = load(initializer_of(getattr(keras.initializers, name)(), SHAPE, "float32"))
    whole = np.asarray(getattr(keras.initializers, name)()(SHAPE, dtype="float32"))
    np.testing.assert_array_equal(np.asarray(program(np.arange(70))), whole[:70])


def test_a_table_of_any_size_is_never_whole() -> None:
    program = load(initializer_of(keras.initializers.RandomUniform(seed=1), (1 << 40, 16), "float32"))
    rows = np.asarray(program(np.asarray([0, (1 << 40) - 1])))
    assert rows.shape == (2, 16)
    assert (rows[0] != rows[1]).any()


@pytest.mark.slow
def test_what_cannot_be_divided_is_made_whole_below_a_size_and_refused_above() -> None:
    small = load(initializer_of(keras.initializers.Orthogonal(seed=1), (20, 4), "float32"))
    whole = np.asarray(keras.initializers.Orthogonal(seed=1)((20, 4)))
    np.testing.assert_allclose(np.asarray(small(np.asarray([3, 1]))), whole[[3, 1]], rtol=0, atol=1e-6)
    with pytest.raises(UnsupportedError, match="Orthogonal"):
        initializer_of(keras.initializers.Orthogonal(seed=1), (10_000_000, 4), "float32")
