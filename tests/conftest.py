"""Every test starts from an environment that knows of no cluster, no accelerator settings and no proxy."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

_SCRUBBED = (
    "TF_CONFIG",
    "JAX_",
    "XLA_",
    "KERAS_",
    "LOCKSTEP_",
    "SLURM_",
    "OMPI_",
    "PMIX_",
    "KUBERNETES_",
    "TORCHELASTIC_",
    "JOB_COMPLETION_INDEX",
    "NPROC",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE",
)


def is_scrubbed(name: str) -> bool:
    """Whether tests must not see this variable."""
    return name.startswith(_SCRUBBED) or name.lower().endswith("_proxy") or name in ("MASTER_ADDR", "MASTER_PORT")


# Before any test module is imported: importing keras or jax reads some of them.
for _name in [n for n in os.environ if is_scrubbed(n)]:
    del os.environ[_name]

# A shell that puts the tests into the background has them, and all that they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import lockstep  # noqa: E402  Chooses Keras' backend before a test imports it.

# Tests in this process have four devices; what is about processes starts its own.
lockstep.config.set_logical_cpu_devices(4)


# A property holds however busy the machine is.
settings.register_profile("lockstep", deadline=None)
settings.load_profile("lockstep")


# What the tests set themselves.
_OURS = ("KERAS_BACKEND", "NPROC", "LOCKSTEP_CACHE_DIR")


@pytest.fixture(scope="session", autouse=True)
def compiled_programs(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """Keeps compiled programs for the processes of this session: hundreds compile the same few models.

    Nothing is there at its start, and nothing remains at its end.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCKSTEP_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undoes what a test does to the environment."""
    for name in [n for n in os.environ if is_scrubbed(n) and n not in _OURS]:
        monkeypatch.delenv(name)


# Fast tests first; those of many processes come last. Whatever is not listed comes in between.
_FIRST = ("project", "cluster_resolver", "datasets", "step", "feed", "distribute")
_LAST = (
    *("checkpoint", "estimator/test_two_workers.py", "estimator/test_roles.py", "estimator/test_equivalence.py"),
    *(
        "programs",
        "chaos",
        "runtime",
        "launch",
        "faults",
        "examples",
        "keras/test_two_workers.py",
        "keras/test_equivalence.py",
    ),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--exhaustive`: also the cases that repeat on one more layout what others show."""
    parser.addoption("--exhaustive", action="store_true", help="also cases that repeat others on one more layout")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts the tests in order; within a file and a directory they stay as they are."""
    if not config.getoption("--exhaustive"):
        more = [item for item in items if item.get_closest_marker("exhaustive")]
        config.hook.pytest_deselected(items=more)
        items[:] = [item for item in items if item not in set(more)]
    items.sort(key=_rank)


def pytest_collection_finish() -> None:
    """What has been imported stays: collections of garbage, one with each `clear_session`, pass over it."""
    gc.freeze()


def _rank(item: pytest.Item) -> int:
    path = item.path.relative_to(Path(__file__).parent).as_posix()
    for rank, start in enumerate(_FIRST, -len(_FIRST)):
        if path.startswith(start):
            return rank
    return next((rank for rank, start in enumerate(_LAST, 1) if path.startswith(start)), 0)
