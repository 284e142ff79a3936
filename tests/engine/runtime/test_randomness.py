"""The random state that tasks share."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep._engine.runtime import randomness
from tests.engine.runtime.properties import steady


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """Leaves the global generators as they were."""
    python, numpy = random.getstate(), np.random.get_state()
    yield
    random.setstate(python)
    np.random.set_state(numpy)


def _draws() -> list[float]:
    python = [random.random(), random.gauss(), random.randrange(10**9)]
    return [*python, *np.random.rand(3), *np.random.normal(size=3), *np.random.permutation(10)]


# How many draws precede the snapshot, so that it falls anywhere: between the two halves of a pair of normal numbers,
# before and after the generators refill.
@steady
@given(st.integers(0, 2**32 - 1), st.integers(0, 700), st.booleans())
def test_a_snapshot_survives_json(seed: int, before: int, half_a_pair: bool) -> None:
    random.seed(seed)
    np.random.seed(seed)
    for _ in range(before):
        random.random()
    np.random.rand(before)
    if half_a_pair:
        random.gauss()
        np.random.normal()
    state = json.loads(json.dumps(randomness.snapshot()))
    expected = _draws()
    random.seed(1)
    np.random.seed(1)
    assert _draws() != expected
    randomness.restore(state)
    assert _draws() == expected


def test_a_state_that_an_earlier_version_saved_is_restored() -> None:
    random.seed(3)
    np.random.seed(3)
    version, words, gauss = random.getstate()
    name, keys, *rest = np.random.get_state(legacy=True)
    saved = {"python": [version, list(words), gauss], "numpy": [name, np.asarray(keys).tolist(), *rest]}
    expected = _draws()
    randomness.restore(json.loads(json.dumps(saved)))
    assert _draws() == expected


def test_a_snapshot_changes_nothing() -> None:
    random.seed(3)
    np.random.seed(3)
    expected = _draws()
    random.seed(3)
    np.random.seed(3)
    randomness.snapshot()
    assert _draws() == expected


def test_a_seeded_state_is_that_of_the_seed_and_changes_nothing() -> None:
    before = randomness.snapshot()
    state = randomness.random_states(7)
    assert randomness.snapshot() == before
    random.seed(7)
    np.random.seed(7)
    assert randomness.snapshot() == state
    randomness.restore(before)
