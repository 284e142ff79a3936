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

_ADVICE = {
    "TracerBoolConversionError": (
        "a condition of Python (if, while, and, or, not, assert) on a tensor whose value is known only when the "
        "compiled code runs. tf.function converts conditions of the program's own functions; elsewhere write tf.cond, "
        "tf.where, tf.while_loop or tf.logical_and, and in place of assert tf.debugging.assert_*, or compute the "
        "condition outside of the step."
    ),
    "NonConcreteBooleanIndexError": (
        "a mask as an index, by which the shape would depend on values. Write tf.where(mask, x, 0), or multiply by the "
        "mask, or use tf.boolean_mask in a map function of the dataset."
    ),
    "UnexpectedTracerError": (
        "a tensor of compiled code that was kept (in an attribute, a list, a global) and used after it. Return it from "
        "the function, or assign it to a tf.Variable."
    ),
}
_VALUES = (
    "numpy, or a number of Python, of a tensor whose value is known only when the compiled code runs (float(x), "
    "int(x), np.*(x), a size or an axis). Use the tf.* function of the same name, take sizes from x.shape, return the "
    "value from the step, print it with tf.print, or write jax.pure_callback for a function of numpy."
)


def advise(error: BaseException) -> None:
    """Adds to an error of JAX that values are not known yet: what a TensorFlow program writes instead."""
    text = _ADVICE.get(type(error).__name__)
    if text is None and isinstance(error, JAX_ERRORS):
        text = _VALUES
    if text is not None:
        error.add_note(f"In a TensorFlow program this is {text}")
