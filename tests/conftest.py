"""Every test starts from an environment that knows of no cluster, no accelerator settings and no proxy."""

from __future__ import annotations

import os

import pytest

_SCRUBBED = (
    "TF_CONFIG",
    "JAX_",
    "XLA_",
    "KERAS_",
    "LOCKSTEP_",
    "SLURM_",
    "OMPI_",
    "PMIX_",
    "NPROC",
    "RANK",
    "WORLD_SIZE",
)


def is_scrubbed(name: str) -> bool:
    """Whether tests must not see this variable."""
    return name.startswith(_SCRUBBED) or name.lower().endswith("_proxy") or name in ("MASTER_ADDR", "MASTER_PORT")


# Before any test module is imported: importing keras or jax reads some of them.
for _name in [n for n in os.environ if is_scrubbed(n)]:
    del os.environ[_name]

import lockstep  # noqa: E402  Chooses Keras' backend before a test imports it.

# Tests in this process have four devices; what is about processes starts its own.
lockstep.config.set_logical_cpu_devices(4)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undoes what a test does to the environment."""
    for name in [n for n in os.environ if is_scrubbed(n) and n not in ("KERAS_BACKEND", "NPROC")]:
        monkeypatch.delenv(name)
