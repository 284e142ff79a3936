"""Programs of map functions: a function of one element, run for many elements at once where that is possible.

Also the errors of users' functions by kind, and `numpy_function`, which keeps a function from being traced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from typing import Any

import jax
import keras
import numpy as np
from jax.core import Tracer

from lockstep._nest import unpack
from lockstep._types import ArrayLike, DType, Element, PyTree
from lockstep.data import _columns, _division, _structure
from lockstep.data._batch_rows import BatchRows
from lockstep.data._columns import Columns, Ragged
from lockstep.data._composite import kind_of
from lockstep.data._purity import has_side_effects, loads_value
from lockstep.data._spec import TensorSpec, as_dtype
from lockstep.data._structure import TEXT
from lockstep.data._tracing import (
    NonDeterministicError,
    NotTraceableError,
    TracedFunction,
    VectorizedFunction,
    first_overflow,
    trace,
)
from lockstep.errors import (
    ArgumentError,
    DataNotFoundError,
    InputError,
    InvalidValueError,
    LockstepError,
    UnsupportedError,
)

# What TensorFlow reports as InvalidArgumentError.
_INVALID = (InvalidValueError, ValueError, TypeError, ZeroDivisionError)
# Without the module or the name, or with more memory, the same element would do.
_OF_PROGRAM = (NameError, ImportError, MemoryError)
_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"
# What numpy gives where JAX may give another dtype; int8 is the square of a bool.
_NUMPYS = frozenset(np.dtype(t) for t in (np.float64, np.int64, np.uint64, np.complex128, np.int8))


class InvalidElementError(InputError, ArgumentError):
    """An element has a value that a function refuses, as `tf.debugging` and an integer division by 0 do."""


class MissingElementError(InputError, DataNotFoundError):
    """A function did not find the file that an element names."""


class ProgramError(InputError):
    """A function failed for a reason that lies in the program or the machine, not in the element."""


def wrap_error(error: Exception, message: str) -> Exception:
    """Returns the error to raise for an exception of a user's function, by its kind, with its text after `message`."""
    if isinstance(error, LockstepError) and not isinstance(error, (InvalidValueError, DataNotFoundError)):
        # Wrapped as an InputError, `ignore_errors` would drop it, and train on after a worker is lost.
        return error  # A peer that failed, or a cluster that disagrees: not a matter of the input.
    if isinstance(error, UnsupportedError):
        kind = UnsupportedError
    elif isinstance(error, (ProgramError, *_OF_PROGRAM)) or _OUT_OF_MEMORY in str(error):
        kind = ProgramError
    elif isinstance(error, _INVALID):
        kind = InvalidElementError
    else:
        kind = MissingElementError if isinstance(error, FileNotFoundError) else InputError
    return kind(f"{message}: {type(error).__name__}: {error}")


def is_of_element(error: Exception) -> bool:
    """Returns whether an error is that of an element or a file, which may be left out; not of the program."""
    if isinstance(error, (ProgramError, *_OF_PROGRAM)):
        return False
    # Any exception of a user's function counts: nothing tells an expected ValueError from a mistake.
    return isinstance(error, (InputError, DataNotFoundError)) or not isinstance(error, LockstepError)


