"""Adding up over more replicas, of any type and shape."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from lockstep._engine.step.reduction import Algorithm
from tests.support.cluster import Cluster, shared

eight = shared(1, 8)


@pytest.mark.parametrize("replicas", range(5, 9))
@pytest.mark.parametrize("algorithm", get_args(Algorithm))
def test_every_replica_has_the_sum(eight: Cluster, algorithm: Algorithm, replicas: int) -> None:
    (found,) = eight.run("tests.engine.step.cases:sums", algorithm=algorithm, replicas=replicas, seed=replicas)
    names = [name.removeprefix("found ") for name in found if name.startswith("found ")]
    assert len(names) == 7
    for name in names:
        np.testing.assert_array_equal(found[f"found {name}"], found[f"expected {name}"], err_msg=name)
