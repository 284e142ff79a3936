"""take, skip, shard, repeat, enumerate, concatenate and zip: which elements, how many, and in which order."""

from __future__ import annotations

import itertools
import re
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.compat import tensorflow as tf
from lockstep.data import INFINITE_CARDINALITY, SHARD_HINT, UNKNOWN_CARDINALITY, Dataset, TensorSpec, TextLineDataset
from lockstep.errors import ArgumentError, CardinalityError, InputError

Pair = namedtuple("Pair", "x y")
MOST = 40


def values(dataset: Dataset) -> list[int]:
    return [int(v) for v in itertools.islice(dataset, MOST)]


STEPS: dict[str, Any] = {
    "take": (lambda d, k: d.take(k), lambda v, k: v[:k] if k >= 0 else v),
    "skip": (lambda d, k: d.skip(k), lambda v, k: v[k:] if k >= 0 else []),
    "repeat": (lambda d, k: d.repeat(k), lambda v, k: v * k if k >= 0 else v * (0 if not v else 1 + 2 * MOST)),
    "shard": (lambda d, k: d.shard(abs(k) + 1, abs(k)), lambda v, k: v[abs(k) :: abs(k) + 1]),
    "concatenate": (lambda d, k: d.concatenate(Dataset.range(abs(k))), lambda v, k: v + list(range(abs(k)))),
    "cache": (lambda d, k: d.cache(), lambda v, k: v),
    "prefetch": (lambda d, k: d.prefetch(abs(k)), lambda v, k: v),
    "batch": (lambda d, k: d.batch(abs(k) + 1).unbatch(), lambda v, k: v),
    "filter": (lambda d, k: d.filter(lambda x: x % 2 == 0), lambda v, k: [x for x in v if x % 2 == 0]),
    "shuffle of one": (lambda d, k: d.shuffle(1), lambda v, k: v),
}


@given(st.integers(0, 9), st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(-1, 11)), max_size=4))
def test_elements_and_their_number(count: int, steps: list[tuple[str, int]]) -> None:
    dataset, expected, endless = Dataset.range(count), list(range(count)), False
    for name, number in steps:
        step, model = STEPS[name]
        if endless and name != "take":
            return  # The model has only the beginning of an endless dataset.
        dataset, expected = step(dataset, number), model(expected, number)
        endless = endless or (name == "repeat" and number < 0)
    assert values(dataset) == expected[:MOST]
    if dataset.cardinality() >= 0:
        assert len(dataset) == len(expected)
    assert dataset.element_spec == TensorSpec((), np.int64)


@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("number", [0, 1, 3, 7, -1])
def test_how_many_are_known(count: int, number: int) -> None:
    for name in ("take", "skip", "shard", "concatenate", "cache", "prefetch", "repeat"):
        step, model = STEPS[name]
        dataset = step(Dataset.range(count), number)
        endless = name == "repeat" and number < 0 and count > 0
        assert dataset.cardinality() == (INFINITE_CARDINALITY if endless else len(model(list(range(count)), number)))


def unknown(count: int) -> Dataset:
    return Dataset.range(count).filter(lambda x: x >= 0)


def test_numbers_that_are_unknown_or_endless() -> None:
    endless = Dataset.range(3).repeat()
    assert unknown(3).cardinality() == unknown(3).take(2).cardinality() == UNKNOWN_CARDINALITY
    assert unknown(3).repeat().cardinality() == INFINITE_CARDINALITY
    assert list(unknown(0).repeat()) == []
    assert unknown(3).repeat(0).cardinality() == 0
    assert endless.take(4).cardinality() == 4
    assert endless.skip(4).cardinality() == endless.shard(2, 0).cardinality() == INFINITE_CARDINALITY
    assert unknown(2).concatenate(endless).cardinality() == INFINITE_CARDINALITY
    assert unknown(2).concatenate(Dataset.range(2)).cardinality() == UNKNOWN_CARDINALITY
    assert Dataset.zip(endless, endless).cardinality() == INFINITE_CARDINALITY
    assert Dataset.zip(endless, Dataset.range(2)).cardinality() == 2
    assert Dataset.zip(unknown(2), endless).cardinality() == UNKNOWN_CARDINALITY


