"""Agreement between tasks, as threads that share a store."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep._engine.runtime import control as control_
from lockstep._engine.runtime.control import Channel, ChannelClosed, Control
from lockstep._engine.runtime.failure import attached_cause, is_agreed
from lockstep.errors import MismatchError, MissingTaskError, PeerError
from tests.engine.runtime.jobs import Job
from tests.engine.runtime.properties import steady
from tests.engine.runtime.store import Store, check_manners, controls

PATIENCE = 30.0
VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=3)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits look up more often than they do between machines."""
    monkeypatch.setattr(control_, "_SLICE_SECONDS", 0.05)


def at_once(*calls: Callable[[], Any]) -> list[Future[Any]]:
    """Makes each call on a thread of its own, and waits for all."""
    with ThreadPoolExecutor(len(calls)) as threads:
        futures = [threads.submit(call) for call in calls]
        for future in futures:
            future.exception(PATIENCE)
    return futures


def channels(found: list[Control], seconds: float = PATIENCE, name: str = "test") -> list[Channel]:
    return [c.channel(name, seconds) for c in found]


def restless(seed: int, longest: float = 0.002) -> Store:
    """A store in which every access takes a time of its own."""
    pace = random.Random(seed)
    return Store(lambda operation: time.sleep(pace.random() * longest) if pace.random() < 0.3 else None)


def test_the_store_has_the_manners_of_jax(job: Job) -> None:
    check_manners(Store())
    program = """
        import lockstep as ls
        strategy = ls.distribute.MultiWorkerMirroredStrategy()
        from jax._src import distributed
        from tests.engine.runtime.store import check_manners
        if strategy._replicas.runtime.is_chief:
            check_manners(distributed.global_state.client)
    """
    tasks = job.start_all(program, 2)
    assert [t.wait() for t in tasks] == [0, 0], tasks[0].err


@settings(steady, max_examples=40)
@given(st.lists(st.lists(VALUES, min_size=3, max_size=3), min_size=1, max_size=6), st.integers(0, 999))
def test_everyone_gets_everyone_s_values_in_order(turns: list[list[Any]], seed: int) -> None:
    store = restless(seed)
    ends = channels(controls(3, store))

    def take_part(task: int) -> list[list[Any]]:
        return [ends[task].all_gather_object("topic", turn[task]) for turn in turns]

    for future in at_once(*(lambda i=i: take_part(i) for i in range(3))):
        assert future.result() == turns
    assert len(store.keys) <= 3, "answers that all have read are removed"


def test_channels_do_not_disturb_each_other() -> None:
    here = controls(2)
    one, other = channels(here, name="one"), channels(here, name="other")

    def of(task: int) -> list[Any]:
        with ThreadPoolExecutor(2) as threads:
            both = [
                threads.submit(c[task].all_gather_object, "topic", (n, task))
                for n, c in (("one", one), ("other", other))
            ]
            return [f.result(PATIENCE) for f in both]

    for future in at_once(lambda: of(0), lambda: of(1)):
        assert future.result() == [[["one", 0], ["one", 1]], [["other", 0], ["other", 1]]]


def test_tasks_in_different_calls_all_learn_who_is_where() -> None:
    ends = channels(controls(3))
    topics = ["fit", "fit", "evaluate"]
    for future in at_once(*(lambda e=e, t=t: e.all_gather_object(t, None) for e, t in zip(ends, topics, strict=True))):
        error = future.exception()
        assert isinstance(error, MismatchError)
        assert "Here worker 0 is in fit; worker 1 is in fit; worker 2 is in evaluate." in str(error)
        assert is_agreed(error), "all raise it, so that nobody waits for anybody"


def test_whoever_does_not_come_is_named() -> None:
    began = time.monotonic()
    for future in at_once(
        *(lambda e=e: e.all_gather_object("the next batch", 1) for e in channels(controls(4), 0.3)[:2])
    ):
        error = future.exception()
        assert isinstance(error, MissingTaskError)
        assert "must reach the next batch within 0.3 s of the first (LOCKSTEP_PEER_TIMEOUT)" in str(error)
        assert "Here: worker 0, worker 1. Missing: worker 2, worker 3." in str(error)
    assert 0.3 <= time.monotonic() - began < 5


def test_a_failure_ends_the_waits_of_the_others() -> None:
    here = controls(3)
    ends = channels(here)

    def fail() -> None:
        here[2].announce_failure("ValueError", "bad data")

    first, second, _ = at_once(
        lambda: ends[0].all_gather_object("fit", 1), lambda: ends[1].all_gather_object("fit", 1), fail
    )
    for future in (first, second):
        assert isinstance(future.exception(), PeerError)
        assert str(future.exception()) == "worker 2 failed first: ValueError: bad data"


def test_the_first_failure_is_the_cause() -> None:
    here = controls(3)
    here[1].announce_failure("OSError", "disk gone")
    here[2].announce_failure("PeerError", "worker 1 failed first")
    told = {"process": 1, "task": "worker 1", "type": "OSError", "message": "disk gone", "by": 1}
    assert here[0].failure() == told
    with pytest.raises(PeerError, match=r"(?m)^worker 1 failed first: OSError: disk gone$"):
        here[0].check_peers()
    here[1].check_peers()  # Its own failure is not its peers'.


