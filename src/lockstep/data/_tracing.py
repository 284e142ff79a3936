"""Vectorization of map functions: traced for one element, compiled for many."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import keras
import numpy as np

from lockstep._engine.step.jaxprs import equations, subjaxprs
from lockstep._nest import Packed
from lockstep._types import ArrayLike, Jaxpr, PyTree, PyTreeDef
from lockstep.data import _structure
from lockstep.data._columns import Columns
from lockstep.data._division import divides_by_zero, may_divide_by_zero
from lockstep.data._purity import has_side_effects
from lockstep.data._spec import TensorSpec
from lockstep.data._structure import TEXT


class NotTraceableError(Exception):
    """A function that JAX cannot trace: it must be called for each element."""


class NonDeterministicError(NotTraceableError):
    """A function that computes something else each time, or has side effects: it must be called in order, too."""


class _TextPlaceholder:
    """A placeholder for text while a function is traced: it can be passed through, and nothing else."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise NotTraceableError("text")

    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __bool__ = __hash__ = __len__ = __iter__ = _refuse  # type: ignore[assignment]
    __str__ = __repr__ = __format__ = __getattr__ = __getitem__ = __contains__ = __add__ = __call__ = _refuse  # type: ignore[assignment]
    __array__ = __index__ = __int__ = __float__ = __fspath__ = __bytes__ = _refuse


@dataclass(frozen=True)
class TracedFunction:
    """The trace of a function.

    Attributes:
        compute: Flat pure function of an element's numeric leaves that returns the computed leaves.
        numeric: Which leaves of an element are numeric.
        structure: Of its result.
        sources: For each leaf of the result, the leaf of the element that it is, or `None` if it is computed.
        specs: The specs of the result's leaves.
        reads: Which of the leaves it computes with; others it may pass on.
        identity: Equal for functions that compute the same of the same.
        primitives: The names of JAX's primitives that it consists of, each as often as it occurs.
        portable: Whether the identity is that of the same function in another process, too.
        variables: Keras' variables whose values it reads; `compute` takes the values after the leaves.
        divides: Pure function of the same arguments that returns bool (), whether an integer is divided by 0; `None`
            if that cannot be.
    """

    compute: Callable[..., list[Any]]
    numeric: tuple[int, ...]
    structure: Any
    sources: tuple[int | None, ...]
    specs: tuple[TensorSpec, ...]
    reads: tuple[int, ...]
    identity: str = ""
    primitives: tuple[str, ...] = ()
    portable: bool = False
    variables: tuple[keras.Variable, ...] = ()
    divides: Callable[..., Any] | None = None


def trace(function: Callable[..., Any], spec: PyTree) -> TracedFunction | None:
    """Traces `function` for elements of `spec`, all of whose sizes are known; `None` if that is not possible.

    Raises:
        NonDeterministicError: If it computes something else each time, or has side effects.
    """
    leaves, structure = jax.tree.flatten(spec)
    numeric = tuple(i for i, s in enumerate(leaves) if isinstance(s, TensorSpec) and s.dtype != TEXT)
    # Before anything is called: a trace would print or count once more.
    if has_side_effects(function):
        raise NonDeterministicError("its code has side effects")
    if not numeric:
        return None
    passed_through = _passed_through(function, leaves, structure, numeric)
    call = _FlatFunction(function, structure, len(leaves), numeric, passed_through)
    # JAX's dtypes, so that results have the dtypes that the compiled function will give them.
    shapes = [jax.ShapeDtypeStruct(leaves[i].shape, jax.dtypes.canonicalize_dtype(leaves[i].dtype)) for i in numeric]
    try:
        computed, used, closed_jaxpr = _trace_twice(call, shapes)
    except NonDeterministicError:
        raise
    except Exception as error:  # Whatever it is, calling the function for an element shows it, or succeeds.
        # Keras draws from a variable that the stateless scope does not let it advance.
        if "SeedGenerator" in str(error):  # Keras' random numbers without a seed of their own.
            raise NonDeterministicError("it draws random numbers") from error
        return None
    assert call.sources is not None
    computed_specs = (TensorSpec(result.shape, result.dtype) for result in computed)
    specs = tuple(leaves[s] if s is not None else next(computed_specs) for s in call.sources)
    reads = tuple(numeric[i] for i in used)
    return TracedFunction(
        call.compute,
        numeric,
        call.structure,
        call.sources,
        specs,
        reads,
        identity=_digest(closed_jaxpr, call.structure, call.sources, specs, numeric),
        primitives=tuple(e.primitive.name for e in equations(closed_jaxpr) if not any(subjaxprs(e))),
        # The address of a function of Python, such as a derivative, is of this process alone.
        portable="0x" not in str(closed_jaxpr.jaxpr),
        variables=call.variables,
        divides=(lambda *a: divides_by_zero(closed_jaxpr, a)) if may_divide_by_zero(closed_jaxpr) else None,
    )