def test_len() -> None:
    assert len(Dataset.range(5).batch(2)) == 3
    with pytest.raises(TypeError, match="infinite"):
        len(Dataset.range(3).repeat())
    with pytest.raises(TypeError, match="unknown"):
        len(unknown(3))
    assert bool(Dataset.range(0)) is True


def test_repeat_follows_shuffle_and_batch() -> None:
    shuffled = values(Dataset.range(5).shuffle(5).repeat(4))
    assert [sorted(shuffled[i : i + 5]) for i in range(0, 20, 5)] == [list(range(5))] * 4
    assert sorted(values(Dataset.range(5).repeat(4).shuffle(20))) == sorted(list(range(5)) * 4)
    assert [b.tolist() for b in Dataset.range(3).batch(2).repeat(2)] == [[0, 1], [2], [0, 1], [2]]
    assert [b.tolist() for b in Dataset.range(3).repeat(2).batch(2)] == [[0, 1], [2, 0], [1, 2]]


def test_repeat_of_repeat() -> None:
    assert values(Dataset.range(2).repeat(2).repeat(3)) == [0, 1] * 6
    assert values(Dataset.range(0).repeat().repeat()) == []


@given(st.integers(0, 30), st.integers(1, 7))
def test_shards_hold_everything_once(count: int, shards: int) -> None:
    parts = [values(Dataset.range(count).shard(shards, i)) for i in range(shards)]
    assert sorted(v for p in parts for v in p) == list(range(count))
    assert [len(p) for p in parts] == [len(Dataset.range(count).shard(shards, i)) for i in range(shards)]


@pytest.mark.parametrize(("shards", "index"), [(0, 0), (-2, 0), (2, 2), (2, -1), (2, 0.5), ("x", 0), (SHARD_HINT, 0)])
def test_wrong_shards(shards: Any, index: Any) -> None:
    with pytest.raises(ArgumentError, match=r"num_shards|index"):
        Dataset.range(3).shard(shards, index)


@pytest.mark.parametrize("method", ["take", "skip", "repeat", "batch", "padded_batch", "window", "shuffle", "prefetch"])
@pytest.mark.parametrize("wrong", [1.5, "x", [1]])
def test_counts_are_whole_numbers(method: str, wrong: Any) -> None:
    with pytest.raises(ArgumentError, match="must be a whole number"):
        getattr(Dataset.range(3), method)(wrong)


def test_counts_may_be_numpys() -> None:
    assert values(Dataset.range(5).take(np.int64(2))) == [0, 1]
    assert values(Dataset.range(5).skip(np.array(3))) == [3, 4]
    assert values(Dataset.range(5).skip(2**40)) == []


def test_enumerate() -> None:
    pairs = list(Dataset.from_tensor_slices(["a", "b"]).enumerate(start=-3))
    assert pairs == [(-3, b"a"), (-2, b"b")]
    assert pairs[0][0].dtype == np.int64
    assert Dataset.range(0).enumerate().element_spec == (TensorSpec((), np.int64), TensorSpec((), np.int64))
    shuffled = Dataset.range(50).shuffle(50).enumerate()
    assert [int(n) for n, _ in shuffled] == list(range(50))


def test_zip_holds_as_many_as_the_shortest() -> None:
    parts = (
        Dataset.range(4),
        {"b": Dataset.range(10, 13), "a": Pair(Dataset.range(9), Dataset.from_tensors(1).repeat())},
    )
    dataset = Dataset.zip(parts)
    found = list(dataset)
    assert [int(e[0]) for e in found] == [0, 1, 2]
    assert found[2] == (2, {"b": 12, "a": Pair(2, 1)})
    assert len(dataset) == 3
    assert dataset.element_spec[1]["a"] == Pair(TensorSpec((), np.int64), TensorSpec((), np.int32))


