"""Row 7: a worker, or the first task, never arrives."""

from __future__ import annotations

import time

from lockstep._engine.runtime.rendezvous_client import RendezvousClient
from lockstep.errors import MissingTaskError
from tests.engine.runtime.test_rendezvous import arrival, error_of, hello, roll_of


def test_07_who_is_missing_is_named_with_its_address_and_in_time() -> None:
    began = time.monotonic()
    with arrival(4, seconds=0.5) as here:
        for error in map(error_of, [here.report(1), here.report(3), here.collected]):
            assert isinstance(error, MissingTaskError), error
            assert isinstance(error, TimeoutError)
            assert "Every task must arrive within 0.5 s (LOCKSTEP_JOIN_TIMEOUT)." in str(error)
            assert f"Arrived: {here.roll.describe([0, 1, 3])}. Missing: {here.roll.describe([2])}." in str(error)
    assert time.monotonic() - began < 5


def test_07_a_first_task_that_is_missing_is_named_too() -> None:
    roll = roll_of(2)
    try:
        RendezvousClient(roll, 1, hello(roll, 1)).report(0.3)
    except MissingTaskError as error:
        assert f"Missing: {roll.describe([0])}" in str(error)
    else:
        raise AssertionError("nobody was there")
