"""A cluster that the tests of faults share."""

from __future__ import annotations

from tests.support.cluster import shared

pair = shared(2, 2, scope="package")
