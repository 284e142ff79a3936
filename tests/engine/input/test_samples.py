"""Samples of data: equal for equal data, however it is held, and different where it differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep._engine.input import samples
from lockstep._engine.input.samples import Sample, samples_of
from lockstep._engine.runtime.runtime import Runtime
from lockstep.data import Dataset
from lockstep.data import _dataset_base as inside
from lockstep.data._plan import Run
from lockstep.errors import ArgumentError

_TASKS = ["worker 0", "worker 1"]


def _exchanged(others: Any) -> Any:
    def agree(topic: str, value: Any) -> list[Any]:
        return [others.described(), value]

    return agree


@given(rows=st.integers(1, 40), number=st.integers(0, 9), odd=st.integers(0, 39))
def test_any_value_of_a_small_array_shows(rows: int, number: int, odd: int) -> None:
    a = np.arange(3.0 * rows, dtype="float32").reshape(rows, 3)
    b = a.copy()
    assert Sample({"x": a}, number).checksum == Sample({"x": b}, number).checksum
    b[odd % rows, 1] += 1
    assert Sample({"x": a}, number).checksum != Sample({"x": b}, number).checksum


@given(rows=st.integers(2, 200), nbytes=st.integers(1, 400))
def test_every_row_of_a_large_array_is_in_some_sample(rows: int, nbytes: int) -> None:
    a = np.arange(rows, dtype="int64")
    taken = [Sample(a, number, nbytes) for number in range(rows)]
    seen = {value for sample in taken for row in sample._rows for value in np.ravel(row)}
    assert seen == set(range(rows))
    assert all(sum(len(row) for row in sample._rows) * 8 <= max(2 * nbytes, 8) for sample in taken)


def test_what_holds_an_array_does_not_matter() -> None:
    a = np.arange(12, dtype="float32").reshape(4, 3)
    held: Sequence[Any] = (a, np.asfortranarray(a), jax.numpy.asarray(a), a.copy())
    assert len({Sample((one, None)).checksum for one in held}) == 1


def test_text_and_ragged_values() -> None:
    texts = [np.array([b"one", word, "three"], object) for word in (b"two", b"zwei")]
    assert Sample(texts[0]).checksum == Sample(texts[0].copy()).checksum != Sample(texts[1]).checksum
    assert Sample(object()).checksum == Sample(object()).checksum, "what has no content is not compared"


def test_the_first_row_that_differs_is_named() -> None:
    a = np.arange(12, dtype="float32").reshape(4, 3)
    b = a.copy()
    b[2, 0] = 9
    error = samples.mismatch("batch 7", Sample((b,)), _exchanged(Sample((a,))), _TASKS)
    assert "In batch 7, worker 1: [0]['row 02'] is \"(9.0, 7.0, 8.0), checksum" in str(error)
    assert 'but "(6.0, 7.0, 8.0), checksum' in str(error)
    assert "each worker passes all data; lockstep divides it" in str(error)
    assert samples.VARIABLE in str(error)


def test_a_task_without_a_checksum_takes_no_part() -> None:
    assert samples.differ([1, 2])
    assert not samples.differ([1, 1])
    assert not samples.differ([1, None])


def test_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Runtime(("worker 0", "worker 1"))
    assert samples.are_compared(pair)
    assert not samples.are_compared(Runtime())
    monkeypatch.setenv(samples.VARIABLE, "0")
    assert not samples.are_compared(pair)
    monkeypatch.setenv(samples.VARIABLE, "yes")
    with pytest.raises(ArgumentError, match=samples.VARIABLE):
        samples.are_compared(pair)


def _checksums(dataset: Dataset, limits: Sequence[int]) -> list[int]:
    """The checksums of all batches, if so many are asked for at a time."""
    cursor = inside.plan_of(dataset).open(Run(3))
    found: list[int] = []
    for limit in [*limits, *([1] * 100)]:
        block = cursor.next(limit)
        if block is None:
            return found
        found += [sample.checksum for sample in samples_of(block)]
    raise AssertionError("an endless dataset")


def _rows(offset: int) -> Dataset:
    return Dataset.from_tensor_slices((np.arange(60, dtype="float32").reshape(30, 2) + offset, np.arange(30)))


def _doubled(x: Any, y: Any) -> Any:
    return x * 2, y


_PLANS: dict[str, Any] = {
    "arrays": lambda offset: _rows(offset).batch(4),
    "shuffled": lambda offset: _rows(offset).shuffle(11).batch(4),
    "mapped": lambda offset: _rows(offset).map(_doubled).batch(4).map(_doubled),
    "joined": lambda offset: _rows(offset).concatenate(_rows(offset)).shuffle(7).batch(8),
    "generated": lambda offset: Dataset.from_generator(lambda: iter(range(offset, offset + 30))).shuffle(5).batch(4),
    "zipped": lambda offset: Dataset.zip((_rows(offset), Dataset.range(30))).batch(4),
    "interleaved": lambda offset: Dataset.range(3).interleave(lambda i: _rows(offset), cycle_length=2).batch(4),
    "of batches": lambda offset: _rows(offset).batch(2).batch(3, drop_remainder=True).unbatch(),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(_PLANS))
@settings(max_examples=10, deadline=None)
@given(limits=st.lists(st.integers(1, 6), max_size=6))
def test_how_much_is_read_at_once_does_not_show(kind: str, limits: list[int]) -> None:
    once = _checksums(_PLANS[kind](0), [])
    assert _checksums(_PLANS[kind](0), limits) == once
    assert all(a != b for a, b in zip(_checksums(_PLANS[kind](1), limits), once, strict=True))


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(limits=st.lists(st.integers(1, 6), max_size=6))
def test_what_a_cache_holds_already_does_not_show(limits: list[int]) -> None:
    """Another task may have computed other elements of it, or all."""
    empty, full = (Dataset.range(8).map(lambda i: i * 2).cache().shuffle(8).batch(2) for _ in range(2))
    list(full)
    once = _checksums(empty, limits)
    assert len(set(once)) == len(once)
    assert _checksums(full, []) == once
