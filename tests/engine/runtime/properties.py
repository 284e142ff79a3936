"""How properties are tested: the same examples in every run, however busy the machine is."""

from __future__ import annotations

from hypothesis import settings

steady = settings(deadline=None, derandomize=True, database=None)
