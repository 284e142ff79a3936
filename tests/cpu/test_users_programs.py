"""A `jax.jit` of the user's compiles as it does without lockstep, also after a strategy has trained."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.cluster import ROOT

_TRAIN = """
import lockstep as ls
import keras, numpy as np
from lockstep._engine.step import backends
with ls.distribute.MirroredStrategy().scope():
    model = keras.Sequential([
        keras.Input((8, 8, 4)), keras.layers.DepthwiseConv2D(3), keras.layers.MaxPooling2D(), keras.layers.Flatten(),
        keras.layers.Dense(1),
    ])
    model.compile("sgd", "mse")
model.fit(np.ones((8, 8, 8, 4), "float32"), np.ones(8, "float32"), batch_size=4, verbose=0)
"""
_PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax

def loss(kernel, x):
    y = lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=4
    )
    return lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").sum()

def step(kernel, x):
    return lax.fori_loop(0, 3, lambda _, k: k - 0.1 * jax.grad(loss)(k, x), kernel)

kernel, x = np.ones((3, 3, 1, 4), "float32"), np.ones((2, 8, 8, 4), "float32")
"""
_OWN = _PROGRAM + "print(jax.jit(step).lower(kernel, x).as_text())"
_REWRITTEN = _PROGRAM + "print(jax.jit(backends.apply_passes('cpu', step)).lower(kernel, x).as_text())"


def _run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_program_of_the_users_lowers_to_the_same_text_with_and_without_lockstep() -> None:
    alone = _run(_OWN)
    assert "select_and_scatter" in alone
    assert _run(_TRAIN + _OWN) == alone


@pytest.mark.slow
def test_one_of_lockstep_does_not() -> None:
    """So the program above is one that there are lowerings for."""
    assert "select_and_scatter" not in _run(_TRAIN + _REWRITTEN)
