"""Writers of event files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.estimator._model_fn.records import SummaryOp
from lockstep.estimator.summary import FileWriter, FileWriterCache
from lockstep.summary import SessionLog, Summary, read_events, scalars


@pytest.fixture(autouse=True)
def no_writers_are_left() -> Iterator[None]:
    yield
    FileWriterCache.clear()


def number(tag: str, value: float) -> Summary:
    return Summary(value=[Summary.Value(tag=tag, simple_value=value)])


def test_every_form_of_a_summary(tmp_path: Path) -> None:
    with FileWriter(tmp_path) as writer:
        writer.add_summary(number("message", 1), 1)
        writer.add_summary(number("bytes", 2).SerializeToString(), np.int64(2))
        writer.add_summary(SummaryOp("scalar", "op", np.float32(3)), 3)
        writer.add_summary([SummaryOp("scalar", "a", np.float32(4)), number("b", 5)], 4)
        writer.add_summary(number("without a step", 6))
    assert scalars(tmp_path) == {
        0: {"without a step": 6.0},
        1: {"message": 1.0},
        2: {"bytes": 2.0},
        3: {"op": 3.0},
        4: {"a": 4.0, "b": 5.0},
    }


def test_another_librarys_message(tmp_path: Path) -> None:
    class Other:
        def SerializeToString(self) -> bytes:
            return number("other", 1).SerializeToString()

    with FileWriter(tmp_path) as writer:
        writer.add_summary(Other(), 1)
    assert scalars(tmp_path) == {1: {"other": 1.0}}


def test_what_is_no_summary(tmp_path: Path) -> None:
    with FileWriter(tmp_path) as writer, pytest.raises(ArgumentError, match=r"received 0\.5"):
        writer.add_summary(0.5, 1)


def test_start_of_a_session(tmp_path: Path) -> None:
    with FileWriter(tmp_path) as writer:
        writer.add_session_log(SessionLog(status=SessionLog.START), 5)
    *_, event = read_events(tmp_path)
    assert (event.step, event.session_log.status) == (5, SessionLog.START)


def test_a_writer_goes_on_after_close(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path)
    for step in range(3):
        writer.add_summary(number("loss", step), step)
        writer.close()
        writer.reopen()
    writer.close()
    assert list(scalars(tmp_path)) == [0, 1, 2]


def test_one_writer_for_each_directory(tmp_path: Path) -> None:
    writer = FileWriterCache.get(tmp_path / "a")
    assert FileWriterCache.get(str(tmp_path / "a")) is writer
    assert FileWriterCache.get(tmp_path / "b") is not writer
    assert writer.get_logdir() == str(tmp_path / "a")
    writer.add_summary(number("loss", 1), 1)
    FileWriterCache.clear()
    assert scalars(tmp_path / "a") == {1: {"loss": 1.0}}
    assert FileWriterCache.get(tmp_path / "a") is not writer
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("argument", ["graph", "graph_def", "session"])
def test_there_is_no_graph(argument: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=argument):
        FileWriter(tmp_path, **{argument: object()})
    with pytest.raises(UnsupportedError, match="no graph"):
        FileWriter(tmp_path).add_graph(object())


@pytest.mark.parametrize("arguments", [{"max_queue": 0}, {"flush_secs": -1}])
def test_numbers_out_of_range(arguments: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="max_queue is at least 1"):
        FileWriter(tmp_path, **arguments)