class MapProgram:
    """A user's function of one element, and the way to run it.

    Elements of a known shape go through a function that JAX can trace all at once; any others one by one. A function
    that can be traced gives the dtypes that JAX gives, either way. `spec` returns what the elements look like, and
    `example` an element; either returns `None` if that cannot be had without side effects.
    """

    def __init__(self, function: Callable[..., Any], spec: Callable[[], Any], example: Callable[[], Any]) -> None:
        self.function = function
        self._spec = spec
        self._example = example
        self._lock = threading.RLock()
        self._traced: dict[Any, TracedFunction | NonDeterministicError | None] = {}
        # Whether results may lie where their batch will; until a block of them does not.
        self._makes_rows = True

    @cached_property
    def in_order(self) -> bool:
        """Returns whether the function has side effects, or may have some: it is called for each element, in order."""
        # First by the code alone: tracing a function that prints or counts would have that effect once more.
        if has_side_effects(self.function):
            return True
        try:
            if self.vectorized_function is not None:
                return False
            example = self._example()
            # JAX cannot trace what computes with these: nothing shows that the function is pure.
            if any(kind_of(leaf) for leaf in jax.tree.leaves(example)):
                return True
            if example is not None:
                self._trace_for(example)
            # Without an example (looking at one has side effects upstream) nothing shows that the function is pure.
            return example is None
        except NonDeterministicError:
            return True

    @cached_property
    def reads_variables(self) -> bool:
        """Returns whether results depend on variables of Keras, which may change from one element to the next."""
        if self.in_order:
            return False  # Then none is computed before it is asked for, anyway.
        traced = (
            [self.vectorized_function.traced] if self.vectorized_function is not None else list(self._traced.values())
        )
        if any(isinstance(t, TracedFunction) for t in traced):
            return any(isinstance(t, TracedFunction) and t.variables for t in traced)
        return loads_value(self.function, _has_variables)

    @cached_property
    def _element_spec(self) -> Any:
        """Returns the spec of the function's arguments, or `None`."""
        return self._spec()

    @cached_property
    def spec(self) -> Any:
        """Returns the spec of the results, or `None` if only running the function shows it."""
        traced = self.is_vectorized and self.vectorized_function and self.vectorized_function.traced
        return jax.tree.unflatten(traced.structure, traced.specs) if traced else None

    @cached_property
    def vectorized_function(self) -> VectorizedFunction | None:
        """Returns the function for many elements at once, or `None`."""
        spec = self._element_spec
        # XLA compiles for fixed shapes: elements that differ in size go one by one.
        if spec is None or any(
            not isinstance(s, TensorSpec) or s.shape is None or None in s.shape for s in jax.tree.leaves(spec)
        ):
            return None
        with self._lock:
            traced = trace(self.function, spec)
        return VectorizedFunction(traced) if traced else None

    @cached_property
    def is_vectorized(self) -> bool:
        """Returns whether many elements cost little more than one."""
        return not self.in_order and self.vectorized_function is not None

    def __call__(self, columns: Columns, describe: Callable[[int], str]) -> Columns:
        """Maps elements; `describe` says where the i-th of them comes from."""
        # A function with side effects must be called exactly once per element, so never for many.
        many = None if self.in_order else self.vectorized_function
        if many is not None and _matches(columns, self._element_spec):
            self._check_width(many.traced, jax.tree.leaves(columns), describe)
            results, failed = many(columns, _columns.length(columns))
            if failed is not None:
                raise self._wrap_error(_division.division_error(), describe(failed))
            return results
        count = _columns.length(columns)
        # A function with side effects may keep its result, and write to it later.
        rows = BatchRows(count) if self._makes_rows and not self.in_order else None
        builder = _columns.ColumnsBuilder(count, rows)
        division = _division.raise_on_zero_division()
        # Entered once: that takes as long as a small function.
        with division, rows or nullcontext():
            for i, element in enumerate(_columns.elements(columns)):
                division.element = element
                result = self._result_at(element, partial(describe, i))
                try:
                    builder.add(result)
                except ValueError as error:
                    raise self._structure_error(error) from error
        self._makes_rows = builder.is_in_place
        try:
            return builder.columns()
        except ValueError as error:
            raise self._structure_error(error) from error

    def at(self, element: Element, describe: Callable[[], str]) -> Any:
        """Calls the function for one element; `describe` says where it comes from, if it fails."""
        # It may return the same array again for the next element, or one that the program goes on with.
        with _division.raise_on_zero_division(element):
            return _structure.copy_arrays(self._result_at(element, describe))

    def _result_at(self, element: Element, describe: Callable[[], str]) -> Any:
        """Calls the function; returns the result in its own arrays, which are to be copied.

        It is called in a `raise_on_zero_division`: numpy warns and returns 0 where TensorFlow raises.
        """
        try:
            result = _structure.normalize(_structure.call(self.function, _structure.copy_arrays(element)))
            return self._cast_to_jax_types(element, result, describe)
        except Exception as error:
            raise self._wrap_error(error, describe()) from error

    def columns(self, results: list[Any]) -> Columns:
        """Returns results of the function as columns."""
        try:
            return _columns.stack(results)
        except ValueError as error:
            raise self._structure_error(error) from error

    def _structure_error(self, error: ValueError) -> InputError:
        """Returns the error to raise for elements that differ in structure."""
        return InputError(
            f"The function {_structure.name_of(self.function)} must return the same structure for every element. "
            f"{error}. Return the same tuples and dict keys each time."
        )

    def _wrap_error(self, error: Exception, where: str) -> Exception:
        return wrap_error(error, f"The function {_structure.name_of(self.function)} failed at {where}")

    def _check_width(self, traced: TracedFunction, columns: list[Any], describe: Callable[[int], str]) -> None:
        for leaf in traced.reads:
            row = first_overflow(columns[leaf])
            if row is not None:
                raise ProgramError(
                    f"The function {_structure.name_of(self.function)} computes with whole numbers of 64 bits, which "
                    f"JAX computes with in 32. Received: {columns[leaf][row]} at {describe(row)}. Pass such numbers on "
                    "as they are, compute with them before they enter the dataset, or set JAX_ENABLE_X64=1."
                )

    def _cast_to_jax_types(self, element: Element, result: PyTree, describe: Callable[[], str]) -> Any:
        """Casts a result that numpy computed to the dtypes that JAX would have given it."""
        leaves, structure = _structure.flatten(result)
        arguments = _structure.flatten(element)[0]
        values = (*leaves, *arguments)
        # No wide dtype anywhere: numpy and JAX agree, and tracing would only cost time.
        if _NUMPYS.isdisjoint([getattr(value, "dtype", None) for value in values]) or any(map(kind_of, values)):
            return result
        try:
            traced = self._trace_for(element)
        except NonDeterministicError:
            return result
        # A function whose result depends on values, such as by an `if`, has no trace to compare with: numpy's dtypes
        # stay.
        if traced is None or traced.structure != structure:
            return result
        self._check_width(traced, [np.asarray(leaf)[None] for leaf in arguments], lambda _: describe())
        return structure.unflatten(
            [
                leaf if source is not None else leaf.astype(spec.dtype)
                for leaf, source, spec in zip(leaves, traced.sources, traced.specs, strict=True)
            ]
        )

    def _trace_for(self, element: Element) -> TracedFunction | None:
        """Returns the trace for an element's dtypes and ranks; sizes do not matter to dtypes."""
        leaves, structure = jax.tree.flatten(element)
        # By ranks, not sizes: images of many sizes need one trace, which is for dtypes only.
        key = (structure, tuple((getattr(v, "dtype", TEXT), np.ndim(v)) for v in leaves))
        with self._lock:
            if key not in self._traced:
                specs = [TensorSpec(np.shape(v), getattr(v, "dtype", TEXT)) for v in leaves]
                try:
                    self._traced[key] = trace(self.function, structure.unflatten(specs))
                except NonDeterministicError as error:
                    # Kept like a result, so that a function that cannot be traced is tried once per dtype and rank.
                    self._traced[key] = error
            trace_or_error = self._traced[key]
        if isinstance(trace_or_error, NonDeterministicError):
            raise trace_or_error
        return trace_or_error


