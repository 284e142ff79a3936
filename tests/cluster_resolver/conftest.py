from __future__ import annotations

import os
from collections.abc import Iterator
from unittest import mock

import pytest

_PREFIXES = ("TF_CONFIG", "SLURM", "OMPI_", "PMIX_", "TORCHELASTIC_", "MASTER_", "CUDA_", "LOCKSTEP_", "KUBERNETES_")
_NAMES = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"),
    *("JOB_COMPLETION_INDEX", "ENVIRONMENT"),
)


@pytest.fixture(autouse=True)
def no_launcher() -> Iterator[None]:
    """An environment in which no launcher has set anything, restored afterwards whatever a resolver sets."""
    with mock.patch.dict(os.environ):
        for name in list(os.environ):
            if name.startswith(_PREFIXES) or name in _NAMES:
                del os.environ[name]
        yield