def _digest(closed_jaxpr: Jaxpr, *more: Any) -> str:
    """Returns a digest of a function's jaxpr and of the order of its leaves, equal across processes if `portable`."""
    digest = hashlib.sha256(repr([str(closed_jaxpr.jaxpr), *map(str, more)]).encode())
    for constant in map(np.asarray, closed_jaxpr.consts):
        # The text of a jaxpr names its constants, but does not show their values.
        digest.update(f"{constant.dtype}{constant.shape}".encode() + constant.tobytes())
    return digest.hexdigest()


def _passed_through(
    function: Callable[..., Any], leaves: list[Any], structure: PyTreeDef, numeric: tuple[int, ...]
) -> Any:
    """Returns for each result leaf the argument leaf that it is, or `None`, traced with 64-bit dtypes.

    To JAX, a float64 array is a float32 one, and its cast to float32 the same array. `None` if it need not be asked.
    """
    # Nothing is narrowed: the ordinary trace shows what is passed through.
    if all(jax.dtypes.canonicalize_dtype(leaves[i].dtype) == leaves[i].dtype for i in numeric):
        return None
    call = _FlatFunction(function, structure, len(leaves), numeric)
    try:
        with jax.enable_x64(True):
            jax.eval_shape(call.compute, *[jax.ShapeDtypeStruct(leaves[i].shape, leaves[i].dtype) for i in numeric])
    except Exception:  # It may not like them so wide.
        return None
    return call.sources


class _FlatFunction:
    """A function of flat lists of leaves, which records the structure of its result."""

    def __init__(
        self,
        function: Callable[..., Any],
        structure: PyTreeDef,
        count: int,
        numeric: tuple[int, ...],
        passed_on: Any = None,
    ) -> None:
        self._passed_through = passed_on
        self._function = function
        self._structure = structure
        self._count = count
        self._numeric = numeric
        self.structure: Any = None
        self.sources: tuple[int | None, ...] | None = None
        # The variables whose values are arguments; those that were read last, and whether any was changed.
        self.variables: tuple[keras.Variable, ...] = ()
        self.read: tuple[keras.Variable, ...] = ()
        self.has_changed = False

    @property
    def axes(self) -> tuple[int | None, ...]:
        """Returns the axis of each argument along which there are many elements."""
        return (*(0 for _ in self._numeric), *(None for _ in self.variables))

    def compute(self, *arguments: Any) -> list[Any]:
        """Returns the leaves that are computed, not passed on, of numeric leaves and then the variables' values."""
        inputs: list[Any] = [_TextPlaceholder() for _ in range(self._count)]
        for i, leaf in zip(self._numeric, arguments, strict=False):
            inputs[i] = leaf
        with _RecordingScope(zip(self.variables, arguments[len(self._numeric) :], strict=True)) as scope:
            result = _stack_lists(_structure.call(self._function, jax.tree.unflatten(self._structure, inputs)))
        self.read, self.has_changed = tuple(scope.read.values()), scope.has_changed()
        leaves, structure = jax.tree.flatten(result, is_leaf=lambda v: isinstance(v, _TextPlaceholder))
        sources = tuple(next((i for i, g in enumerate(inputs) if g is leaf), None) for leaf in leaves)
        if self._passed_through is not None and len(self._passed_through) == len(sources):
            sources = tuple(s if s == wide else None for s, wide in zip(sources, self._passed_through, strict=True))
        # Compared over all traces, as a result that changes its structure cannot be compiled.
        if self.sources is not None and (sources, structure) != (self.sources, self.structure):
            raise NotTraceableError("its result changes its structure")
        self.sources, self.structure = sources, structure
        return [_as_jax(leaf) for leaf, source in zip(leaves, sources, strict=True) if source is None]


