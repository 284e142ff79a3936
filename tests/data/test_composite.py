"""Elements with values of a class of their own: batched, taken apart and passed on as the class says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from lockstep.data import Dataset, TensorSpec, _composite
from lockstep.data.internal import CompositeKind, register_composite


@dataclass(frozen=True)
class Numbers:
    """Some numbers, or some rows of them."""

    rows: tuple[Any, ...]

    @property
    def dtype(self) -> Any:
        return np.dtype(np.int64)


@dataclass(frozen=True)
class NumbersSpec:
    depth: int


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_composite, "_kinds", {})
    monkeypatch.setattr(_composite, "_kinds_of_specs", {})
    kind = CompositeKind(
        spec_of=lambda value: NumbersSpec(1 + isinstance(value.rows[0], tuple)),
        stack=lambda values: Numbers(tuple(v.rows for v in values)),
        rows=lambda value: [Numbers(row) for row in value.rows],
        batch_spec=lambda spec, size: NumbersSpec(spec.depth + 1),
        row_spec=lambda spec: NumbersSpec(spec.depth - 1),
        widen=lambda one, other: one if one == other else None,
    )
    register_composite(Numbers, NumbersSpec, kind)
    yield


ROWS = Numbers(((1,), (2, 3), (4, 5, 6), (7, 8)))


def rows() -> Dataset:
    return Dataset.from_tensor_slices({"n": ROWS, "x": np.arange(4)})


def test_they_are_sliced_batched_and_unbatched() -> None:
    batches = rows().batch(2)
    assert rows().element_spec == {"n": NumbersSpec(1), "x": TensorSpec([], np.int64)}
    assert batches.element_spec["n"] == NumbersSpec(2)
    assert [e["n"] for e in batches] == [Numbers(((1,), (2, 3))), Numbers(((4, 5, 6), (7, 8)))]
    again = batches.unbatch()
    assert again.element_spec == rows().element_spec
    assert [(e["n"].rows, int(e["x"])) for e in again] == list(zip(ROWS.rows, range(4), strict=True))


def test_functions_take_and_give_them_one_by_one() -> None:
    sums = rows().map(lambda e: (e["n"], sum(e["n"].rows)))
    assert [(n.rows, int(s)) for n, s in sums] == [((1,), 1), ((2, 3), 5), ((4, 5, 6), 15), ((7, 8), 15)]
    long = sums.filter(lambda n, s: len(n.rows) > 1).concatenate(sums.take(1)).repeat(2).cache()
    assert [n.rows for n, _ in long] == [(2, 3), (4, 5, 6), (7, 8), (1,)] * 2
    made = Dataset.from_generator(lambda: iter([Numbers((1,)), Numbers((2, 3))]), output_signature=NumbersSpec(1))
    assert made.element_spec == NumbersSpec(1)
    assert [n.rows for n in made] == [(1,), (2, 3)]


def test_a_position_among_them() -> None:
    def dataset() -> Any:
        return rows().shuffle(4, seed=1).batch(3).unbatch().as_numpy_iterator()

    iterator = dataset()
    taken = [next(iterator)["n"] for _ in range(2)]
    other = dataset()
    other.set_state(json.loads(json.dumps(iterator.get_state())))
    rest = [e["n"] for e in other]
    assert rest == [e["n"] for e in iterator]
    assert sorted(n.rows for n in taken + rest) == sorted(ROWS.rows)
