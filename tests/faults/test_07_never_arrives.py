"""Row 7: a worker, or the first task, never arrives."""

from __future__ import annotations

from lockstep._engine.runtime.rendezvous_client import RendezvousClient
from lockstep.errors import MissingTaskError
from tests.engine.runtime.jobs import eventually
from tests.engine.runtime.test_rendezvous import arrival, error_of, hello, roll_of


def test_07_who_is_missing_is_named_with_its_address_and_in_time() -> None:
    with arrival(4, seconds=60) as here:
        tasks = [here.report(1, seconds=60), here.report(3, seconds=60), here.collected]
        eventually(lambda: here.has_arrived(1) and here.has_arrived(3), lambda: "workers 1 and 3 have arrived")
        # Those who come have come: now the time of the others is over.
        here.host._deadline.seconds = 0.5
        for error in map(error_of, tasks):
            assert isinstance(error, MissingTaskError), error
            assert isinstance(error, TimeoutError)
            assert "Every task must arrive within 0.5 s (LOCKSTEP_JOIN_TIMEOUT)." in str(error)
            assert f"Arrived: {here.roll.describe([0, 1, 3])}. Missing: {here.roll.describe([2])}." in str(error)


def test_07_a_first_task_that_is_missing_is_named_too() -> None:
    roll = roll_of(2)
    try:
        RendezvousClient(roll, 1, hello(roll, 1)).report(0.3)
    except MissingTaskError as error:
        assert f"Missing: {roll.describe([0])}" in str(error)
    else:
        raise AssertionError("nobody was there")
