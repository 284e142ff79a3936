"""Clusters as a fixture of pytest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from lockstep.testing._cluster import LocalCluster


@pytest.fixture(scope="module")
def local_cluster() -> Iterator[Callable[..., LocalCluster]]:
    """Makes clusters that the tests of a module share.

    It takes the arguments of `LocalCluster`; the same ones give the same cluster.
    """
    with ExitStack() as stack:
        clusters: dict[str, LocalCluster] = {}

        def cluster(workers: int = 2, **options: Any) -> LocalCluster:
            # By its text: environments are dicts, which are no keys.
            key = repr((workers, sorted(options.items())))
            if key not in clusters:
                clusters[key] = stack.enter_context(LocalCluster(workers, **options))
            return clusters[key]

        yield cluster
