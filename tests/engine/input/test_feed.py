"""Epochs: where one ends and the next begins."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from lockstep._engine.input.feed import Feed
from lockstep._engine.input.source import source_of
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.replicas import Replicas
from tests.engine.input.on_host import OnHost


def _one() -> Replicas:
    return Replicas(Runtime(), jax.devices()[:1])


def _feed(x: Any, steps: int | None = None, together: int = 0, **arguments: Any) -> Feed:
    source = source_of(x, _one(), True, shuffle=False, steps_per_epoch=steps, **arguments)
    return Feed(source, OnHost(together), Runtime(), steps)  # pyright: ignore[reportArgumentType]


def _epoch(feed: Feed, stop_after: int | None = None) -> list[int]:
    """The first number of each batch of the next epoch."""
    seen: list[int] = []
    with feed.epoch(()) as chunks:
        for chunk in chunks:
            seen += [int(np.ravel(batch)[0]) for batch in chunk.data]
            if len(seen) == stop_after:
                break
    return seen


def _numbers(count: int, taken: list[int] | None = None) -> Iterator[tuple[np.ndarray]]:
    for i in range(count):
        if taken is not None:
            taken.append(i)
        yield (np.full(2, i),)


def test_an_epoch_is_a_pass() -> None:
    feed = _feed(np.arange(10), batch_size=4)
    assert [_epoch(feed), _epoch(feed)] == [[0, 4, 8]] * 2
    assert feed.num_batches == 3


def test_epochs_of_some_steps_continue() -> None:
    feed = _feed(np.arange(12), steps=2, batch_size=2)
    assert [_epoch(feed) for _ in range(4)] == [[0, 2], [4, 6], [8, 10], [0, 2]]
    assert feed.num_batches == 2


def test_a_pass_that_ends_in_mid_epoch_ends_it_with_a_warning() -> None:
    feed = _feed(np.arange(10), steps=3, batch_size=2)
    assert _epoch(feed) == [0, 2, 4]
    with pytest.warns(UserWarning, match="ran out of data"):
        assert _epoch(feed) == [6, 8]
    assert _epoch(feed) == [0, 2, 4]


def test_an_epoch_that_the_loop_leaves_early() -> None:
    whole, some = _feed(np.arange(10), batch_size=2), _feed(np.arange(10), steps=3, batch_size=2)
    assert _epoch(whole, stop_after=2) == [0, 2]
    assert _epoch(whole) == [0, 2, 4, 6, 8]
    assert _epoch(some, stop_after=1) == [0]
    assert _epoch(some) == [2, 4, 6]


def test_a_generator_lasts_for_one_pass() -> None:
    feed = _feed(_numbers(5))
    assert _epoch(feed) == [0, 1, 2, 3, 4]
    assert feed.exhausted and feed.num_batches == 5
    assert _epoch(feed) == []


def test_a_generator_is_read_as_far_as_its_epochs_go() -> None:
    taken: list[int] = []
    generator = _numbers(100, taken)
    feed = _feed(generator, steps=4)
    assert [_epoch(feed), _epoch(feed)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert taken == list(range(8))
    assert _epoch(_feed(generator, steps=2)) == [8, 9]


def test_a_generator_that_ends_in_mid_epoch() -> None:
    feed = _feed(_numbers(5), steps=3)
    assert _epoch(feed) == [0, 1, 2]
    with pytest.warns(UserWarning, match="ran out of data"):
        assert _epoch(feed) == [3, 4]
    assert feed.exhausted


def test_peeking_consumes_nothing() -> None:
    source = source_of(_numbers(3), _one(), True)
    assert source.peek()[0][0] == 0 == source.peek()[0][0]
    feed = Feed(source, OnHost(), Runtime(), None)  # pyright: ignore[reportArgumentType]
    assert _epoch(feed) == [0, 1, 2]


def test_an_error_comes_after_the_batches_before_it() -> None:
    def broken() -> Iterator[tuple[np.ndarray]]:
        yield from _numbers(3)
        raise OSError("disk gone")

    seen: list[int] = []
    with pytest.raises(OSError, match="disk gone"), _feed(broken()).epoch(()) as batches:
        for chunk in batches:
            seen += [int(np.ravel(batch)[0]) for batch in chunk.data]
    assert seen == [0, 1, 2]


def test_leaving_an_epoch_ends_its_reader() -> None:
    import threading

    def endless() -> Iterator[tuple[np.ndarray]]:
        while True:
            yield from _numbers(3)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _epoch(_feed(endless()), stop_after=2)
    assert "lockstep-reader" not in {t.name for t in threading.enumerate()}
