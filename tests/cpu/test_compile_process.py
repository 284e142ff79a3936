"""A process of its own compiles programs, and what it compiles is what this process would have."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from lockstep import _cpu
from lockstep._cpu import compile_process, targets
from lockstep._cpu.compile_program import Request
from lockstep._engine.runtime import compile_cache
from lockstep._engine.step import backends
from lockstep._engine.step.compiler import JittedFunction
from lockstep.errors import ArgumentError


@pytest.fixture
def compiled_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """Has all of lockstep's programs count as large, with an empty cache; returns the names of those compiled here."""
    from jax._src import compilation_cache, compiler

    module: Any = compiler
    theirs = module.backend_compile_and_load
    names: list[str] = []

    def compile_and_load(backend: Any, computation: Any, *arguments: Any) -> Any:
        names.append(str(computation.operation.attributes["sym_name"]).strip('"'))
        return theirs(backend, computation, *arguments)

    _cpu.register()
    monkeypatch.setattr(compiler, "backend_compile_and_load", compile_and_load)
    monkeypatch.setattr(compile_process, "_LEAST_BYTES", 0)
    before = compile_cache.directory()
    assert before is not None
    compilation_cache.reset_cache()
    compile_cache.use(str(tmp_path))
    yield names
    compilation_cache.reset_cache()
    compile_cache.use(before)


def _jitted(function: Callable[..., Any]) -> JittedFunction:
    return JittedFunction(backends.apply_passes("cpu", function), "cpu")