def _has_variables(value: object) -> bool:
    """Returns whether a value is a variable of Keras, or a layer or a collection that has some."""
    if isinstance(value, keras.Layer):
        return bool(value.variables)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else (value,)
    return any(isinstance(v, keras.Variable) for v in inner)


def _matches(columns: Columns, spec: PyTree) -> bool:
    leaves, expected = jax.tree.leaves(columns), jax.tree.leaves(spec)
    return len(leaves) == len(expected) and all(
        not isinstance(c, Ragged) and c.shape[1:] == s.shape and c.dtype == s.dtype
        for c, s in zip(leaves, expected, strict=True)
    )


def numpy_function(
    func: Callable[..., Any], inp: Sequence[Any], Tout: PyTree, stateful: bool = True, name: str | None = None
) -> Any:
    """Calls `func` with numpy arrays, inside of a map function; the map function is then called for each element.

    Args:
        func: Takes and returns numpy arrays, numbers or text.
        inp: Its arguments.
        Tout: The dtype of its result, or a list of dtypes for several; empty for none.
        stateful: Ignored: `func` is called once per element.
        name: Ignored; accepted for TensorFlow's signature.

    Raises:
        InputError: If the result does not fit `Tout`.

    Source: tf.numpy_function.
    """
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(list(inp))):
        raise NotTraceableError("numpy_function")
    result = func(*[unpack(_structure.normalize(value)) for value in inp])
    # A single dtype means a single result, not a list of one, as in TensorFlow.
    if not isinstance(Tout, (list, tuple)):
        return _cast(result, Tout, func)
    if not Tout:
        return ()
    results = result if isinstance(result, (list, tuple)) else [result]
    if len(results) != len(Tout):
        raise InputError(
            f"The function {_structure.name_of(func)} must return {len(Tout)} values, one for each dtype of Tout. "
            f"Received: {len(results)}."
        )
    return [_cast(r, t, func) for r, t in zip(results, Tout, strict=True)]


def py_function(func: Callable[..., Any], inp: Sequence[Any], Tout: PyTree, name: str | None = None) -> Any:
    """Calls `func` as `numpy_function` does. Source: tf.py_function."""
    return numpy_function(func, inp, Tout)


def _cast(value: ArrayLike, dtype: DType, func: Callable[..., Any]) -> Any:
    wanted = as_dtype(dtype)
    array = _structure.as_array(value)
    if (wanted == TEXT) != (array.dtype == TEXT):
        raise InputError(
            f"The function {_structure.name_of(func)} must return what Tout says, {dtype}. Received: {array.dtype}."
        )
    return array[()] if wanted == TEXT else array.astype(wanted, copy=False)[()]
