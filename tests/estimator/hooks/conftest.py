"""A clock that tests set, the log, and an end for writers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from lockstep.estimator._hooks import _timer
from lockstep.estimator.summary import FileWriterCache


class Clock:
    """The time of hooks.

    Attributes:
        now: In seconds.
    """

    now = 1000.0

    def tick(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(_timer, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "lockstep"):
        yield caplog


@pytest.fixture(autouse=True)
def no_writers_are_left() -> Iterator[None]:
    yield
    FileWriterCache.clear()