def test_a_consequence_is_announced_as_its_cause() -> None:
    """A task that has heard of a failure in its run may be the first to end its program."""
    here = controls(3)
    with here[0].running("fit") as run, here[1].running("fit"):
        here[1].announce_failure("SystemExit", "0", run)
        with pytest.raises(PeerError, match=r"(?m)^worker 1 failed first: SystemExit: 0$") as heard:
            here[0].check_peers()
    here[0].announce_failure("PeerError", str(heard.value), cause=attached_cause(heard.value))
    for control in here:  # Also the cause itself: the others have ended.
        with pytest.raises(PeerError, match=r"(?m)^worker 1 failed first: SystemExit: 0$"):
            control.check_peers()


def test_a_run_that_is_released_misses_nobody() -> None:
    here = controls(2)
    with here[0].running("fit") as run:
        here[1].announce_leaving()
        with pytest.raises(PeerError, match="worker 1 ended its program while worker 0 is in fit"):
            here[0].check_peers()
        here[0].release()
        assert here[0].run is None and here[0].runs and here[0].is_released(run)
        with here[0].running("evaluate"), pytest.raises(PeerError, match="while worker 0 is in evaluate"):
            here[0].check_peers()
    with here[0].running("fit") as run:
        assert not here[0].is_released(run)


def test_a_long_message_is_cut() -> None:
    here = controls(2)
    here[1].announce_failure("ValueError", "x" * 100_000)
    found = here[0].failure()
    assert found is not None and len(found["message"]) == 4000


def test_a_run_that_breaks_concerns_those_that_are_in_it() -> None:
    here = controls(2)
    with here[0].running("fit") as first, here[1].running("fit") as same:
        assert first == same
        here[1].announce_failure("ValueError", "bad batch", same)
        with pytest.raises(PeerError, match="worker 1 failed first: ValueError: bad batch"):
            here[0].check_peers()
        with here[0].running("evaluate"), pytest.raises(PeerError, match="bad batch"):
            here[0].check_peers()
    here[0].check_peers()
    with here[0].running("fit"), here[1].running("fit"):
        here[0].check_peers()


def test_a_task_that_has_left_is_missed() -> None:
    here = controls(2)
    (end, _), _ = channels(here), here[1].announce_leaving()
    with here[0].running("fit"), pytest.raises(PeerError) as error:
        end.all_gather_object("the next batch", 1)
    assert "worker 1 ended its program while worker 0 is in fit." in str(error.value)


def test_a_task_that_left_after_its_answer_is_not_missed() -> None:
    here = controls(2)
    ends = channels(here)
    with ThreadPoolExecutor() as threads:
        future = threads.submit(ends[1].all_gather_object, "fit", 1)
        here[1].announce_leaving()
        assert ends[0].all_gather_object("fit", 0) == future.result(PATIENCE) == [0, 1]


def test_a_closed_channel_ends_the_wait() -> None:
    end, _ = channels(controls(2))
    with ThreadPoolExecutor() as threads:
        future = threads.submit(end.all_gather_object, "the next batch", 1)
        with pytest.raises(TimeoutError):
            future.result(0.2)
        end.close()
        assert isinstance(future.exception(PATIENCE), ChannelClosed)


def test_the_end_of_the_service_is_no_late_answer() -> None:
    store = Store()
    end, _ = channels(controls(2, store))
    with ThreadPoolExecutor() as threads:
        future = threads.submit(end.all_gather_object, "the next batch", 1)
        store.gone = True
        error = future.exception(PATIENCE)
    assert error is not None and not isinstance(error, TimeoutError)


def test_values_have_a_time_limit() -> None:
    (here,) = controls(1)
    with pytest.raises(TimeoutError):
        here.get("nothing", 0.01)
    here.set("something", {"a": [1, None]})
    assert here.get("something", 0.01) == {"a": [1, None]}
    with pytest.raises(RuntimeError, match="ALREADY_EXISTS"):
        here.set("something", 2)
    here.set("something", 2, overwrite=True)
    assert here.listing("something") == {} and here.get("something", 1) == 2


def test_ends_are_counted() -> None:
    here = controls(12)
    for task in (0, 3, 11):
        here[task].announce_leaving()
        here[task].announce_end()
    assert here[1].left() == here[1].ended() == {0, 3, 11}


def test_many_turns_of_many_tasks() -> None:
    """Nobody reads an answer of another turn, however far the tasks are apart."""
    here = controls(8, restless(5, 0.0005))

    def take_part(end: Channel, task: int) -> None:
        for turn in range(30):
            assert end.all_gather_object(f"turn {turn}", [turn, task]) == [[turn, i] for i in range(8)]

    for future in at_once(*(lambda e=e, i=i: take_part(e, i) for i, e in enumerate(channels(here)))):
        future.result()


def test_a_run_lasts_as_long_as_what_it_has_started() -> None:
    here, other = controls(2)
    done: list[bool] = []
    for control in (here, other):
        with control.running("strategy.run(step)") as run:
            control.started(lambda: bool(done))
    assert here.run == run and not here.runs
    other.announce_leaving()  # It has done its part.
    here.check_peers()
    with here.running("strategy.reduce"):
        here.started(lambda: bool(done))
    with pytest.raises(PeerError, match=r"worker 1 ended its program while worker 0 is in strategy\.reduce\."):
        here.check_peers()
    done.append(True)
    assert here.run is None


def test_a_run_that_has_failed_elsewhere_concerns_whoever_waits_for_its_results() -> None:
    here, other = controls(2)
    for control in (here, other):
        with control.running("strategy.run(step)") as run:
            control.started(lambda: False)
    other.announce_failure("ValueError", "why", run)
    with pytest.raises(PeerError, match="worker 1 failed first: ValueError: why"):
        here.check_peers()
