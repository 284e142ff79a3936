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
    if kind in _OF_ONE_PROCESS:
        del os.environ["TF_CONFIG"]
    elif "cuda" in os.environ.get("JAX_PLATFORMS", ""):
        # NCCL refuses two processes of one machine on one GPU: here each has a machine of its own.
        os.environ["NCCL_HOSTID"] = os.environ["TF_CONFIG"]
    strategy = STRATEGIES[kind]()
    gc.freeze()  # Keras collects garbage with each `clear_session`: not among what was imported.
    return strategy


def _with_a_ring() -> ls.distribute.Strategy:
    """Makes the replica view's strategy: lockstep's own ring, in small packs."""
    options = ls.distribute.CommunicationOptions(bytes_per_pack=64, implementation="ring")
    return ls.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def _with_nccl() -> ls.distribute.Strategy:
    options = ls.distribute.CommunicationOptions(implementation="nccl")
    return ls.distribute.MultiWorkerMirroredStrategy(communication_options=options)


_OF_ONE_PROCESS = ("plain", "mirrored")
STRATEGIES: dict[str, Callable[[], ls.distribute.Strategy]] = {
    "plain": ls.distribute.get_strategy,
    "mirrored": ls.distribute.MirroredStrategy,
    "multi": ls.distribute.MultiWorkerMirroredStrategy,
    "ring": _with_a_ring,
    "nccl": _with_nccl,
}
