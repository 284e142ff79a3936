"""Runs a function with XLA's own lowerings and with lockstep's, and compares."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import jax
import ml_dtypes
import numpy as np

import lockstep._cpu
from lockstep._cpu.backend import VARIABLE
from lockstep._engine.step import backends

lockstep._cpu.register()

# A sum of n products in another order: within sqrt(n) roundings, n up to some thousands; 16-bit types round once more.
TOLERANCE = {"int32": 0.0, "float64": 1e-12, "float32": 2e-4, "bfloat16": 3e-2, "float16": 4e-3}


@contextmanager
def python_environment(variables: dict[str, str]) -> Generator[None]:
    """Sets variables for Python alone.

    XLA's threads read the C library's environment (`getenv` in `slinky::build_pipeline`, when a program is executed for
    the first time), and crash if it is changed meanwhile: a new variable moves it.
    """
    with mock.patch.object(os, "environ", {**os.environ, **variables}):
        yield


def lowered(f: Callable[..., Any], *args: Any, ours: bool) -> Any:
    """Lowers `f` for the CPU with lockstep's lowerings, or with XLA's own."""
    with python_environment({VARIABLE: "1" if ours else "0"}):
        return jax.jit(backends.apply_passes("cpu", f)).lower(*args)


def both(f: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    """Returns what `f` computes with XLA's own lowerings, and with lockstep's."""
    own, ours = (lowered(f, *args, ours=ours).compile()(*args) for ours in (False, True))
    return own, ours


def assert_same(f: Callable[..., Any], *args: Any, exact: bool = False) -> None:
    """Both ways give the same, within rounding or to the bit; NaN is equal to NaN."""
    own, ours = both(f, *args)
    for expected, found in zip(jax.tree.leaves(own), jax.tree.leaves(ours), strict=True):
        assert expected.dtype == found.dtype and expected.shape == found.shape
        wide = [np.asarray(v, "float64") for v in (expected, found)]
        if exact:
            np.testing.assert_array_equal(*wide[::-1])
            continue
        tolerance = TOLERANCE[expected.dtype.name]
        scale = np.nanmax(np.abs(wide[0]), initial=1e-6, where=np.isfinite(wide[0]))
        np.testing.assert_allclose(*wide[::-1], rtol=tolerance, atol=tolerance * scale)


def differs(f: Callable[..., Any], *args: Any) -> bool:
    """Whether lockstep's lowerings change anything about `f`."""
    return lowered(f, *args, ours=True).as_text() != lowered(f, *args, ours=False).as_text()


def random(shape: tuple[int, ...], dtype: str, seed: int, steps: int = 0) -> np.ndarray:
    """Normal numbers of a type; with `steps`, only so many different ones, so that there are ties."""
    values = np.random.default_rng(seed).standard_normal(shape)
    if steps:
        values = np.round(values * steps / 4) / 4
    return values.astype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
