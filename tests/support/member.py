"""Runs the cases of a test in a process of its cluster, with one strategy for all of them."""

from __future__ import annotations

import functools
import gc
import importlib
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import lockstep as ls


def run(kind: str, case: str, arguments: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Runs `module:function` with this process' strategy."""
    module, name = case.split(":")
    strategy = _strategy(kind)
    function: Callable[..., dict[str, Any]] = getattr(importlib.import_module(module), name)
    return {name: np.asarray(value) for name, value in function(strategy, **arguments).items()}


@functools.cache
def _strategy(kind: str) -> ls.distribute.Strategy:
    warnings.simplefilter("error")
    # Keras' own, with numpy 2: Variable.__array__ lacks an argument.
    warnings.filterwarnings("ignore", "__array__ implementation doesn't accept", DeprecationWarning)
    if kind != "multi":
        del os.environ["TF_CONFIG"]
    strategy = _STRATEGIES[kind]()
    gc.freeze()  # Keras collects garbage with each `clear_session`: not among what was imported.
    return strategy


_STRATEGIES: dict[str, Callable[[], Any]] = {
    "plain": ls.distribute.get_strategy,
    "mirrored": ls.distribute.MirroredStrategy,
    "multi": ls.distribute.MultiWorkerMirroredStrategy,
}
