"""ignore_errors: what cannot be computed or read is left out, counted and logged."""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep.compat import tensorflow as tf
from lockstep.data import UNKNOWN_CARDINALITY, Dataset, _iterator, py_function
from lockstep.data._files.tfrecord import open_tfrecord
from lockstep.data._record_files import Files
from lockstep.errors import (
    ArgumentError,
    DataNotFoundError,
    InputError,
    LockstepError,
    MismatchError,
    PeerError,
    UnsupportedError,
)
from tests.data.files.test_tfrecord import write


def odd_fails(x: Any) -> Any:
    if int(x) % 2:
        raise ZeroDivisionError(f"odd: {int(x)}")
    return x


def values(dataset: Dataset) -> list[int]:
    return [int(v) for v in dataset]


def test_elements_that_fail_are_left_out_and_counted() -> None:
    dataset = Dataset.range(10).map(odd_fails).ignore_errors()
    assert dataset.cardinality() == UNKNOWN_CARDINALITY
    assert values(dataset) == [0, 2, 4, 6, 8]
    assert dataset.ignored_errors == 5
    batches = dataset.batch(2)
    assert [b.tolist() for b in batches] == [[0, 2], [4, 6], [8]]
    assert batches.ignored_errors == 10


@pytest.mark.parametrize("count", [1, 7, 100])
def test_any_number_of_failures(count: int) -> None:
    def fails(x: Any) -> Any:
        if int(x) < count:
            raise KeyError("mine")
        return x

    assert values(Dataset.range(120).map(fails).shuffle(20, seed=1).ignore_errors().take(300)) != []
    assert sorted(values(Dataset.range(120).map(fails).shuffle(20).ignore_errors())) == list(range(count, 120))
    assert values(Dataset.range(count).map(fails).ignore_errors()) == []


def test_batches_of_different_shapes_are_left_out() -> None:
    tuples = Dataset.range(6).map(lambda i: {"a": [0] * (2 if int(i) == 3 else 3)}).batch(2).ignore_errors()
    assert [b["a"].shape for b in tuples] == [(2, 3), (2, 3)]
    assert tuples.ignored_errors == 1


def test_what_is_left_out_may_be_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "lockstep"):
        values(Dataset.range(4).map(odd_fails).ignore_errors())
        assert caplog.messages == []
        values(Dataset.range(4).map(odd_fails).ignore_errors(log_warning=True))
    assert sorted(caplog.messages) == [
        "Left out (1 so far): The function odd_fails failed at element 1: ZeroDivisionError: odd: 1",
        "Left out (2 so far): The function odd_fails failed at element 3: ZeroDivisionError: odd: 3",
    ]


def test_wrong_arguments_are_not_ignored() -> None:
    with pytest.raises(ArgumentError, match="padding_values"):
        list(Dataset.range(4).padded_batch(2, padding_values="x").ignore_errors())


