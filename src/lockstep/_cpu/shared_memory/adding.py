"""Adds up what all processes have written, in their order, so that all get the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# What is added up at a time stays in the cache of a core: 64 KB of float32.
_BLOCK = 16384


def add(terms: Sequence[Array], out: Array) -> None:
    """Writes the sum of `terms`, in their order, to `out`, which may be one of them only if there are two.

    Terms of type bfloat16 may have a sum of type float32.
    """
    if terms[0].dtype != out.dtype:
        _add_in_float32(terms, out)
    elif len(terms) == 1:
        np.copyto(out, terms[0])
    elif _is_narrow(out.dtype):
        _add_wide(terms, out)
    elif len(terms) == 2:
        np.add(terms[0], terms[1], out=out)
    else:
        _add_blocks(terms, out)


def _is_narrow(dtype: np.dtype[Any]) -> bool:
    """Whether sums of such floats are taken in float32, and rounded once."""
    return dtype.itemsize == 2 and dtype.kind not in "iu"


def _add_blocks(terms: Sequence[Array], out: Array) -> None:
    for start in range(0, out.size, _BLOCK):
        rows = slice(start, start + _BLOCK)
        block = out[rows]
        np.add(terms[0][rows], terms[1][rows], out=block)
        for term in terms[2:]:
            np.add(block, term[rows], out=block)


def _add_in_float32(terms: Sequence[Array], out: Array) -> None:
    scratch = np.empty(min(_BLOCK, out.size), np.float32)
    for start in range(0, out.size, _BLOCK):
        block = out[start : start + _BLOCK]
        _widen(terms[0][start : start + _BLOCK], block)
        more = scratch[: block.size]
        for term in terms[1:]:
            _widen(term[start : start + _BLOCK], more)
            np.add(block, more, out=block)


def _widen(narrow: Array, wide: Array) -> None:
    """Writes bfloat16 numbers as float32: their bits are the upper half. It takes a third of the time of `astype`."""
    bits = wide.view(np.uint32)
    np.copyto(bits, narrow.view(np.uint16))
    np.left_shift(bits, 16, out=bits)


def _add_wide(terms: Sequence[Array], out: Array) -> None:
    for start in range(0, out.size, _BLOCK):
        rows = slice(start, start + _BLOCK)
        total = terms[0][rows].astype(np.float32)
        for term in terms[1:]:
            total += term[rows].astype(np.float32)
        out[rows] = total.astype(out.dtype)
