"""tf.function, and the questions about eager and compiled code."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import keras
from jax._src import core
from jax._src.array import ArrayImpl
from jax.core import Tracer
from keras.src.backend.common.global_state import get_global_attribute

from lockstep._types import Tensor
from lockstep.compat.tensorflow._functions.arguments import (
    Canonical,
    Place,
    Signature,
    TensorKind,
    key_of,
    kind_of,
    to_array,
)
from lockstep.compat.tensorflow._functions.concrete import ConcreteFunction
from lockstep.compat.tensorflow._functions.control_flow import register_compiler
from lockstep.compat.tensorflow._functions.conversion import convert
from lockstep.compat.tensorflow._functions.program import Program
from lockstep.compat.tensorflow._functions.refusals import cannot_compile
from lockstep.compat.tensorflow._ops import dispatch
from lockstep.compat.tensorflow._ops.create import convert_to_tensor
from lockstep.compat.tensorflow._tape import recording
from lockstep.compat.tensorflow._tensor import check_shape
from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.config._settings import functions_run_eagerly
from lockstep.distribute import has_strategy
from lockstep.distribute.internal import DistributedValues, Fixed
from lockstep.errors import ArgumentError

__all__ = ["executing_eagerly", "function", "get_logger", "inside_function", "is_symbolic_tensor"]


def function(
    func: Callable[..., Any] | None = None,
    input_signature: Any = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
    experimental_implements: str | None = None,
    experimental_autograph_options: object = None,
    experimental_attributes: object = None,
    experimental_relax_shapes: bool | None = None,
    experimental_compile: bool | None = None,
    experimental_follow_type_hints: bool | None = None,
) -> Any:
    """Compiles a function, as a decorator with or without arguments.

    It is compiled once for each signature: the structure of its arguments, the shapes and types of tensors, and all
    other values. Variables that it reads and assigns are state of the program. What it does besides computing happens
    when it is traced: once, or twice if it makes variables. Python's conditions and loops over tensors are converted,
    also those of functions of the program that it calls. An open GradientTape records it as one operation. In code that
    is compiled anyway (fit, `strategy.run`, map functions) and in the scope of a strategy it is a part of that. What
    cannot be compiled is called as it is: text, numpy, shapes that depend on values. Of a loop over a dataset the body
    is compiled.

    Args:
        func: The function.
        input_signature: `TensorSpec`s, which the positional arguments are checked against and converted to.
        autograph: Whether Python's conditions and loops over tensors are converted; without, such a function runs as it
            is.
        jit_compile: Both are the same.
        reduce_retracing: Whether Python's numbers are arguments, too, instead of a part of the program.
        experimental_implements: Refused.
        experimental_autograph_options: Refused.
        experimental_attributes: Refused.
        experimental_relax_shapes: As `reduce_retracing`.
        experimental_compile: As `jit_compile`.
        experimental_follow_type_hints: Refused.

    Raises ArgumentError if arguments do not fit the signature, or an option is for graphs only. Source: tf.function.
    """
    graph_only = (experimental_implements, experimental_autograph_options, experimental_attributes)
    if any(o is not None for o in (*graph_only, experimental_follow_type_hints)):
        raise ArgumentError(
            "tf.function takes func, input_signature, autograph, jit_compile and reduce_retracing. "
            "Received an option of "
            "TensorFlow's graphs, which do not exist here; leave it out."
        )
    options = Options(input_signature, bool(reduce_retracing or experimental_relax_shapes), bool(autograph))
    if func is None:
        return lambda f: Function(f, options)
    return Function(func, options)


class Function:
    """A function that was given to tf.function; a method of a class becomes a bound one, as usual."""

    def __init__(self, python_function: Callable[..., Any], options: Options) -> None:
        functools.update_wrapper(self, python_function)
        self._name: str = getattr(python_function, "__name__", type(python_function).__name__)
        self.python_function = python_function
        self.input_signature = options.input_signature
        self._options = options
        # As Python's own it runs with conditions and loops over tensors as TensorFlow has them.
        self._converted = convert(python_function) if options.autograph else python_function
        self._programs: dict[Any, Program] = {}
        # By what calls are like: their program, and which leaves it is given.
        self._routes: dict[Any, _Route] = {}
        # Of the last call that was found there, if it had tensors only: the next one is most often like it.
        self._last: tuple[Signature, Program] | None = None

    def __call__(self, *args: Argument, **kwargs: Argument) -> Any:
        """Calls the compiled function."""
        if _is_run_by_others():
            return self._call_among_others(args, kwargs)
        if self._last is not None and not kwargs:
            signature, program = self._last
            arrays = signature.match(args)
            if arrays is not None:
                return program(arrays)
        leaves, structure = _flatten((args, kwargs))
        key = key_of(leaves, self._options.widens)
        route = self._routes.get((structure, key))
        if route is None or route[0].is_refused:
            return self._call_first(args, kwargs, leaves, (structure, key))
        program, places = route
        # Without places all leaves are arrays, in their order.
        given = leaves if places is None else [leaves[i] for i in places]
        for i, leaf in enumerate(given):
            if type(leaf) is not ArrayImpl:
                given[i] = to_array(leaf)
        if places is None and not kwargs and len(args) == len(given) and all(type(a) is ArrayImpl for a in given):
            self._last = Signature(given), program
        return program(given)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        # Kept on the instance: what was compiled for it, is found again, and goes with it.
        name = f"_lockstep_tf_function_{self._name}"
        found = getattr(instance, "__dict__", {}).get(name)
        if found is None or found[0] is not self:
            found = self, Function(self.python_function.__get__(instance, owner), self._options)
            if hasattr(instance, "__dict__"):
                # Not by setattr: Keras and tf.Module track what is assigned.
                vars(instance)[name] = found
        return found[1]

    def __reduce__(self) -> Any:
        # What is compiled stays behind.
        return Function, (self.python_function, self._options)

    def get_concrete_function(self, *args: Argument, **kwargs: Argument) -> ConcreteFunction:
        """Returns the function for arguments like these, compiled.

        Args:
            *args: Tensors, `TensorSpec`s that stand for some, and values that are a part of it. Default: those of
                `input_signature`.
            **kwargs: As `args`, by name.

        Source: tf.function.
        """
        if not args and not kwargs and self.input_signature is not None:
            args = tuple(self.input_signature)
        call = Function(self._converted, Options(None, widens=False, autograph=False))
        return ConcreteFunction(self._converted, self._name, args, kwargs, _fit, call)

    @property
    def programs(self) -> list[Program]:
        """The programs that its calls have made."""
        return list(self._programs.values())

    def experimental_get_tracing_count(self) -> int:
        """Returns how many times it was traced."""
        return sum(program.traces for program in self._programs.values())

    def pretty_printed_concrete_signatures(self, verbose: bool = True) -> str:
        """Returns the signatures that it was compiled for, as text."""
        return "\n\n".join(program.describe(self._name, verbose) for program in self._programs.values())

    def _call_among_others(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls it where something else compiles it, runs it, or records it."""
        if self.input_signature is not None:
            args, kwargs = self._fitted(args, kwargs)
        if functions_run_eagerly():
            return self.python_function(*args, **kwargs)
        if not dispatch.is_traced() and recording.current() is not None and not _is_of_a_scope():
            leaves, structure = _flatten((args, kwargs))
            key = key_of(leaves, self._options.widens)
            found = self._find(args, kwargs, leaves, (structure, key)) if key is not None else None
            if found is not None and self._is_ready(found[0]) and _is_recordable(found[0], leaves):
                return found[0].record([_as_known_to_tapes(leaf) for leaf in _chosen(leaves, found[1])])
        return self._converted(*args, **kwargs)

    def _call_first(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any], raw: Any) -> Any:
        """Calls it where its program is not there yet, or it is called in another way for each call."""
        given, by_name = (args, kwargs) if self.input_signature is None else self._fitted(args, kwargs)
        if given is not args or by_name is not kwargs:
            fitted, structure = _flatten((given, by_name))
            is_same = len(fitted) == len(leaves) and all(f is leaf for f, leaf in zip(fitted, leaves, strict=True))
            key = key_of(fitted, self._options.widens)
            route = None if key is None else self._find(given, by_name, fitted, (structure, key))
            if is_same and route is not None:
                self._routes[raw] = route
            leaves = fitted
        else:
            route = None if raw[1] is None else self._find(args, kwargs, leaves, raw)
        if route is None or not self._is_ready(route[0]):
            return self._converted(*given, **by_name)
        return route[0]([to_array(leaf) for leaf in _chosen(leaves, route[1])])

    def _fitted(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if kwargs:
            try:
                bound = inspect.signature(self.python_function).bind(*args, **kwargs)
            except (TypeError, ValueError):
                return args, kwargs  # The call itself raises Python's error.
            args, kwargs = bound.args, bound.kwargs
        return _fit_arguments(self.input_signature, args), kwargs

    def _find(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any], raw: Any) -> _Route:
        """Returns the program for a call, and which leaves it is given."""
        known = self._routes.get(raw)
        if known is not None:
            return known
        widens = self._options.widens
        canonical = Canonical.of(self.python_function, args, kwargs)
        kinds = [
            kind_of(leaves[leaf.number], widens) if isinstance(leaf, Place) else Fixed(leaf)
            for leaf in canonical.leaves
        ]
        key = canonical.structure, tuple(kinds)
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = Program(self._converted, canonical.structure, kinds)
        places = [leaf.number for leaf in canonical.leaves if isinstance(leaf, Place)]
        arrays = tuple(i for i in places if isinstance(kind_of(leaves[i], widens), TensorKind))
        route = program, None if arrays == tuple(range(len(leaves))) else arrays
        self._routes[raw] = route
        return route

    def _is_ready(self, program: Program) -> bool:
        """Traces a program; returns whether it can be compiled."""
        if program.is_refused:
            return False
        try:
            program.prepare()
        except Exception as error:
            if not cannot_compile(error):
                raise
            program.is_refused = True
            reason = str(error).partition("\n")[0]
            logging.getLogger("lockstep").info("tf.function runs %s uncompiled: %s", self._name, reason)
        return not program.is_refused