def files(tmp_path: Path) -> Files:
    """Three files of four records; the second breaks off in the third record."""
    paths = [write(tmp_path / f"{n}", [f"{n}{i}".encode() for i in range(4)]) for n in "abc"]
    content = paths[1].read_bytes()
    paths[1].write_bytes(content[: len(content) * 5 // 8])
    return Files([str(p) for p in paths], functools.partial(open_tfrecord, compression_type=""), "TFRecords")


@pytest.mark.parametrize("is_read_ahead", [False, True])
def test_a_file_that_breaks_off_is_read_up_to_there(
    is_read_ahead: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As when groups take long, which are then computed on several threads.
    monkeypatch.setattr(_iterator, "_GROUP_SECONDS", 0.0 if is_read_ahead else 100.0)
    dataset = Dataset._from_plan(files(tmp_path))
    elements = iter(dataset)
    assert list(itertools.islice(elements, 6)) == [b"a0", b"a1", b"a2", b"a3", b"b0", b"b1"]
    with pytest.raises(InputError, match=r"/b"):
        next(elements)
    ignoring = dataset.ignore_errors()
    assert list(ignoring) == [b"a0", b"a1", b"a2", b"a3", b"b0", b"b1", b"c0", b"c1", b"c2", b"c3"]
    assert ignoring.ignored_errors == 1
    batches = list(dataset.ignore_errors().batch(3))
    assert [b.tolist() for b in batches][2] == [b"c0", b"c1", b"c2"]


def test_a_function_that_fails_names_file_and_record(tmp_path: Path) -> None:
    def fails(record: bytes) -> int:
        if record == b"a2":
            raise ValueError("mine")
        return len(record)

    with pytest.raises(InputError, match=r"fails failed at .*/a, record 2.*ValueError: mine"):
        list(Dataset._from_plan(files(tmp_path)).map(fails).take(4).batch(4))


def test_tensorflows_own_example(caplog: pytest.LogCaptureFixture) -> None:
    dataset = tf.data.Dataset.from_tensor_slices([1.0, 2.0, 0.0, 4.0])
    with np.errstate(divide="ignore"):
        dataset = dataset.map(lambda x: tf.debugging.check_numerics(1.0 / x, ""))
        assert [float(x) for x in dataset.ignore_errors()] == [1.0, 0.5, 0.25]
        assert [b.tolist() for b in dataset.batch(2).ignore_errors()] == [[1.0, 0.5]]
        with caplog.at_level(logging.WARNING, "lockstep"):
            experimental = dataset.apply(tf.data.experimental.ignore_errors(log_warning=True))
            assert [float(x) for x in experimental] == [1.0, 0.5, 0.25]
    assert len(caplog.messages) == 1
    assert "failed at element 2" in caplog.messages[0]


def test_missing_and_broken_files_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"1\n")
    names = [str(tmp_path / "missing"), str(tmp_path / "there"), str(tmp_path)]
    read = tf.data.Dataset.from_tensor_slices(names).map(tf.io.read_file)
    with pytest.raises(tf.errors.NotFoundError, match="missing"):
        next(iter(read))
    assert [x.numpy() for x in read.ignore_errors()] == [b"1\n"]
    lines = tf.data.TextLineDataset(names)
    assert [x.numpy() for x in lines.ignore_errors()] == [b"1"]
    assert list(tf.data.TFRecordDataset(names[:2]).ignore_errors()) == []
    inner = tf.data.Dataset.from_tensor_slices(names).interleave(tf.data.TextLineDataset, cycle_length=2)
    assert [x.numpy() for x in inner.ignore_errors()] == [b"1"]
    opened = Dataset.from_tensor_slices(names).map(lambda name: Path(name.decode()).read_bytes())
    assert list(opened.ignore_errors()) == [b"1\n"]
    with pytest.raises(tf.errors.NotFoundError):
        next(iter(opened))


def test_what_cannot_be_decoded_or_parsed_is_left_out() -> None:
    texts = tf.data.Dataset.from_tensor_slices([b"1", b"x", b"3"])
    assert [float(x) for x in texts.map(tf.strings.to_number).ignore_errors()] == [1.0, 3.0]
    assert list(texts.map(tf.io.decode_jpeg).ignore_errors()) == []
    features = {"a": tf.io.FixedLenFeature([], tf.float32, 0.0)}
    parsed = tf.data.Dataset.from_tensor_slices([b"nope", b""]).map(lambda s: tf.io.parse_single_example(s, features))
    assert [float(x["a"]) for x in parsed.ignore_errors()] == [0.0]


def raises(error: BaseException) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        if int(x) == 1:
            raise error
        return x

    return function


OF_ELEMENTS = (
    *(
        ValueError("v"),
        TypeError("t"),
        KeyError("k"),
        IndexError("i"),
        RuntimeError("r"),
        StopIteration(),
        OSError("o"),
    ),
    *(FileNotFoundError("f"), PermissionError("p"), AssertionError("a"), ZeroDivisionError("z"), AttributeError("a")),
    *(UnicodeDecodeError("utf8", b"x", 0, 1, "u"), InputError("i"), ArgumentError("a"), DataNotFoundError("d")),
    *(NotImplementedError("n"), EOFError("e"), StopIteration()),
)


@pytest.mark.parametrize("error", OF_ELEMENTS, ids=lambda e: type(e).__name__)
def test_errors_of_an_element_are_left_out(error: Exception) -> None:
    for dataset in (
        Dataset.range(3).map(raises(error)),
        Dataset.range(3).map(lambda x: py_function(raises(error), [x], np.int64)),
        Dataset.range(3).map(raises(error)).map(lambda x: int(x)),
        Dataset.range(3).filter(lambda x: raises(error)(x) is not None),
        Dataset.range(3).flat_map(lambda x: Dataset.from_tensors(raises(error)(x))),
        Dataset.range(3).scan(np.int32(0), lambda s, x: (s, raises(error)(x))),
    ):
        assert values(dataset.ignore_errors()) == [0, 2]
        assert values(dataset.shuffle(3).ignore_errors()) in ([0, 2], [2, 0])


OF_PROGRAM = (
    *(NameError("n"), ImportError("i"), ModuleNotFoundError("m"), MemoryError("m"), UnsupportedError("u")),
    *(PeerError("p"), MismatchError("m"), KeyboardInterrupt("k"), SystemExit("s")),
)


@pytest.mark.parametrize("error", OF_PROGRAM, ids=lambda e: type(e).__name__)
def test_errors_of_the_program_are_not_left_out(error: BaseException) -> None:
    for dataset in (
        Dataset.range(3).map(raises(error)),
        Dataset.range(3).map(raises(error)).batch(3),
        Dataset.range(3).filter(lambda x: raises(error)(x) is not None),
        Dataset.range(3).flat_map(lambda x: Dataset.from_tensors(raises(error)(x))),
    ):
        with pytest.raises((LockstepError, type(error)), match=str(error)):
            values(dataset.ignore_errors())
        assert dataset.ignore_errors().ignored_errors == 0


def test_an_error_that_is_not_left_out_is_raised_in_its_turn() -> None:
    iterator = iter(Dataset.range(5).map(raises(NameError("mine"))).ignore_errors())
    assert next(iterator) == 0
    with pytest.raises(InputError, match="mine"):
        next(iterator)
    assert [int(x) for x in iterator] == [2, 3, 4]


def test_a_generator_that_fails() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        yield 2
        raise KeyError("mine")

    dataset = Dataset.from_generator(numbers)
    assert values(dataset.ignore_errors()) == [1, 2]
    assert [b.tolist() for b in dataset.ignore_errors().batch(2)] == [[1, 2]]
    assert values(Dataset.from_generator(lambda: 3).ignore_errors()) == []  # type: ignore[arg-type,return-value]


def test_a_number_of_elements_that_is_wrong_is_not_left_out() -> None:
    with pytest.raises(tf.errors.FailedPreconditionError):
        values(Dataset.range(5).assert_cardinality(4).ignore_errors())