def _trace_twice(call: _FlatFunction, shapes: list[Any]) -> tuple[list[Any], list[int], Any]:
    """Traces twice; a function that is pure leaves the same record, changes no variable and has no effects.

    Returns the shapes of its results, which of its arguments it computes with, and the record.
    """
    closed_jaxpr: Any = None
    records: list[tuple[str, list[Any]]] = []
    computed: list[Any] = []
    used: list[int] = []
    leaves = len(shapes)
    while len(records) < 2:
        # A new function each time, because JAX remembers what it has traced.
        closed_jaxpr, computed = jax.make_jaxpr(lambda *given: call.compute(*given), return_shape=True)(*shapes)
        # jax.debug.print and callbacks are effects: they must happen once per element.
        if call.has_changed or closed_jaxpr.effects:
            raise NonDeterministicError("it changes variables, or has effects")
        if call.read != call.variables:  # Their values are arguments from now on, not constants of the record.
            # The second set of variables: which ones it reads depends on something besides the element.
            if call.variables:
                raise NonDeterministicError("it reads other variables each time")
            call.variables = call.read
            shapes = [*shapes[:leaves], *(jax.ShapeDtypeStruct(v.shape, v.dtype) for v in call.variables)]
            records.clear()
            continue
        inputs = {id(v) for step in closed_jaxpr.jaxpr.eqns for v in step.invars}
        used = [i for i, v in enumerate(closed_jaxpr.jaxpr.invars[:leaves]) if id(v) in inputs]
        records.append((str(closed_jaxpr.jaxpr), [np.asarray(c) for c in closed_jaxpr.consts]))
    (first, constants), (second, others) = records
    if first != second or any(a.tobytes() != b.tobytes() for a, b in zip(constants, others, strict=True)):
        raise NonDeterministicError("it is not the same twice")
    # Some primitives have no batching rule: found here, so that such a function is called for each element.
    many = [jax.ShapeDtypeStruct((2, *s.shape) if i < leaves else s.shape, s.dtype) for i, s in enumerate(shapes)]
    jax.eval_shape(jax.vmap(call.compute, in_axes=call.axes, out_axes=0), *many)
    return computed, used, closed_jaxpr


class _RecordingScope(keras.StatelessScope):
    """A stateless scope in which Keras' variables have given values; records which are read, and assigned to."""

    def __init__(self, values: Iterable[tuple[keras.Variable, Any]]) -> None:
        super().__init__(state_mapping=list(values))
        self._given = dict(self.state_mapping)
        self.read: dict[int, keras.Variable] = {}

    def get_current_value(self, variable: keras.Variable) -> Any:
        """Returns a variable's value, and remembers that it was read."""
        self.read[id(variable)] = variable
        return super().get_current_value(variable)

    def has_changed(self) -> bool:
        """Returns whether a variable was assigned to."""
        return any(self._given.get(key) is not value for key, value in self.state_mapping.items())


def _stack_lists(value: PyTree) -> Any:
    """Stacks lists to arrays, as in elements."""
    if isinstance(value, list):
        return jax.numpy.stack([_as_jax(v) for v in value])
    if _structure.is_named_tuple(value):
        return type(value)(*map(_stack_lists, value))
    if isinstance(value, tuple):
        return tuple(map(_stack_lists, value))
    if isinstance(value, Mapping):
        return Packed.like(value, map(_stack_lists, value.values()))
    return value


def _as_jax(leaf: ArrayLike) -> Any:
    if isinstance(leaf, (str, bytes)) or hasattr(leaf, "element_spec"):
        raise NotTraceableError("its result holds text or datasets")
    if isinstance(leaf, (np.ndarray, np.generic)) and first_overflow(np.atleast_1d(leaf)) is not None:
        raise NotTraceableError("its result holds whole numbers that JAX cannot")
    return jax.numpy.asarray(_structure.as_array(leaf) if isinstance(leaf, (int, float, np.ndarray)) else leaf)