def test_ways_to_call_zip() -> None:
    one = Dataset.range(2)
    assert list(Dataset.zip(one)) == [0, 1]
    assert list(Dataset.zip((one,))) == [(0,), (1,)]
    assert list(Dataset.zip(one, one)) == list(Dataset.zip((one, one))) == list(Dataset.zip(datasets=(one, one)))


@pytest.mark.parametrize(
    "wrong", [(), ((),), ([Dataset.range(1), Dataset.range(1)],), ((Dataset.range(1), 3),), (None,)]
)
def test_wrong_arguments_of_zip(wrong: tuple[Any, ...]) -> None:
    with pytest.raises(ArgumentError, match=r"dataset|Dataset"):
        Dataset.zip(*wrong)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 5)), min_size=1, max_size=3), st.integers(1, 4))
def test_zip_of_what_comes_in_pieces(parts: list[tuple[int, int]], batch: int) -> None:
    datasets = tuple(Dataset.range(n).filter(lambda x: x >= 0).shuffle(k, seed=k) for n, k in parts)
    expected = list(zip(*(values(d) for d in datasets), strict=False))
    found = Dataset.zip(datasets)
    assert [tuple(map(int, e)) for e in found] == expected
    batches = list(found.batch(batch))
    assert [tuple(map(int, e)) for b in batches for e in zip(*b, strict=True)] == expected


def test_concatenate() -> None:
    assert values(Dataset.range(2).concatenate(Dataset.range(5, 7)).concatenate(Dataset.range(0))) == [0, 1, 5, 6]
    longer = Dataset.from_tensors(np.zeros(2)).concatenate(Dataset.from_tensors(np.zeros(3)))
    assert longer.element_spec == TensorSpec((None,), np.float64)
    assert [len(v) for v in longer] == [2, 3]
    with pytest.raises(ArgumentError, match=r"lockstep.data.Dataset is needed"):
        Dataset.range(2).concatenate([1])  # type: ignore[arg-type]
    for other in (Dataset.range(2, output_type=np.int32), Dataset.from_tensors((1, 2))):
        with pytest.raises(InputError, match="one structure and dtype"):
            Dataset.range(2).concatenate(other)


def test_apply() -> None:
    assert values(Dataset.range(5).apply(lambda d: d.take(2))) == [0, 1]
    with pytest.raises(ArgumentError, match="Dataset is needed"):
        Dataset.range(5).apply(lambda d: 3)  # type: ignore[arg-type, return-value]


