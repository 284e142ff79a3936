"""The cache of compiled programs: where it may be, who uses it, and that it changes nothing."""

from __future__ import annotations

import json
import logging
import os
import signal
import stat
import textwrap
from pathlib import Path

import pytest

from lockstep._engine.runtime import compile_cache
from lockstep._engine.runtime.compile_cache import UnsafeDirectory, private_directory
from tests.engine.runtime.jobs import Job, Task, addresses

# Prints how many programs came from the cache and how many were compiled for it, then what was computed.
_TRAIN = """
    import json, logging, os, warnings
    warnings.simplefilter("error")
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    import jax
    import lockstep as ls
    import keras
    import numpy as np

    counts = {"cache_hits": 0, "cache_misses": 0}
    def count(event, **_):
        name = event.rpartition("/")[2]
        if name in counts:
            counts[name] += 1
    jax.monitoring.register_event_listener(count)
    strategy = ls.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
    logs = model.fit(np.ones((8, 3)), np.ones((8, 1)), batch_size=4, epochs=2, verbose=0).history
    print(json.dumps({**counts, "loss": logs["loss"], "directory": jax.config.jax_compilation_cache_dir}), flush=True)
"""


def _answer(task: Task) -> dict[str, object]:
    assert task.wait() == 0, task.err
    return json.loads(task.out.splitlines()[-1])


def _entries(directory: Path) -> list[Path]:
    return sorted((directory / "compiled").glob("*-cache"))


