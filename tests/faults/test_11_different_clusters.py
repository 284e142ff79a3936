"""Row 11: workers see different clusters."""

from __future__ import annotations

import pytest

from lockstep.errors import MismatchError
from tests.engine.runtime.test_rendezvous import arrival, error_of


@pytest.mark.parametrize("what", ["order", "size", "address", "chief"])
def test_11_both_views_and_the_first_difference_are_told_to_all(what: str) -> None:
    with arrival(3) as here:
        own = list(here.roll.addresses)
        seen = {
            "order": {"worker": [own[0], own[2], own[1]]},
            "size": {"worker": own[:2]},
            "address": {"worker": [*own[:2], "127.0.0.1:9"]},
            "chief": {"chief": own[:1], "worker": own[1:]},
        }[what]
        tasks = [here.report(1), here.report(2, cluster=seen), here.collected]
        for error in map(error_of, tasks):
            assert isinstance(error, MismatchError), error
            assert "All tasks must see the same cluster. worker 2: " in str(error)
            assert ", but " in str(error) and " on worker 0" in str(error)
