"""What is compiled is kept; what cannot be compiled is left to XLA."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from lockstep._native import compiler
from lockstep._runtime.signed_files import OVERHEAD
from tests.support.cluster import environment
from tests.support.compiler import needs_kernels

_UPDATE = """#define UPDATE_ARRAYS 1
#define UPDATE_NUMBERS 0
#define UPDATE_RESULTS 1
INLINE void update(const float *g, const float *const *in, const float *numbers, float *const *out,
                   long at, long stride, long rows, long columns) {}
"""


@pytest.fixture(autouse=True)
def _asked_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[None]:
    monkeypatch.setenv("LOCKSTEP_CACHE_DIR", str(tmp_path))
    for function in (compiler.library, compiler._command):
        function.cache_clear()
    yield
    for function in (compiler.library, compiler._command):
        function.cache_clear()


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    return tmp_path / "kernels"


@needs_kernels
def test_it_is_compiled_once_and_kept(kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiler.library() is not None
    (kept,) = kernels.iterdir()
    assert kept.suffix == ".so"
    compiler.library.cache_clear()
    monkeypatch.setattr(compiler, "_compile", None)
    assert compiler.library() is not None


@needs_kernels
def test_each_update_is_its_own(kernels: Path) -> None:
    assert compiler.library(_UPDATE) is not None and compiler.library() is not None
    assert len(list(kernels.iterdir())) == 2
    assert compiler.key(_UPDATE) != compiler.key("")


@needs_kernels
def test_an_update_that_does_not_compile_is_left_to_xla(kernels: Path) -> None:
    assert compiler.library("this is no C") is None
    assert list(kernels.iterdir()) == []


@pytest.mark.parametrize("given", ["false", "/nowhere/cc -m32"])
def test_a_compiler_that_fails_or_is_not_there(given: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    os.symlink("/bin/false", tmp_path / "bin" / "false")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("CC", given)
    assert compiler.library() is None


@needs_kernels
def test_nothing_is_loaded_from_where_others_may_write(kernels: Path) -> None:
    kernels.mkdir()
    kernels.chmod(0o777)
    assert compiler.library() is None


_LOADS = """
import lockstep
from lockstep._native import compiler
assert compiler.library() is not None
print("loaded")
"""


def _loads() -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _LOADS], env=environment(), capture_output=True, text=True, check=False, timeout=120
    )


@needs_kernels
@pytest.mark.parametrize("damage", ["half", "empty", "zeros at the end", "one bit", "another library"])
def test_a_damaged_library_is_compiled_again(damage: str, kernels: Path) -> None:
    """A library that was cut short would end the process that loads it, with SIGBUS."""
    assert compiler.library() is not None
    (kept,) = kernels.iterdir()
    content = kept.read_bytes()
    half = len(content) // 2
    kept.write_bytes(
        {
            "half": content[:half],
            "empty": b"",
            "zeros at the end": content[:half] + bytes(len(content) - half),
            "one bit": content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :],
            "another library": content[OVERHEAD:],
        }[damage]
    )
    done = _loads()
    assert (done.returncode, done.stdout) == (0, "loaded\n"), done
    assert done.stderr.count("is damaged, or not this user's; it is compiled again") == 1
    assert _loads().stderr == "", "it was kept again"
    assert [path.name for path in kernels.iterdir()] == [kept.name]


@needs_kernels
def test_a_library_in_use_may_be_cut_short(kernels: Path) -> None:
    """What is mapped is a copy that nobody else has."""
    assert compiler.library() is not None
    (kept,) = kernels.iterdir()
    with open("/proc/self/maps", encoding="utf-8") as maps:
        assert str(kept) not in maps.read()
