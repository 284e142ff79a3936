"""Errors by which a function shows that it cannot be compiled, and advice for those that JAX raises."""

from __future__ import annotations

import os
import traceback

import jax
import keras
import numpy as np

import lockstep
from lockstep.errors import UnsupportedError

_LIBRARIES = tuple(os.path.dirname(str(m.__file__)) + os.sep for m in (jax, np, keras, lockstep))
# JAX has no class of its own for these; the text is all there is to go by.
_TEXTS = (
    "not a valid JAX",
    "Reverse-mode differentiation does not work",
    "not a valid dtype",
    "object arrays are not supported",
    "TracerArrayConversion",
)


class NotCompilableError(UnsupportedError):
    """Says why a function cannot be compiled, which its caller then calls as it is."""


def cannot_compile(error: BaseException) -> bool:
    """Returns whether an error comes from compiling, so that the function may run without being compiled.

    Values that are asked for while JAX traces; text and objects; data sets, strategies and Python functions, which
    belong to the host. An error of the program's own is none of these.
    """
    if isinstance(error, (UnsupportedError, *JAX_ERRORS)):
        return True
    if not isinstance(error, (TypeError, ValueError)) or not any(text in str(error) for text in _TEXTS):
        return False
    # A program may say so of its own values: then it is its error.
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return bool(last) and last[0].filename.startswith(_LIBRARIES)


JAX_ERRORS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)
