"""Jobs of real processes, as the tests of the runtime start them."""

from __future__ import annotations

from tests.engine.runtime.conftest import job

__all__ = ["job"]
