"""Ctrl-C while the main thread is in a function that XLA has called."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from lockstep._cpu import targets


@pytest.fixture
def restored() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.cluster
@pytest.mark.usefixtures("restored")
def test_it_comes_when_the_function_has_returned() -> None:
    done: list[str] = []

    def called_by_xla() -> None:
        signal.raise_signal(signal.SIGINT)
        done.append("all of it")

    targets.defer_interrupts(called_by_xla)
    with pytest.raises(KeyboardInterrupt):
        called_by_xla()
        threading.Event().wait(20)
    assert done == ["all of it"]


@pytest.mark.usefixtures("restored")
def test_elsewhere_it_comes_at_once() -> None:
    targets.defer_interrupts(lambda: None)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