def first_overflow(column: np.ndarray[Any, Any]) -> int | None:
    """Returns the first row with a whole number that JAX's dtype for the column has no room for, or `None`."""
    dtype = jax.dtypes.canonicalize_dtype(column.dtype)
    # JAX would wrap such integers without a word. Floats are rounded, as numpy's float32 would be.
    if column.dtype.kind not in "iu" or dtype == column.dtype or column.size == 0:
        return None
    limits = np.iinfo(dtype)
    if column.min() >= limits.min and column.max() <= limits.max:
        return None
    rows = ((column < limits.min) | (column > limits.max)).reshape(len(column), -1).any(axis=1)
    return int(np.flatnonzero(rows)[0])


@functools.cache
def cpu_device() -> Any:
    """Returns the device on which elements are computed: the first CPU, where JAX has not been told to ignore it."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return jax.local_devices()[0]


class VectorizedFunction:
    """A traced function, compiled for many elements at once.

    Variables are read each time, so that an element is computed with the values of that moment.

    Blocks are filled up to a power of two, so that few sizes are compiled, and an element's result does not depend on
    which others are computed with it.
    """

    def __init__(self, traced: TracedFunction) -> None:
        self.traced = traced
        axes = (*(0 for _ in traced.numeric), *(None for _ in traced.variables))
        self._run = jax.jit(jax.vmap(self._compute, in_axes=axes))

    @functools.cached_property
    def is_pure(self) -> bool:
        """Returns whether results depend on elements alone and none can fail: another function may contain it."""
        return not self.traced.variables and self.traced.divides is None

    def _compute(self, *arguments: Any) -> tuple[list[Any], Any]:
        divides = self.traced.divides
        return self.traced.compute(*arguments), None if divides is None else divides(*arguments)

    def __call__(self, columns: Columns, count: int) -> tuple[Any, int | None]:
        """Maps columns of `count` rows; returns the columns, and the first row that divides an integer by 0, if any."""
        leaves = jax.tree.leaves(columns)
        # A power of two: at most log2(largest block) programs are compiled, also for the last batch.
        size = 1 << (count - 1).bit_length()
        # Nothing is computed, as by lambda x, y: (y, x): columns are passed through without JAX.
        if None not in self.traced.sources:
            return self._assemble(leaves, []), None
        # On each call, so that an element is computed with the values of that moment.
        values = [np.asarray(variable.value) for variable in self.traced.variables]
        # Map functions run on the host, beside the step; on a GPU they would queue behind it.
        with jax.default_device(cpu_device()):
            results, divides = self._run(*[_pad_rows(leaves[i], size) for i in self.traced.numeric], *values)
        failed = None if divides is None else np.flatnonzero(np.asarray(divides)[:count])
        columns = self._assemble(leaves, [np.asarray(r)[:count] for r in results])
        return columns, int(failed[0]) if failed is not None and len(failed) else None

    def inline(self, columns: Columns) -> Any:
        """Maps columns of JAX arrays, as a part of another traced function; only if `is_pure`."""
        leaves = jax.tree.leaves(columns)
        return self._assemble(leaves, jax.vmap(self.traced.compute)(*[leaves[i] for i in self.traced.numeric]))

    def _assemble(self, leaves: list[Any], computed: list[Any]) -> Any:
        """Returns the results: leaves that are passed on, and computed ones."""
        rest = iter(computed)
        results = [leaves[s] if s is not None else next(rest) for s in self.traced.sources]
        return jax.tree.unflatten(self.traced.structure, results)


def _pad_rows(column: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    column = column.astype(jax.dtypes.canonicalize_dtype(column.dtype), copy=False)
    missing = size - len(column)
    # Filled with the last row, not zeros: a division by 0 of a filling row must not be an error.
    return column if missing == 0 else np.concatenate([column, np.repeat(column[-1:], missing, axis=0)])
