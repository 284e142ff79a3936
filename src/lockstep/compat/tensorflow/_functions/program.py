"""A function for one signature: traced to a jaxpr, compiled, and called with variables as its state."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from operator import attrgetter
from sys import getrefcount
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import treedef_is_leaf
from keras.src.backend.common.global_state import get_global_attribute
from keras.src.backend.common.variables import initialize_all_variables

from lockstep._engine.step.jaxprs import constants_of, name_of
from lockstep._nest import flatten
from lockstep._types import Jaxpr, PyTree, Variable
from lockstep.compat.tensorflow._composite import CompositeTensor
from lockstep.compat.tensorflow._functions.arguments import TensorKind
from lockstep.compat.tensorflow._functions.refusals import NotCompilableError
from lockstep.compat.tensorflow._functions.scopes import FunctionScope, evaluate
from lockstep.compat.tensorflow._ops.create import convert_to_tensor
from lockstep.distribute.internal import DistributedValues, Fixed, Scope, is_variable

# Two threads that gave the same variable's buffer away would both lose it. One lock for all programs: they share
# variables, and a dispatch is short.
_lock = threading.RLock()
_value_of = attrgetter("_value")
# Of a variable's value: its own reference, that of a list here, and the argument of getrefcount.
_OWN_REFERENCES = 3
# Each trace may make variables that the next one meets; a function that goes on making some is none.
_MOST_TRACES = 4


class Program:
    """A function for one signature.

    Args:
        function: The function.
        structure: Of its arguments, (args, kwargs).
        kinds: Of each leaf of them: that of a tensor, or a fixed value.

    Attributes:
        kinds: As above.
        structure: As above.
        traces: How many times it was traced.
        is_refused: Whether it cannot be compiled.
        met: The variables, in the order in which the trace met them.
        structured_outputs: Shapes of what it returns, in its structure, once it is traced.
    """

    def __init__(self, function: Callable[..., Any], structure: PyTree, kinds: Sequence[TensorKind | Fixed]) -> None:
        self.kinds = kinds
        self.traces = 0
        self.is_refused = False
        self.met: Sequence[Variable] = ()
        self.structured_outputs: Any = None
        self._function = function
        self.structure = structure
        self._constants: Sequence[Any] = ()
        self._changed: list[Variable] = []
        self._read: list[Variable] = []
        self._compiled: Any = None
        self._recorded: Any = None
        self._results = Results()

    @property
    def variables(self) -> list[Variable]:
        """The variables that it reads or assigns, once it is traced."""
        return [*self._changed, *self._read]

    @property
    def changed(self) -> Sequence[Variable]:
        """Those that it assigns."""
        return self._changed

    @property
    def closed(self) -> Jaxpr:
        """Returns what JAX has traced: it takes arrays, and returns those of results and of variables afterwards."""
        self.prepare()
        return self._closed

    @property
    def lowerable(self) -> tuple[Callable[..., Any], tuple[Any, Any, Any]]:
        """Returns what `jax.jit` made of it, and the shapes of what that takes.

        It takes the values of the variables that it assigns, those of the others, and the arrays. It returns the arrays
        of `structured_outputs`, and the next values of the variables that it assigns.
        """
        self.prepare()
        of = lambda part: [jax.ShapeDtypeStruct(tuple(v.shape), jnp.dtype(v.dtype)) for v in part]  # noqa: E731
        arrays = [kind.struct for kind in self.kinds if isinstance(kind, TensorKind)]
        return self._recorded, (of(self._changed), of(self._read), arrays)

    @property
    def constants(self) -> Sequence[Any]:
        """Arrays that it has from elsewhere, once it is traced."""
        return self._constants

    def prepare(self) -> None:
        """Traces it, unless that was done."""
        if self._compiled is None:
            with _lock:
                self._trace()

    def __call__(self, arrays: Sequence[Any]) -> Any:
        """Computes the function and gives variables their values."""
        with _lock:
            # In C, as far as possible: this is all that a step of a small network does in Python.
            given = list(map(_value_of, self._changed))
            # A value's memory is used for the next one, unless somebody else has the array: `before = v.value()`.
            if sum(map(getrefcount, given)) > _OWN_REFERENCES * len(given):
                given = [v if getrefcount(v) <= _OWN_REFERENCES + 1 else jnp.array(v, copy=True) for v in given]
            found = self._compiled(*given, *map(_value_of, self._read), *arrays)
            for variable, value in zip(self._changed, found, strict=False):
                variable._value = value
        results = self._results
        return found[len(given)] if results.is_tensor else results.filled(found[len(given) :])

    def record(self, arrays: Sequence[Any]) -> Any:
        """Computes the function as one operation for the tapes that are open."""
        given, read = ([Scope.reader(v, v._value) for v in part] for part in (self._changed, self._read))
        outputs, values = self._recorded(given, read, arrays)
        for variable, value in zip(self._changed, values, strict=True):
            variable._value = value
        return self._results.filled(outputs)

    def _trace(self) -> None:
        scope = self._trace_once()
        while self._has_made_variables():
            if self.traces == _MOST_TRACES:
                raise ValueError(
                    "tf.function only supports singleton tf.Variables created on the first call. Make sure the "
                    "tf.Variable is only created once or created outside tf.function: `if self.v is None: self.v = "
                    f"tf.Variable(0.)`. Received: a function that made some in each of {self.traces} traces."
                )
            # As TensorFlow: a second time, in which it meets them as it will in all calls.
            scope = self._trace_once()
        closed, inputs = self._closed, scope.inputs
        self.met = inputs.variables
        self._constants = constants_of(closed)
        self._changed = list(scope.changed.values())
        self._read = [v for v in inputs.variables if id(v) not in scope.changed]
        order = {id(v): i for i, v in enumerate(self.variables)}
        places, count = [order[id(v)] for v in inputs.variables], len(self._results)
        known, changes = len(order), len(self._changed)

        # One argument each: jax.jit dispatches 24 of them 1 to 5 us sooner than when they are in lists.
        def compute(*given: Any) -> tuple[Any, ...]:
            found = evaluate(closed, given[known:], [given[i] for i in places])
            return (*found[count:], *found[:count])

        def compute_grouped(changed: Sequence[Any], read: Sequence[Any], arrays: Sequence[Any]) -> Any:
            found = list(compute(*changed, *read, *arrays))
            return found[changes:], found[:changes]

        compute.__name__ = compute_grouped.__name__ = name_of(self._function)
        self._recorded, self._compiled = jax.jit(compute_grouped), jax.jit(compute, donate_argnums=range(changes))

    def _trace_once(self) -> FunctionScope:
        self.traces += 1
        scopes: list[FunctionScope] = []

        def run(*inputs: Any) -> list[Any]:
            scopes.append(FunctionScope())
            given = iter(inputs)
            leaves = [next(given) if isinstance(kind, TensorKind) else kind.value for kind in self.kinds]
            args, kwargs = self.structure.unflatten(leaves)
            with scopes[-1]:
                returned = self._function(*args, **kwargs)
                self._results = Results.of(returned)
                # A variable that is returned has its last value, which it has in its scope alone.
                arrays = [a.value if is_variable(a) else jnp.asarray(a) for a in self._results.arrays]
            self._results.arrays = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]
            return [*arrays, *scopes[-1].results()]

        try:
            self._closed = jax.make_jaxpr(run)(*(k.struct for k in self.kinds if isinstance(k, TensorKind)))
        except BaseException:
            initialize_all_variables()
            raise
        self.structured_outputs = self._results.filled(self._results.arrays)
        return scopes[-1]

    def _has_made_variables(self) -> bool:
        """Gives new variables their first values; returns whether there were any."""
        has_new = bool(get_global_attribute("uninitialized_variables"))
        initialize_all_variables()
        return has_new

    def describe(self, name: str, verbose: bool) -> str:
        """Returns the signature as text."""
        shown = [
            f"Tensor(shape={kind.shape}, dtype={np.dtype(kind.dtype).name})"
            if isinstance(kind, TensorKind)
            else f"Literal[{kind.value!r}]"
            for kind in self.kinds
        ]
        return f"{name}({', '.join(shown)})" if verbose else name


class Results:
    """Describes what a function returns: arrays, and values that are the same in each call.

    Attributes:
        arrays: The arrays, or their shapes.
        is_tensor: Whether it returns an array alone.
    """

    def __init__(self, structure: Any = None, fixed: Sequence[Any] = (), arrays: Sequence[Any] = ()) -> None:
        self._structure = structure
        self._fixed = fixed
        self.arrays = arrays
        is_leaf = structure is not None and treedef_is_leaf(structure.treedef)
        self.is_tensor = is_leaf and len(arrays) == 1

    def __len__(self) -> int:
        return len(self.arrays)

    @classmethod
    def of(cls, returned: Any) -> Results:
        """Takes apart what a function has returned.

        Raises:
            NotCompilableError: If there is something in it that only the host has.
        """
        leaves, structure = flatten(returned)
        is_array = [_is_array(leaf) for leaf in leaves]
        fixed = [_ARRAY if array else _constant(leaf) for leaf, array in zip(leaves, is_array, strict=True)]
        return cls(structure, fixed, [leaf for leaf, array in zip(leaves, is_array, strict=True) if array])

    def filled(self, arrays: Sequence[Any]) -> Any:
        """Returns the structure with these arrays."""
        found = iter(arrays)
        return self._structure.unflatten([next(found) if leaf is _ARRAY else leaf for leaf in self._fixed])


_ARRAY = object()


def _is_array(leaf: Any) -> bool:
    if isinstance(leaf, (np.ndarray, np.generic)):
        return leaf.dtype.kind not in "OSUMm"
    return isinstance(leaf, jax.Array) or is_variable(leaf)


def _constant(leaf: Any) -> Any:
    if isinstance(leaf, (CompositeTensor, DistributedValues)):
        raise NotCompilableError(f"it returns a {type(leaf).__name__}, which is a value of the host")
    # TensorFlow makes tensors of numbers that a function returns.
    return convert_to_tensor(leaf) if isinstance(leaf, (bool, int, float, complex)) else leaf
