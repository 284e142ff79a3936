"""Two processes on one GPU, which NCCL takes for two machines: each way to sum gradients follows one device."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.gpu.comparison import TOLERANCES, assert_equal
from tests.support.cluster import Cluster

Start = Callable[..., Cluster]


# A ring takes the replica view: masks of dropout, and averages of a step of the program's own, are each replica's.
_CASES = [
    *(("nccl", case) for case in ("sgd with momentum", "dropout", "wide layers", "custom train_step")),
    *(("ring", case) for case in ("sgd with momentum", "wide layers")),
]


@pytest.mark.parametrize(("kind", "case"), _CASES)
def test_trains_as_one_device(kind: str, case: str, start: Start) -> None:
    arguments = {"case": case, "floatx": "float64"}
    expected = start(0).run("tests.engine.keras.cases:run", **arguments)[0]
    members = start(2, kind).run("tests.engine.keras.cases:run", **arguments)
    assert_equal(members, expected, TOLERANCES["float64"])


def test_own_loop(start: Start) -> None:
    """`strategy.run`, `all_reduce` in the replica context, `reduce`, and one `ls.function` for an epoch."""
    expected = start(1).run("tests.quick.cases:functions", rows=26)[0]
    assert_equal(start(2, "nccl").run("tests.quick.cases:functions", rows=26), expected, TOLERANCES["float32"])