_flatten = jax.tree_util.tree_flatten
# A program, and the numbers of the leaves that it is given; `None` for all of them, in their order.
_Route = tuple[Program, tuple[int, ...] | None]


register_compiler(lambda turn: Function(turn, Options(None, widens=True, autograph=False)))


def _chosen(leaves: Sequence[Any], numbers: Sequence[int] | None) -> list[Any]:
    return list(leaves) if numbers is None else [leaves[i] for i in numbers]


@dataclass(frozen=True)
class Options:
    """Options of a function.

    Attributes:
        input_signature: `TensorSpec`s of the positional arguments, in any structure.
        widens: Whether Python's numbers are arguments, instead of a part of the program.
        autograph: Whether Python's conditions and loops over tensors are compiled.
    """

    input_signature: Any
    widens: bool
    autograph: bool = True


def _as_known_to_tapes(leaf: Any) -> Any:
    """Returns an argument as the array that tapes know."""
    found = None if isinstance(leaf, jax.Array) else recording.stands_for(leaf)
    return to_array(leaf) if found is None else found


def _is_recordable(program: Program, leaves: Sequence[Any]) -> bool:
    """Returns whether all that tapes know of what a program takes is among its arguments and variables."""
    found = recording.current()
    assert found is not None
    known = {id(leaf) for leaf in leaves}
    # What is captured is a constant of the program, by which there would be no derivatives.
    if any(tape.knows([constant]) for tape in found.tapes for constant in program.constants):
        return False
    return all(host in known for host in found.hosts)


