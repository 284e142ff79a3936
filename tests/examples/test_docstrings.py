"""Examples in docstrings run."""

from __future__ import annotations

import ast
import doctest
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.support.cluster import ROOT, environment

pytestmark = pytest.mark.cluster

# What examples take as given, by names that say what it is.
GIVEN = """
import tempfile, os
import lockstep as ls
import jax, jax.numpy as jnp, keras, numpy as np

os.chdir(tempfile.mkdtemp())
strategy = ls.distribute.MirroredStrategy()

def build():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model

with strategy.scope():
    model = build()
x, y = np.ones((8, 3), "float32"), np.ones((8, 1), "float32")
dataset = ls.data.Dataset.from_tensor_slices(x).batch(4)
params, kernel, images, key = jnp.zeros(3), np.ones((3, 1)), x, jax.random.key(0)

def loss_fn(params, batch):
    return jnp.mean((batch @ params - 1.0) ** 2)

def train_step(batch):
    return jnp.mean(batch)

def write_to_database(epoch, logs):
    print(epoch, logs)
"""


@cache
def _examples() -> Sequence[str]:
    """Returns the code of each docstring with examples; read once and only where a test asks for it."""
    found: list[str] = []
    for path in sorted((ROOT / "src" / "lockstep").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ">>>" in (text := ast.get_docstring(node) or ""):
                code = "".join(example.source for example in doctest.DocTestParser().get_examples(text))
                found.append(f"from {module} import {node.name}\n{code}")
    return found


def _run(code: str, directory: Path) -> None:
    program = directory / "program.py"
    program.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)], cwd=directory, env=environment(), capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_examples_of_docstrings_run(tmp_path: Path) -> None:
    codes = [code for code in _examples() if "ls.launch(" not in code]
    assert len(codes) >= 9
    _run("\n".join([GIVEN, *codes]), tmp_path)


def test_the_example_that_starts_workers_runs(tmp_path: Path) -> None:
    (code,) = [code for code in _examples() if "ls.launch(" in code]
    _run(GIVEN + code, tmp_path)
