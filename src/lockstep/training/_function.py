"""`lockstep.function`: a function compiled by JAX, called as one of `tf.function` is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from lockstep import _nest as nest
from lockstep._nest import map_structure
from lockstep._types import ArrayLike, PyTreeDef, Variable
from lockstep.distribute.internal import DistributedValues, Fixed, is_variable
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.training._program_step import NoUpdates

_Function = TypeVar("_Function", bound=Callable[..., Any])
_RULE = "A lockstep.function returns what it computes, and changes nothing else. Received: one that"
_NOT_HERE = "It is for TensorFlow's graphs, of which there are none. Leave it out."


def function(
    func: Any = None,
    input_signature: Sequence[Any] | None = None,
    *,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
    **others: Any,
) -> Any:
    """Compiles a function with `jax.jit`: once for each structure, shapes and types of its arguments.

    Arguments are pytrees. Arrays in them are what the compiled function takes; everything else (Python's numbers, text,
    functions, `None`) is static: the function is compiled for each value of it, and may use it in Python's conditions.
    The same holds for what it returns. Keras variables that it reads are read anew in each call; one that it returns
    comes back as an array, with the value of that call. A function that is given values of several replicas runs as it
    is: what it calls compiles by itself, as `strategy.run` does.

    Args:
        func: The function, which must be pure. Without it, a decorator is returned.
        input_signature: A specification for each positional argument: something with `shape`, in which `None` stands
            for any length, and `dtype`, such as `lockstep.data.TensorSpec`. Arguments that do not fit are refused.
        jit_compile: `False`: it runs as it is, operation by operation, for debugging.
        reduce_retracing: Python's numbers (no booleans) are arrays, too: one program serves all of them.
        **others: Anything else that tf.function takes is refused.

    Raises:
        ArgumentError: If an argument is not as described; when it is called: if its arguments do not fit the signature,
            or are not hashable where they are static, or the function assigns to a Keras variable.
        UnsupportedError: For any other argument of tf.function.

    Examples:
        >>> @function
        ... def power(x, exponent):
        ...     return x ** exponent if exponent else 1.0

    Source: tf.function.
    """
    if others:
        name, value = next(iter(others.items()))
        raise UnsupportedError(f"lockstep.function takes no {name}. Received: {name}={value!r:.60}. {_NOT_HERE}")
    for name, flag in (("jit_compile", jit_compile), ("reduce_retracing", reduce_retracing)):
        if flag is not None and type(flag) is not bool:
            raise ArgumentError(f"{name} is True or False. Received: {flag!r}.")
    signature = None if input_signature is None else tuple(input_signature)
    for spec in signature or ():
        if not hasattr(spec, "shape") or not hasattr(spec, "dtype"):
            raise ArgumentError(
                "input_signature has a specification with shape and dtype for each argument. Received: "
                f"{spec!r:.80}. Example: [lockstep.data.TensorSpec((None, 3), 'float32')]"
            )
    if func is None:
        return lambda f: function(f, input_signature, jit_compile=jit_compile, reduce_retracing=reduce_retracing)
    if not callable(func):
        raise ArgumentError(f"lockstep.function compiles functions. Received: {type(func).__name__}.")
    return Function(func, signature, jit_compile is not False, reduce_retracing)


class Function:
    """Calls the compiled programs of a function; returned by `lockstep.function`."""

    def __init__(
        self, python_function: Callable[..., Any], signature: tuple[Any, ...] | None, compiles: bool, widens: bool
    ) -> None:
        functools.update_wrapper(self, python_function)
        self.python_function = python_function
        self.input_signature = signature
        self._compiles = compiles
        self._widens = widens
        self._programs: dict[Hashable, _Program] = {}

    def __get__(self, instance: object, owner: Any = None) -> Any:
        """Binds a method; each instance has a program of its own, for it is static."""
        if instance is None:
            return self
        name = f"_lockstep_function_{self.python_function.__name__}"
        found = vars(instance).get(name) if hasattr(instance, "__dict__") else None
        if found is None:
            # Kept on the instance, so that it is compiled once, and goes with it.
            bound = self.python_function.__get__(instance, owner)
            found = Function(bound, self.input_signature, self._compiles, self._widens)
            if hasattr(instance, "__dict__"):
                vars(instance)[name] = found
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the compiled function."""
        if self.input_signature is not None:
            _check_signature(self.input_signature, args, kwargs)
        leaves, structure = jax.tree.flatten((args, kwargs), is_leaf=_is_distributed)
        # jax.jit takes no values of several replicas; what the function calls compiles by itself.
        if not self._compiles or any(map(_is_distributed, leaves)):
            return map_structure(_read, self.python_function(*args, **kwargs), is_leaf=_is_distributed)
        is_array = tuple(_is_array(leaf, self._widens) for leaf in leaves)
        # `Fixed` compares types, too: 1, 1.0 and True are one key to a dict, and three programs here.
        static = tuple(Fixed(leaf) for leaf, array in zip(leaves, is_array, strict=True) if not array)
        # Before anything hashes the key: here it is still known which argument a value belongs to.
        for path, leaf in jax.tree_util.tree_flatten_with_path((args, kwargs))[0]:
            try:
                hash(leaf if not _is_array(leaf) else None)
            except TypeError:
                raise ArgumentError(
                    "What is no array is static in a lockstep.function, and must be hashable. Received: a "
                    f"{type(leaf).__name__} at {jax.tree_util.keystr(path)}. Pass arrays, or what can be hashed."
                ) from None
        key: Hashable = (structure, is_array, static)
        if key not in self._programs:
            # The key has jax's structure, in which keys of dicts are sorted; the function sees them in the order of the
            # first call, as one of `tf.function` does.
            kept = nest.structure((args, kwargs))
            self._programs[key] = _Program(self.python_function, kept, is_array, static)
        return self._programs[key]([v for v, array in zip(leaves, is_array, strict=True) if array])