def _is_run_by_others() -> bool:
    """Returns whether this is code that something else compiles or runs as it is."""
    return not core.trace_state_clean() or functions_run_eagerly() or _is_of_a_scope()


def _is_of_a_scope() -> bool:
    # In the scope of a strategy, strategy.run compiles; that of a model_fn is one of Keras' stateless scopes.
    return has_strategy() or get_global_attribute("stateless_scope") is not None


def _fit_arguments(signature: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(args) > len(signature):
        raise ArgumentError(f"input_signature has {len(signature)} entries. Received {len(args)} arguments.")
    # Arguments with a default may be left out.
    return tuple(_fit(spec, value) for spec, value in zip(signature, args, strict=False))


def _fit(spec: Any, value: Argument) -> Any:
    """Returns an argument as its specification says, in its structure."""
    if isinstance(value, DistributedValues):
        # A batch of a distributed dataset: the spec is that of the whole, of which each replica has some rows.
        for part in value.values:
            check_shape(part, [None, *spec.shape[1:]] if len(spec.shape) else spec.shape)
        return value
    if hasattr(spec, "shape") and hasattr(spec, "dtype"):
        tensor = convert_to_tensor(value, None if hasattr(value, "dtype") else spec.dtype)
        check_shape(tensor, spec.shape)
        return tensor
    if isinstance(spec, Mapping) and isinstance(value, Mapping) and set(spec) == set(value):
        return type(value)({name: _fit(spec[name], value[name]) for name in value})  # pyright: ignore[reportCallIssue]
    if isinstance(spec, (list, tuple)) and isinstance(value, (list, tuple)) and len(spec) == len(value):
        parts = [_fit(s, v) for s, v in zip(spec, value, strict=True)]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    raise ArgumentError(
        f"Arguments have the structure of the input_signature, whose leaves are tf.TensorSpec. Received: {value!r:.80} "
        f"for {spec!r:.80}."
    )


def executing_eagerly() -> bool:
    """Returns whether values are known here: not while JAX compiles. Source: tf.executing_eagerly."""
    return not dispatch.is_traced()


def inside_function() -> bool:
    """Returns whether JAX is compiling this code. Source: tf.inside_function."""
    return dispatch.is_traced()


def is_symbolic_tensor(tensor: Tensor) -> bool:
    """Returns whether the tensor stands for values to come. Source: tf.is_symbolic_tensor."""
    return isinstance(tensor, (Tracer, keras.KerasTensor))


def get_logger() -> logging.Logger:
    """Returns lockstep's logger. Source: tf.get_logger."""
    return logging.getLogger("lockstep")
