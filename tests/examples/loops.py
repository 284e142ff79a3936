"""Examples with a loop of their own, on any layout."""

from __future__ import annotations

import os
import runpy
from argparse import Namespace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.support.cluster import ROOT

NAMES = ["jax_optax", "flax_nnx", "equinox_network", "gan", "contrastive"]


def train(strategy: Any, name: str, data: str, batch: int) -> dict[str, np.ndarray]:
    """What an example comes to: its arrays, and the loss after each epoch."""
    arguments = Namespace(epochs=2, batch=batch, rows=None, checkpoint_dir=None)
    jax.config.update("jax_disable_most_optimizations", True)  # What is computed counts here, and not how fast.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCKSTEP_DATA_DIR", str(Path(data)))
        patch.setenv("KERAS_HOME", os.path.join(data, "keras"))
        trained, program = runpy.run_path(str(ROOT / "examples" / f"{name}.py"))["train"](strategy, arguments)
    jax.config.update("jax_disable_most_optimizations", False)
    leaves = [leaf for leaf in jax.tree.leaves(trained) if isinstance(leaf, jax.Array)]
    numbers = [jax.random.key_data(x) if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in leaves]
    assert len(numbers) > 1
    return {
        **{f"array {i}": np.asarray(x) for i, x in enumerate(numbers)},
        **{f"log {k}": np.asarray(v) for k, v in program.history.items()},
    }