def _convolutions(kernels: jax.Array, images: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns what oneDNN computes, and what a loop stacks."""

    def loss(kernels: jax.Array) -> jax.Array:
        convolve = lambda x, kernel: jax.lax.conv_general_dilated(  # noqa: E731
            x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        last, stacked = jax.lax.scan(lambda x, k: (jnp.tanh(convolve(x, k)), x), images, kernels)
        return jnp.sum(last * last) + jnp.sum(stacked)

    return jax.value_and_grad(loss)(kernels)


def _arguments() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    return (
        random.normal(0, 0.1, (2, 3, 3, 32, 32)).astype(np.float32),
        random.random((8, 32, 32, 32), np.float32),
    )


def _flat(results: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(results)]


def test_it_computes_the_same(compiled_here: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    apart = _flat(_jitted(_convolutions)(*_arguments()))
    assert "jit__convolutions" not in compiled_here
    assert len(list(tmp_path.glob("jit__convolutions-*-cache"))) == 1
    for entry in tmp_path.glob("jit__convolutions-*"):
        entry.unlink()
    jax.clear_caches()
    monkeypatch.setenv(compile_process.VARIABLE, "0")
    here = _flat(_jitted(_convolutions)(*_arguments()))
    assert "jit__convolutions" in compiled_here
    for one, other in zip(apart, here, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_program_of_several_devices(compiled_here: list[str]) -> None:
    mesh = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))

    def mean_of_all(x: jax.Array) -> jax.Array:
        return jnp.tanh(x) - jnp.mean(x, 0)

    values = np.arange(32, dtype=np.float32).reshape(8, 4)
    result = _jitted(mean_of_all)(jax.device_put(values, sharding))
    assert "jit_mean_of_all" not in compiled_here
    assert len(result.sharding.device_set) == 4
    np.testing.assert_allclose(result, np.tanh(values) - values.mean(0), rtol=1e-6)


def test_programs_of_others_are_compiled_here(compiled_here: list[str]) -> None:
    def ours(x: jax.Array) -> jax.Array:
        return x * 2

    def theirs(x: jax.Array) -> jax.Array:
        return x * 3

    def fails(x: jax.Array) -> jax.Array:
        raise RuntimeError("of the program's own")

    _jitted(ours)(np.ones(3))
    with pytest.raises(RuntimeError, match="of the program's own"):
        _jitted(fails)(np.ones(3))
    jax.jit(theirs)(np.ones(3))
    assert "jit_theirs" in compiled_here and "jit_ours" not in compiled_here


def test_a_small_program_is_compiled_here(compiled_here: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_process, "_LEAST_BYTES", 25_000)

    def small(x: jax.Array) -> jax.Array:
        return x + 4

    assert _jitted(small)(np.ones(3)).tolist() == [5, 5, 5]
    assert "jit_small" in compiled_here


def test_a_program_that_calls_python_is_compiled_here(compiled_here: list[str]) -> None:
    def calls(x: jax.Array) -> jax.Array:
        return jax.pure_callback(lambda a: np.asarray(a) * 2, jax.ShapeDtypeStruct((3,), np.float32), x)

    assert _jitted(calls)(np.ones(3, np.float32)).tolist() == [2, 2, 2]
    assert "jit_calls" in compiled_here


def test_a_target_that_only_this_process_has(
    compiled_here: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    targets.register("tests_own_target", lambda frame: None)
    monkeypatch.setattr(targets, "names", list)

    def calls_target(x: jax.Array) -> jax.Array:
        return jnp.zeros(3) * jax.ffi.ffi_call("tests_own_target", jax.ShapeDtypeStruct((3,), np.float32))(x)[0]

    with caplog.at_level(logging.DEBUG, "lockstep"):
        _jitted(calls_target)(np.ones(3, np.float32))
    assert "jit_calls_target" in compiled_here
    assert "No FFI handler registered for tests_own_target" in caplog.text


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("exit 3", "ended with 3"),
        ("kill -KILL $$", "ended with -9"),
        ("exec sleep 60", "timed out after 1.0 seconds"),
        ("exit 0", "No such file"),
    ],
)
def test_a_process_that_fails(
    program: str,
    problem: str,
    compiled_here: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("LOCKSTEP_COMPILE_TIMEOUT", "1")

    def unlucky(x: jax.Array) -> jax.Array:
        return x - 1

    with caplog.at_level(logging.DEBUG, "lockstep"):
        assert _jitted(unlucky)(np.ones(3)).tolist() == [0, 0, 0]
    assert "jit_unlucky" in compiled_here and problem in caplog.text


def test_it_has_mallocs_own_settings(
    compiled_here: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    del compiled_here
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "tunables [$GLIBC_TUNABLES]"\nexit 1\n')
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.arena_max=1")
    with caplog.at_level(logging.DEBUG, "lockstep"):
        _jitted(lambda x: x - 3)(np.ones(3))
    assert "tunables []" in caplog.text


def test_it_imports_jaxlib_alone() -> None:
    """A process that imports jax takes four times as long to start, and could take accelerators."""
    check = "import sys, lockstep._cpu.compile_program; sys.exit('jax' in sys.modules or 'keras' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False, timeout=60).returncode == 0


def test_no_process_can_be_started(compiled_here: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))

    def alone(x: jax.Array) -> jax.Array:
        return x - 2

    assert _jitted(alone)(np.ones(3)).tolist() == [-1, -1, -1]
    assert "jit_alone" in compiled_here


def test_it_ends_with_the_process_that_waits(compiled_here: list[str], tmp_path: Path) -> None:
    del compiled_here
    request = Request([0], 4, [], b"", b"no program")
    request.write(tmp_path)
    command = [sys.executable, "-c", compile_process.START, json.dumps(sys.path), str(tmp_path)]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False, timeout=60)
    # Not because there is no such program.
    assert ended.returncode == 1 and ended.stdout == b""


def test_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compile_process.VARIABLE, "no")
    with pytest.raises(ArgumentError, match=r"LOCKSTEP_COMPILE_PROCESS must be 1 .* or 0\. Received: 'no'"):
        compile_process.begin()


@given(
    st.builds(
        Request,
        devices=st.lists(st.integers(0, 1 << 40)),
        device_count=st.integers(-1, 512),
        targets=st.lists(st.text()),
        options=st.binary(),
        code=st.binary(),
    )
)
def test_a_request_is_read_as_it_was_written(request: Request) -> None:
    with tempfile.TemporaryDirectory() as directory:
        request.write(Path(directory))
        assert Request.read(Path(directory)) == request