OTHERS: dict[str, Callable[[], Dataset]] = {
    "dtype": lambda: Dataset.from_tensor_slices([1.0, 2.0]),
    "text": lambda: Dataset.from_tensor_slices(["a"]),
    "tuple": lambda: Dataset.range(3).map(lambda x: (x, x)),
    "dict": lambda: Dataset.range(3).map(lambda x: {"a": x}),
    "datasets": lambda: Dataset.range(3).window(2),
    "unsigned": lambda: Dataset.from_tensor_slices(np.arange(3, dtype=np.uint8)),
    "bool": lambda: Dataset.from_tensor_slices([True]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_datasets_of_other_elements_are_not_mixed(name: str) -> None:
    first, other = Dataset.range(3), OTHERS[name]()
    shown = re.escape(f"Incompatible dataset elements: {first.element_spec} vs. {other.element_spec}")
    with pytest.raises(TypeError, match=shown):
        first.concatenate(other)
    with pytest.raises(InputError, match="Incompatible dataset elements"):
        other.concatenate(first)
    with pytest.raises(TypeError, match=shown):
        Dataset.sample_from_datasets([first, other])
    with pytest.raises(TypeError, match=shown):
        Dataset.choose_from_datasets([first, other], Dataset.range(2))


@pytest.mark.parametrize("name", sorted(set(OTHERS) - {"datasets"}))
def test_datasets_that_only_reading_shows_are_compared_while_reading(name: str) -> None:
    def unknown(dataset: Dataset) -> Dataset:
        return Dataset.from_generator(lambda: dataset)

    for first, other in (
        (Dataset.range(3), unknown(OTHERS[name]())),
        (unknown(Dataset.range(3)), OTHERS[name]()),
        (unknown(Dataset.range(3)), unknown(OTHERS[name]())),
        (Dataset.range(3).map(lambda x: np.int64(int(x))), OTHERS[name]().map(lambda *x: x if len(x) > 1 else x[0])),
    ):
        with pytest.raises(TypeError, match="Incompatible dataset elements"):
            list(first.concatenate(other))
        with pytest.raises(TypeError, match="Incompatible dataset elements"):
            list(Dataset.sample_from_datasets([first, other], seed=1))


def test_what_fits_is_still_concatenated() -> None:
    narrow = Dataset.range(2).map(lambda x: x + 5)
    assert [int(x) for x in Dataset.range(2).concatenate(narrow)] == [0, 1, 5, 6]
    assert Dataset.range(2).concatenate(narrow).element_spec == TensorSpec((), np.int32)
    ranks = Dataset.from_tensors(np.zeros(2)).concatenate(Dataset.from_tensors(np.zeros((2, 3))))
    assert [x.shape for x in ranks] == [(2,), (2, 3)]
    assert ranks.element_spec == TensorSpec(None, np.float64)
    generated = Dataset.from_generator(lambda: iter([1, 2])).concatenate(Dataset.from_generator(lambda: iter([3])))
    assert [int(x) for x in generated.batch(2).unbatch()] == [1, 2, 3]


def test_concatenate_reads_nothing_before_it_is_iterated_over() -> None:
    calls: list[int] = []

    def generated() -> Iterator[int]:
        calls.append(1)
        yield 1

    def missing() -> Dataset:
        return TextLineDataset(["/no such file"]).map(lambda line: int(line))

    Dataset.from_generator(generated).concatenate(Dataset.from_generator(generated))
    missing().concatenate(missing())
    Dataset.sample_from_datasets([missing(), missing().map(lambda x: x + 1)])
    assert calls == []


def filtered(count: int) -> Dataset:
    return Dataset.range(count).filter(lambda x: x >= 0)


@pytest.mark.parametrize("change", [lambda d: d, lambda d: d.batch(2).unbatch(), lambda d: d.prefetch(2)])
def test_assert_cardinality(change: Callable[[Dataset], Dataset]) -> None:
    dataset = filtered(5).assert_cardinality(5)
    assert len(dataset) == 5
    assert [int(x) for x in change(dataset)] == [0, 1, 2, 3, 4]
    for count, words in ((3, "3 elements but contained at least 4"), (7, "7 elements but contained only 5")):
        wrong = filtered(5).assert_cardinality(count)
        assert wrong.cardinality() == count
        found: list[int] = []
        with pytest.raises(CardinalityError, match=words):
            found.extend(int(x) for x in wrong)
        assert found == list(range(min(count, 5)))
        with pytest.raises(CardinalityError, match=words):
            list(change(wrong))


def test_assert_cardinality_as_in_tensorflow() -> None:
    assertion = tf.data.experimental.assert_cardinality
    dataset = tf.data.Dataset.range(5).filter(lambda x: True)
    assert len(dataset.apply(assertion(5))) == 5
    assert len(list(dataset.repeat().apply(assertion(tf.data.INFINITE_CARDINALITY)).take(7))) == 7
    for count in (0, 4, 6, tf.data.INFINITE_CARDINALITY):
        with pytest.raises(tf.errors.FailedPreconditionError):
            list(dataset.apply(assertion(count)))
    with pytest.raises(tf.errors.FailedPreconditionError):
        list(tf.data.Dataset.range(5).apply(assertion(3)))
    with pytest.raises(tf.errors.FailedPreconditionError):
        list(dataset.repeat().apply(assertion(8)))
    with pytest.raises(ArgumentError, match="expected_cardinality"):
        Dataset.range(3).assert_cardinality(-2)


def test_the_position_counts_elements_that_are_asserted() -> None:
    iterator = iter(filtered(5).assert_cardinality(5))
    next(iterator)
    resumed = iter(filtered(5).assert_cardinality(5))
    resumed.set_state(iterator.get_state())
    assert [int(x) for x in resumed] == [1, 2, 3, 4]
