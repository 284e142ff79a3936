"""SIGTERM to this very process, while runs are open."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lockstep._engine.runtime import sigterm
from tests.engine.runtime.jobs import eventually

pytestmark = pytest.mark.timed

PATIENCE = 20.0


@pytest.fixture(autouse=True)
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A watch of this test's own, and the handler as it was."""
    before = signal.getsignal(signal.SIGTERM)
    watch = sigterm._Watch()
    monkeypatch.setattr(sigterm, "_watch", watch)
    monkeypatch.setattr(sigterm, "notify", watch.notify)
    monkeypatch.setattr(sigterm, "ignore_for", watch.ignore_for)
    yield
    signal.signal(signal.SIGTERM, before)
    signal.set_wakeup_fd(-1)


def send() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def heard() -> tuple[threading.Event, Callable[[], None]]:
    event = threading.Event()
    return event, event.set


def test_a_request_is_heard_and_the_handler_put_back() -> None:
    event, tell = heard()
    before = signal.getsignal(signal.SIGTERM)
    with sigterm.notify(tell):
        send()
        assert event.wait(PATIENCE)
        send()
    assert signal.getsignal(signal.SIGTERM) == before
    assert signal.set_wakeup_fd(-1) == -1


def test_a_main_thread_that_is_busy_does_not_delay_it() -> None:
    """The handler in Python runs when the main thread comes back to Python; the request does not wait for that."""
    event, tell = heard()
    order: list[str] = []
    signal.signal(signal.SIGTERM, lambda *args: order.append("handler"))
    with sigterm.notify(lambda: (order.append("told"), tell())[0]):
        timer = threading.Timer(0.1, send)
        timer.start()
        # One call into C that holds no lock of the interpreter, and does not look at signals until it returns.
        subprocess.run([sys.executable, "-S", "-c", "pass"], check=True)
        timer.join()
        assert event.wait(PATIENCE)
    assert set(order) == {"told", "handler"}


def test_the_program_s_own_handler_is_called_and_put_back() -> None:
    event, tell = heard()
    calls: list[Any] = []

    def own(number: int, frame: Any) -> None:
        calls.append(number)

    signal.signal(signal.SIGTERM, own)
    with sigterm.notify(tell):
        send()
        assert event.wait(PATIENCE)
    assert calls == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is own


def test_what_the_program_s_handler_raises_is_raised_at_the_end_of_the_run() -> None:
    event, tell = heard()
    steps: list[int] = []
    signal.signal(signal.SIGTERM, lambda *args: sys.exit(3))
    with pytest.raises(SystemExit) as raised, sigterm.notify(tell):
        send()
        assert event.wait(PATIENCE)
        steps.append(1)
    assert raised.value.code == 3
    assert steps == [1]


def test_a_run_s_own_end_comes_before_what_the_handler_raises() -> None:
    event, tell = heard()
    signal.signal(signal.SIGTERM, lambda *args: sys.exit(3))
    with pytest.raises(KeyError), sigterm.notify(tell):
        send()
        assert event.wait(PATIENCE)
        raise KeyError("the end")


def test_a_handler_that_the_program_sets_meanwhile_stays() -> None:
    def own(number: int, frame: Any) -> None:
        pass

    with sigterm.notify(lambda: None):
        signal.signal(signal.SIGTERM, own)
    assert signal.getsignal(signal.SIGTERM) is own


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    event, tell = heard()
    with sigterm.notify(tell):
        send()
        assert not event.wait(0.1)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_only_the_outermost_run_and_the_main_thread() -> None:
    (outer, tell_outer), (inner, tell_inner) = heard(), heard()
    with sigterm.notify(tell_outer), sigterm.notify(tell_inner):
        send()
        assert outer.wait(PATIENCE) and not inner.is_set()
    before = signal.getsignal(signal.SIGTERM)
    seen: list[Any] = []

    def elsewhere() -> None:
        with sigterm.notify(lambda: None):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(PATIENCE)
    assert seen == [before]


def test_a_pipe_of_the_program_s_own_still_hears_signals() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    signal.set_wakeup_fd(writer)
    event, tell = heard()
    with sigterm.notify(tell):
        send()
        assert event.wait(PATIENCE)
        received = bytearray()

        def has_come() -> bool:
            try:
                received.extend(os.read(reader, 8))
            except BlockingIOError:
                return False
            return signal.SIGTERM in received

        eventually(has_come, lambda: "the program's pipe")
    assert signal.set_wakeup_fd(-1) == writer
    os.close(reader), os.close(writer)


def test_after_the_end_further_requests_are_not_heard_for_a_while() -> None:
    calls: list[int] = []
    signal.signal(signal.SIGTERM, lambda *args: calls.append(1))
    with sigterm.notify(lambda: None):
        sigterm.ignore_for(0.3)
    send()
    assert calls == []
    deadline = time.monotonic() + PATIENCE
    while not calls and time.monotonic() < deadline:
        send()
    assert calls


def test_a_fork_lets_go(watch: None) -> None:
    """Data loaders are forked, and ended by SIGTERM: that is no request to end to their parent."""
    event, tell = heard()
    with sigterm.notify(tell):
        reader, writer = os.pipe()
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", "import signal; print(signal.getsignal(signal.SIGTERM).name, flush=True)"],
            stdout=writer,
        )
        child.wait(PATIENCE)
        os.close(writer)
        assert os.read(reader, 100) == b"SIG_DFL\n"
        os.close(reader)
        sigterm._watch.reset_in_fork()  # What `os.fork` calls in the child.
        assert signal.getsignal(signal.SIGTERM) != sigterm._watch._handle
        assert signal.set_wakeup_fd(-1) == -1
    assert not event.is_set()


_FORKING = """
import os, signal, sys, time, threading
sys.path[:0] = {path!r}
from lockstep._engine.runtime import sigterm

told = threading.Event()
with sigterm.notify(told.set):
    child = os.fork()
    if not child:
        signal.pause()
        os._exit(1)
    time.sleep(0.1)
    os.kill(child, signal.SIGTERM)
    _, status = os.waitpid(child, 0)
    print(os.WTERMSIG(status), told.wait(0.3), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    print(told.wait(20), flush=True)
"""


def test_a_forked_child_that_is_ended_does_not_end_its_parent() -> None:
    program = _FORKING.format(path=sys.path)
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert found.stdout.split() == ["15", "False", "True"], found.stderr


# A pool may end its child at once. Hooks of a child are called in the order in which they were registered.
_ENDED_AT_ONCE = """
import os, signal, sys, threading
sys.path[:0] = {path!r}
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))
from lockstep._engine.runtime import sigterm

told = threading.Event()
with sigterm.notify(told.set):
    child = os.fork()
    if not child:
        signal.pause()
        os._exit(1)
    _, status = os.waitpid(child, 0)
    print(os.WTERMSIG(status), told.wait(0.3), signal.pthread_sigmask(signal.SIG_BLOCK, []), flush=True)
"""


def test_a_forked_child_that_is_ended_at_once_does_not_end_its_parent() -> None:
    program = _ENDED_AT_ONCE.format(path=sys.path)
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert found.stdout.strip() == "15 False set()", found.stderr
