"""Jobs of real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.runtime.jobs import Job


@pytest.fixture
def job(tmp_path: Path, timed_mark: None) -> Iterator[Job]:
    """A job that ends with the test."""
    job = Job(tmp_path)
    yield job
    job.close()
