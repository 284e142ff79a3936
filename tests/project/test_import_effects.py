"""The import of lockstep chooses Keras' backend, and changes nothing else in the process."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import environment

_PROGRAM = Path(__file__).with_name("process_state.py")
# All but `compat`, whose tensors and Keras are TensorFlow's.
_PARTS = (
    "from lockstep import (callbacks, checkpoint, cluster_resolver, config, data, datasets, distribute, errors, "
    "estimator, function, random, saved_model, summary, testing, training)"
)
_KINDS = (
    *("finders", "path hooks", "sys", "threads", "atexit", "signals", "wakeup", "environment", "gc", "malloc"),
    *("classes", "functions", "lowerings", "jax", "backend", "platforms"),
)


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    own = {
        name: value
        for name, value in environment(has_packages=True, **env).items()
        if value and not name.startswith("PYTEST_")
    }
    return subprocess.run(
        [sys.executable, *arguments], env=own, capture_output=True, text=True, timeout=120, check=False
    )


@cache
def state(statements: str, backend: str = "") -> dict[str, Any]:
    """Returns the state of a process after `statements` and the import of Keras."""
    done = run(str(_PROGRAM), statements, KERAS_BACKEND=backend)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("statement", ["import lockstep", _PARTS], ids=["lockstep", "all parts"])
@pytest.mark.parametrize("kind", _KINDS)
def test_the_process_is_as_without_lockstep(kind: str, statement: str) -> None:
    without = state("pass", "jax")
    assert without.keys() == {*_KINDS, "modules"}
    if kind == "finders" and statement == _PARTS:  # These import Keras themselves, so its finder is there earlier.
        assert state(statement)[kind][1] == without[kind][1]
    else:
        assert state(statement)[kind] == without[kind]


@pytest.mark.parametrize("statement", ["import lockstep", _PARTS], ids=["lockstep", "all parts"])
def test_other_modules_are_themselves(statement: str) -> None:
    found = state(statement)["modules"]
    without = state("pass", "jax")["modules"]
    assert {name: found.get(name) for name in without} == without


def choice(program: str, **env: str) -> subprocess.CompletedProcess[str]:
    return run("-c", f"{program}\nimport keras\nprint(keras.config.backend())", **env)


@pytest.mark.parametrize(
    ("program", "asked"),
    [("import lockstep", ""), ("import lockstep", "jax"), ("import keras, lockstep", "jax")],
    ids=["nothing asked for", "jax asked for", "after keras with jax"],
)
def test_keras_runs_on_jax(program: str, asked: str) -> None:
    done = choice(program, KERAS_BACKEND=asked)
    assert (done.returncode, done.stdout) == (0, "jax\n"), done.stderr


def test_what_keras_wrote_itself_is_no_choice(tmp_path: Path) -> None:
    """Its first import leaves a file with its default."""
    (tmp_path / "keras.json").write_text('{"backend": "tensorflow"}')
    done = choice("import lockstep", KERAS_HOME=str(tmp_path), KERAS_BACKEND="")
    assert (done.returncode, done.stdout) == (0, "jax\n"), done.stderr


def test_another_backend_in_the_environment_is_refused() -> None:
    done = choice("import lockstep", KERAS_BACKEND="tensorflow")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-2] == (
        "lockstep.errors.ArgumentError: lockstep trains on Keras' JAX backend: KERAS_BACKEND must be jax, or not set. "
        "Received: 'tensorflow'. Remove it (`unset KERAS_BACKEND`, or the line of the program that sets it)."
    )


@pytest.mark.parametrize(
    ("asked", "cause"), [("numpy", "KERAS_BACKEND is 'numpy'"), ("", "KERAS_BACKEND is not set")], ids=["asked", "file"]
)
def test_keras_with_another_backend_before_lockstep_is_refused(asked: str, cause: str, tmp_path: Path) -> None:
    (tmp_path / "keras.json").write_text('{"backend": "numpy"}')
    done = choice("import keras\nimport lockstep", KERAS_BACKEND=asked, KERAS_HOME=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-2] == (
        "lockstep.errors.StartupOrderError: lockstep trains on Keras' JAX backend. Received: Keras, already imported, "
        f"with 'numpy' ({cause}). Put `import lockstep` above `import keras`, and leave KERAS_BACKEND out; or set "
        "KERAS_BACKEND=jax."
    )
