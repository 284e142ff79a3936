"""ignore_errors: what cannot be computed or read is left out, counted and logged."""

from __future__ import annotations

import functools
import itertools
import logging
from pathlib import Path
from typing import Any

import pytest

from lockstep.data import UNKNOWN_CARDINALITY, Dataset, _iterator
from lockstep.data._files.tfrecord import open_tfrecord
from lockstep.data._transforms.files import Files
from lockstep.errors import ArgumentError, InputError
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
    dataset = Dataset._of(files(tmp_path))
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
        list(Dataset._of(files(tmp_path)).map(fails).take(4).batch(4))
