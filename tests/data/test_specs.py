"""What a dataset says about its elements and their number is true of any chain of transformations."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import pytest
from hypothesis import example, given, settings

from lockstep.data import INFINITE_CARDINALITY, Dataset
from lockstep.errors import InputError
from tests.data.chains import build, chains


def spec_of(dataset: Dataset) -> Any:
    try:
        return dataset.element_spec
    except InputError as error:
        assert "there is none" in str(error) or "without any element" in str(error)
        return None


@pytest.mark.slow
@settings(max_examples=50)
@given(chains)
@example(("range", 5, [("batch, map, unbatch", 2)], 0))
@example(("range", 5, [("batch, map, unbatch", 2)], 2))
@example(("range", 0, [("map on threads", 1), ("batch, drop, unbatch", 1)], 0))
def test_cardinality_and_element_spec(chain: Any) -> None:
    dataset = build(chain)
    count, spec = dataset.cardinality(), spec_of(dataset)
    found = list(itertools.islice(dataset.as_numpy_iterator(), 400))
    if count >= 0:
        assert len(found) == min(count, 400)
    if count == INFINITE_CARDINALITY:
        assert len(found) in (0, 400)
    if spec is None:
        assert found == []
    for element in found:
        assert jax.tree.structure(element) == jax.tree.structure(spec)
        pairs = zip(jax.tree.leaves(spec), jax.tree.leaves(element), strict=True)
        assert all(s.is_compatible_with(leaf) for s, leaf in pairs)
