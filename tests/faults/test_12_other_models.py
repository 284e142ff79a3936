"""Row 12: workers differ in model, optimizer, type of numbers, or versions."""

from __future__ import annotations

import pytest

from tests.engine.runtime.test_rendezvous import arrival, error_of
from tests.support.cluster import Cluster


@pytest.mark.parametrize(
    ("what", "path"),
    [
        ("layer", 'dense/kernel is "float32(3, 6)", but "float32(3, 5)" on worker 0'),
        ("optimizer", 'kernel_momentum is absent, but "float32('),
        ("dtype", "dense"),
    ],
)
def test_12_the_first_difference_is_named_before_the_first_step(pair: Cluster, what: str, path: str) -> None:
    for found in pair.run("tests.faults.cases:other_model", what=what):
        assert str(found["type"]) == "MismatchError", str(found["text"])
        assert "All tasks must have the same variables of the model. worker 1: " in str(found["text"])
        assert path in str(found["text"])


@pytest.mark.parametrize("package", ["python", "jax", "jaxlib", "keras", "numpy", "lockstep"])
def test_12_other_versions_are_named_before_jax_starts(package: str) -> None:
    versions = {name: "1" for name in ("python", "jax", "jaxlib", "keras", "numpy", "lockstep")}
    with arrival(2) as here:
        here.host._hellos[0] = {**here.host._hellos[0], "versions": versions}
        late = here.report(1, versions={**versions, package: "2"})
        for error in (error_of(here.collected), error_of(late)):
            assert f'All tasks must see the same versions. worker 1: {package} is "2", but "1" on worker 0' in str(
                error
            )
