"""A stage for each test, and signals as a user's shell passes them on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launch.staging import Stage


@pytest.fixture
def stage(tmp_path: Path, timed_mark: None) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


@pytest.fixture(autouse=True)
def heeded_signals() -> Iterator[None]:
    """A test run in the background may ignore signals, and what it starts would inherit that."""
    numbers = (signal.SIGINT, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        if before[number] is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
