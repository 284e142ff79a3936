"""The compiled products as functions of arrays that jax can trace, for float32 on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from lockstep._native import compiler

_FORMS = ("product", "product_with_transposed")

_lock = threading.Lock()
_names: dict[tuple[str, str], str | None] = {}


def are_there() -> bool:
    """Whether products can be compiled on this machine."""
    return all(_registered(form, "") is not None for form in _FORMS)


def product(left: jax.Array, right: jax.Array) -> jax.Array:
    """Of (m, k) and (k, n)."""
    return _called("product", left, right, (left.shape[0], right.shape[1]))


def product_with_transposed(left: jax.Array, right: jax.Array) -> jax.Array:
    """Of (m, k) and the transposed of (n, k)."""
    return _called("product_with_transposed", left, right, (left.shape[0], right.shape[0]))


def can_update(text: str) -> bool:
    """Whether an update can be compiled on this machine."""
    return _registered("updated", text) is not None


def updated(
    text: str,
    left: jax.Array,
    right: jax.Array,
    arrays: Sequence[jax.Array],
    numbers: Sequence[jax.Array],
    results: int,
    replaced: Mapping[int, int],
) -> Sequence[jax.Array]:
    """Updates arrays with the product of a transposed (k, m) and (k, n), a gradient.

    Args:
        text: Says what the update does (`update.py`).
        left: (k, m).
        right: (k, n).
        arrays: (m, n) each.
        numbers: Scalars.
        results: How many there are, (m, n) each.
        replaced: Which results may take the place of which arrays: numbers of results by numbers of arrays.
    """
    shape = jax.ShapeDtypeStruct((left.shape[1], right.shape[1]), left.dtype)
    aliases = {2 + array: result for array, result in replaced.items()}
    call = jax.ffi.ffi_call(_name("updated", text), [shape] * results, input_output_aliases=aliases)
    return call(left, right, *arrays, *numbers)


def _called(form: str, left: jax.Array, right: jax.Array, shape: tuple[int, int]) -> jax.Array:
    return jax.ffi.ffi_call(_name(form, ""), jax.ShapeDtypeStruct(shape, left.dtype))(left, right)


def _name(form: str, update: str) -> str:
    name = _registered(form, update)
    assert name is not None, "asked for before"
    return name


def _registered(form: str, update: str) -> str | None:
    """Under which name XLA knows a function; `None` if it cannot be compiled."""
    with _lock:
        if (form, update) not in _names:
            _names[form, update] = _register(form, update)
        return _names[form, update]


def _register(form: str, update: str) -> str | None:
    found = compiler.library(update)
    if found is None:
        return None
    name: str = f"lockstep_{form}_{compiler.key(update)}"
    function: Any = getattr(found, form)
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(function), platform="cpu")
    return name
