"""Every test starts from an environment that knows of no cluster, no accelerator settings and no proxy."""

from __future__ import annotations

import gc
import os
import signal
import stat
import tempfile
from importlib.metadata import version
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
from lockstep._engine.runtime import compile_cache  # noqa: E402

# Tests in this process have four devices; what is about processes starts its own.
lockstep.config.set_logical_cpu_devices(4)


# How many examples a property gets: --hypothesis-profile=full. The quick ones are the same in every run, so that who
# changes a file sees what that change does; the full ones are new in every run. A property holds however busy the
# machine is.
settings.register_profile("quick", max_examples=8, derandomize=True, deadline=None)
settings.register_profile("full", max_examples=25, deadline=None)
settings.load_profile("quick")


# What the tests set themselves.
_OURS = ("KERAS_BACKEND", "NPROC", "LOCKSTEP_CACHE_DIR")
_CACHE = Path(__file__).resolve().parents[1] / ".venv" / "cache"


def _is_private(path: Path) -> bool:
    modes = [parent.stat().st_mode if parent.is_dir() else 0o777 for parent in path.parents]
    return not any(mode & 0o022 and not mode & stat.S_ISVTX for mode in modes)


@pytest.fixture(scope="session")
def cluster_mark() -> None:
    """Marks who asks for it as `cluster`: a fixture that starts processes does."""


@pytest.fixture(scope="session")
def timed_mark() -> None:
    """Marks who asks for it as `timed`: a fixture whose processes are awaited with a limit does."""


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undoes what a test does to the environment."""
    for name in [n for n in os.environ if is_scrubbed(n) and n not in _OURS]:
        monkeypatch.delenv(name)


def pytest_configure(config: pytest.Config) -> None:
    """Keeps compiled programs for this process and all that it starts: hundreds compile the same few models.

    They stay in .venv, so that the next session has them too: `make clean` removes them. jax has its version in the
    keys of its programs; a directory for each version is one that can be deleted. Where others may write in the
    checkout lockstep would keep nothing in it: programs are code.
    """
    directory = _CACHE
    if not _is_private(directory):
        temporary = tempfile.TemporaryDirectory(prefix="lockstep-cache-")
        config.add_cleanup(temporary.cleanup)
        directory = Path(temporary.name)
    # Here, not in a fixture: some modules train while they are imported, and fixtures compile before a test trains.
    os.environ["LOCKSTEP_CACHE_DIR"] = str(directory / f"jax-{version('jax')}")
    compile_cache.enable(0)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--exhaustive`: also the cases that repeat on one more layout what others show."""
    parser.addoption("--exhaustive", action="store_true", help="also cases that repeat others on one more layout")


@pytest.hookimpl(tryfirst=True)  # Before -m chooses by the marks.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the tests whose fixtures start processes, and puts those after the others."""
    if not config.getoption("--exhaustive"):
        more = [item for item in items if item.get_closest_marker("exhaustive")]
        config.hook.pytest_deselected(items=more)
        items[:] = [item for item in items if item not in set(more)]
    for item in items:
        for fixture, mark in (("cluster_mark", "cluster"), ("timed_mark", "timed")):
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(mark)
    items.sort(key=_rank)


def pytest_collection_finish() -> None:
    """What has been imported stays: collections of garbage, one with each `clear_session`, pass over it."""
    gc.freeze()


# From fast to slow; what has no such mark comes first, after the processes of `quick`: they leave time to others.
_ORDER = ("slow", "cluster", "timed", "alone")


def _rank(item: pytest.Item) -> int:
    if item.get_closest_marker("quick"):
        return -1
    return max((i for i, mark in enumerate(_ORDER, 1) if item.get_closest_marker(mark)), default=0)
