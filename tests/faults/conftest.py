"""A cluster that the tests of faults share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster


@pytest.fixture(scope="package")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers of two devices each."""
    cluster = Cluster(2, 2, tmp_path_factory.mktemp("pair"))
    yield cluster
    cluster.close()