class _Program:
    """Compiles a function for one structure of arguments; the Keras variables that it reads are arguments, too."""

    def __init__(
        self, function: Callable[..., Any], structure: PyTreeDef, is_array: Sequence[bool], static: Sequence[Fixed]
    ) -> None:
        self._function = function
        self._structure = structure
        self._is_array = is_array
        self._static = static
        self._variables: list[Any] = []
        self._compiled: Any = jax.jit(self._run)

    def __call__(self, arrays: Sequence[Any]) -> Any:
        while True:
            try:
                found, rest = self._compiled(arrays, [v.value for v in self._variables])
                return rest.filled(found)
            except _UnknownVariablesError as unknown:
                # jax.jit would bake their values in as constants. Traced anew, they are arguments.
                self._variables += unknown.variables

    def _run(self, arrays: Sequence[Any], values: Sequence[Any]) -> Any:
        given, fixed = iter(arrays), iter(self._static)
        leaves = [next(given) if array else next(fixed).value for array in self._is_array]
        args, kwargs = self._structure.unflatten(leaves)
        with _Reads(self._variables, values) as reads:
            result = map_structure(_read, self._function(*args, **kwargs))
        if reads.unknown:
            raise _UnknownVariablesError(list(reads.unknown.values()))
        results, kept = nest.flatten(result)
        static = tuple(_ARRAY if _is_array(leaf) else leaf for leaf in results)
        return [leaf for leaf in results if _is_array(leaf)], _Static(kept, static)


class _UnknownVariablesError(Exception):
    """Tells that a trace has read variables that are not yet arguments of the program."""

    def __init__(self, variables: list[Any]) -> None:
        super().__init__()
        self.variables = variables


class _Reads(NoUpdates):
    """Gives variables the values that a program is given.

    Attributes:
        unknown: Variables that are read besides, by their identity.
    """

    def __init__(self, variables: Sequence[Any], values: Sequence[Any]) -> None:
        super().__init__(_RULE, "Return the value, or call it with jit_compile=False.")
        self._values = {id(v): value for v, value in zip(variables, values, strict=True)}
        self.unknown: dict[int, Any] = {}

    def get_current_value(self, variable: Variable) -> Any:
        """Returns the value that the program is given; `None` for a variable that it is not given."""
        if id(variable) not in self._values:
            self.unknown[id(variable)] = variable
        return self._values.get(id(variable))


@jax.tree_util.register_pytree_node_class
class _Static:
    """Static results of a function: no part of the compiled program, but of the structure of its results."""

    def __init__(self, structure: PyTreeDef, leaves: tuple[Any, ...]) -> None:
        self._structure = structure
        self._leaves = leaves

    def tree_flatten(self) -> tuple[tuple[()], Any]:
        return (), (self._structure, self._leaves)

    @classmethod
    def tree_unflatten(cls, rest: Any, _: Any) -> _Static:
        return cls(*rest)

    def filled(self, arrays: Sequence[Any]) -> Any:
        found = iter(arrays)
        return self._structure.unflatten([next(found) if v is _ARRAY else v for v in self._leaves])


_ARRAY = object()


def _is_array(leaf: ArrayLike, widens: bool = False) -> bool:
    # Objects, bytes, text and times are numpy's kinds that jax has no type for.
    if isinstance(leaf, (jax.Array, np.ndarray, np.generic)):
        return isinstance(leaf, jax.Array) or leaf.dtype.kind not in "OSUMm"
    return widens and isinstance(leaf, (int, float, complex)) and not isinstance(leaf, bool)


def _read(leaf: ArrayLike) -> Any:
    """Returns the value of a variable; anything else as it is."""
    return leaf.value if is_variable(leaf) else leaf


def _is_distributed(leaf: ArrayLike) -> bool:
    return isinstance(leaf, DistributedValues)


def _check_signature(signature: tuple[Any, ...], args: tuple[Any, ...], kwargs: Any) -> None:
    if kwargs or len(args) != len(signature):
        raise ArgumentError(
            f"A function with an input_signature takes {len(signature)} positional arguments. Received: {len(args)}"
            f"{f', and {sorted(kwargs)} by name' if kwargs else ''}."
        )
    for i, (spec, value) in enumerate(zip(signature, args, strict=True)):
        # The type that jax gives it: numpy's float64 becomes float32 unless jax_enable_x64 is set, and fits either.
        shape, dtype = np.shape(value), jax.dtypes.canonicalize_dtype(getattr(value, "dtype", np.asarray(value).dtype))
        wanted = None if spec.shape is None else tuple(spec.shape)
        fits = wanted is None or (
            len(wanted) == len(shape) and all(w in (None, n) for w, n in zip(wanted, shape, strict=True))
        )
        if not fits or jax.dtypes.canonicalize_dtype(np.dtype(spec.dtype)) != dtype:
            raise ArgumentError(
                f"Arguments must fit the input_signature: argument {i} has shape {wanted} and dtype {spec.dtype}. "
                f"Received: shape {shape} and dtype {dtype}."
            )