def test_the_second_start_compiles_nothing(job: Job, tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = _answer(job.start(_TRAIN, LOCKSTEP_CACHE_DIR="", XDG_CACHE_HOME=str(home)))
    directory = home / "lockstep"
    assert first["cache_misses"] == len(_entries(directory)) > 0
    assert stat.S_IMODE(directory.stat().st_mode) == stat.S_IMODE((directory / "compiled").stat().st_mode) == 0o700
    second = _answer(job.start(_TRAIN, LOCKSTEP_CACHE_DIR=str(directory)))
    assert second == {**first, "cache_hits": first["cache_misses"], "cache_misses": 0}


def test_a_damaged_program_is_compiled_again_once(job: Job, tmp_path: Path) -> None:
    program = _TRAIN.replace('simplefilter("error")', 'simplefilter("always")')
    first = _answer(job.start(program, LOCKSTEP_CACHE_DIR=str(tmp_path / "cache")))
    for i, entry in enumerate(_entries(tmp_path / "cache")):
        content = entry.read_bytes()
        half = len(content) // 2
        damaged = (content[:half], content[:half] + bytes(len(content) - half), b"")
        entry.write_bytes(damaged[i % len(damaged)])
    again = job.start(program, LOCKSTEP_CACHE_DIR=str(tmp_path / "cache"))
    assert _answer(again)["loss"] == first["loss"]
    assert "Error reading persistent compilation cache entry for" in again.err
    third = _answer(job.start(_TRAIN, LOCKSTEP_CACHE_DIR=str(tmp_path / "cache")))
    assert third == {**first, "cache_hits": first["cache_misses"], "cache_misses": 0}


def test_a_process_that_is_killed_leaves_no_part_of_a_program(job: Job, tmp_path: Path) -> None:
    # Killed between the two halves of a program's bytes, as the store writes them.
    killed = """
        import os, signal
        from io import BufferedWriter
        fdopen = os.fdopen

        class Killed(BufferedWriter):
            def write(self, content):
                super().write(content[: len(content) // 2])
                self.flush()
                os.kill(os.getpid(), signal.SIGKILL)

        os.fdopen = lambda handle, mode: Killed(fdopen(handle, mode, buffering=0))
    """
    directory = tmp_path / "cache"
    task = job.start(textwrap.dedent(killed) + textwrap.dedent(_TRAIN), LOCKSTEP_CACHE_DIR=str(directory))
    assert task.wait() == -signal.SIGKILL
    (leftover,) = (directory / "compiled").iterdir()
    os.utime(leftover, (0, 0))
    first = _answer(job.start(_TRAIN, LOCKSTEP_CACHE_DIR=str(directory)))
    assert first["cache_hits"] == 0
    assert first["cache_misses"] == len(_entries(directory)) == len(list((directory / "compiled").iterdir()))


def test_jax_s_own_switch_leaves_it_off(job: Job, tmp_path: Path) -> None:
    off = _answer(job.start(_TRAIN, LOCKSTEP_CACHE_DIR=str(tmp_path / "cache"), JAX_ENABLE_COMPILATION_CACHE="0"))
    assert off["directory"] is None
    assert not (tmp_path / "cache").exists()


def test_no_worker_compiles_at_the_second_start(job: Job, tmp_path: Path) -> None:
    """Figure: see `compile_cache`. JAX alone has the first process write, whose keys the others do not have."""

    def start() -> list[dict[str, object]]:
        workers = addresses(2)
        tasks = [job.start(_TRAIN, workers, i, LOCKSTEP_CACHE_DIR=str(tmp_path / "cache")) for i in range(2)]
        return [_answer(task) for task in tasks]

    first, second = start(), start()
    assert all(int(str(answer["cache_misses"])) > 0 for answer in first)
    assert second == [{**a, "cache_hits": a["cache_misses"], "cache_misses": 0} for a in first]


def test_a_cache_configured_in_jax_is_left_alone(job: Job, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    done = _answer(
        job.start(_TRAIN, JAX_COMPILATION_CACHE_DIR=str(theirs), JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0")
    )
    assert done["directory"] == str(theirs)
    assert len(list(theirs.glob("*-cache"))) == done["cache_misses"]


def test_a_directory_that_others_can_write_is_refused_and_training_goes_on(job: Job, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o770)
    task = job.start(_TRAIN, LOCKSTEP_CACHE_DIR=str(tmp_path / "open"))
    assert _answer(task)["directory"] is None
    assert f"LOCKSTEP_CACHE_DIR={str(tmp_path / 'open')!r} is refused: others may write in" in task.err
    assert not list((tmp_path / "open").glob("*/*"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of this test's caches; it does not exist yet."""
    monkeypatch.setenv("LOCKSTEP_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_new_directory_is_private_whatever_the_mask(cache: Path) -> None:
    before = os.umask(0)
    try:
        found = private_directory("compiled")
    finally:
        os.umask(before)
    assert found == cache.resolve() / "compiled"
    assert [stat.S_IMODE(p.stat().st_mode) for p in (cache, found)] == [0o700, 0o700]
    assert private_directory("compiled") == found


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777, 0o1777])
@pytest.mark.parametrize("which", [".", "compiled"])
def test_directories_that_others_can_write_are_refused(cache: Path, mode: int, which: str) -> None:
    private_directory("compiled")
    (cache / which).chmod(mode)
    with pytest.raises(UnsafeDirectory, match="others may write in"):
        private_directory("compiled")


def test_a_directory_in_which_everybody_may_put_another_is_refused(cache: Path) -> None:
    private_directory("compiled")
    cache.parent.chmod(0o777)
    with pytest.raises(UnsafeDirectory, match="everybody may write in"):
        private_directory("compiled")
    cache.parent.chmod(0o1777)
    assert private_directory("compiled")


@pytest.mark.parametrize("mode", [0o775, 0o777, 0o757])
@pytest.mark.parametrize("above", [1, 2, 3])
def test_a_directory_below_one_that_others_can_write_in_is_refused(
    above: int, mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However far above: whoever can rename what it holds can put another directory in its place."""
    cache = tmp_path / "a" / "b" / "c" / "cache"
    monkeypatch.setenv("LOCKSTEP_CACHE_DIR", str(cache))
    found = private_directory("compiled")
    cache.parents[above - 1].chmod(mode)
    with pytest.raises(UnsafeDirectory, match=r"may write in .*, which holds it \(mode 7[57][57]\)"):
        private_directory("compiled")
    cache.parents[above - 1].chmod(mode | stat.S_ISVTX)
    assert private_directory("compiled") == found


def test_what_is_made_on_the_way_is_private_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_CACHE_DIR", str(tmp_path / "a" / "b"))
    before = os.umask(0)
    try:
        private_directory("compiled")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_links_are_followed_where_nobody_else_can_change_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True, mode=0o700)
    (tmp_path / "links").mkdir(mode=0o700)
    (tmp_path / "links" / "one").symlink_to("../real/deep")
    (tmp_path / "links" / "two").symlink_to(tmp_path / "links" / "one")
    monkeypatch.setenv("LOCKSTEP_CACHE_DIR", str(tmp_path / "links" / "two" / "cache"))
    assert private_directory("compiled") == tmp_path.resolve() / "real" / "deep" / "cache" / "compiled"
    (tmp_path / "links").chmod(0o777)
    with pytest.raises(UnsafeDirectory, match=r"everybody may write in .*links, which holds it"):
        private_directory("compiled")
    (tmp_path / "links").chmod(0o1777)
    assert private_directory("compiled")
    (tmp_path / "links" / "round").symlink_to("round")
    monkeypatch.setenv("LOCKSTEP_CACHE_DIR", str(tmp_path / "links" / "round" / "cache"))
    with pytest.raises(OSError, match="symbolic links"):
        private_directory("compiled")


def test_a_link_of_another_user_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache.parent / "link").symlink_to(cache)
    private_directory("compiled")
    monkeypatch.setenv("LOCKSTEP_CACHE_DIR", str(cache.parent / "link"))
    theirs = os.lstat

    def lstat(path: str | os.PathLike[str]) -> os.stat_result:
        found = theirs(path)
        fields = list(found)
        fields[stat.ST_UID] += os.fspath(path).endswith("link")
        return os.stat_result(fields)

    monkeypatch.setattr(compile_cache.os, "lstat", lstat)
    with pytest.raises(UnsafeDirectory, match="link belongs to another user"):
        private_directory("compiled")


def test_a_directory_of_another_user_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private_directory("compiled")
    monkeypatch.setattr(compile_cache.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UnsafeDirectory, match="belongs to another user"):
        private_directory("compiled")


def test_a_link_in_the_place_of_the_directory_is_refused(cache: Path, tmp_path: Path) -> None:
    cache.mkdir(mode=0o700)
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (cache / "compiled").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeDirectory, match="is not a directory"):
        private_directory("compiled")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"LOCKSTEP_CACHE_DIR": "/own"}, "/own"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/lockstep"),
        ({"XDG_CACHE_HOME": "relative"}, "/home/me/.cache/lockstep"),
        ({}, "/home/me/.cache/lockstep"),
    ],
)
def test_where_caches_are(settings: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOCKSTEP_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/me", **settings}.items():
        monkeypatch.setenv(name, value)
    assert compile_cache.cache_root() == Path(expected)


def test_where_nothing_can_be_written_there_is_no_cache(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache.write_text("a file")
    with caplog.at_level(logging.DEBUG, "lockstep"):
        assert compile_cache._find_directory() is None
    assert "cannot be kept" in caplog.text
    assert all(record.levelno == logging.DEBUG for record in caplog.records)
