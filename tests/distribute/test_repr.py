"""What a strategy says of itself in a notebook or a log."""

from __future__ import annotations

import lockstep as ls


def test_a_strategy_says_how_many_replicas_it_has_and_of_which_kind() -> None:
    assert repr(ls.distribute.OneDeviceStrategy("/cpu:0")) == "<OneDeviceStrategy: 1 replica (cpu)>"
    mirrored = ls.distribute.MirroredStrategy()
    count = mirrored.num_replicas_in_sync
    assert repr(mirrored) == f"<MirroredStrategy: {count} replica{'' if count == 1 else 's'} (cpu)>"
