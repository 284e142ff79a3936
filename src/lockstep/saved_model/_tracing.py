"""A signature's function, traced: for one number of examples, or any."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from lockstep._text import Text, Words, words
from lockstep.errors import ArgumentError
from lockstep.saved_model import _arrays
from lockstep.saved_model._description import TensorInfo
from lockstep.saved_model._function import SignatureFunction, leaves, looks, nested

_Array = np.ndarray[Any, np.dtype[Any]]
BATCH = "batch"


@dataclass(frozen=True)
class Range:
    """For how many examples a program is made.

    Attributes:
        least: The fewest.
        most: The most: as many, or `None`.
    """

    least: int = 1
    most: int | None = None


@dataclass(frozen=True)
class Asked:
    """Integers that a function wants of a text.

    Attributes:
        path: Of which.
        function: What computes them.
        dtype: Of the integers.
    """

    path: str
    function: Callable[[Any], Any]
    dtype: str


@dataclass(frozen=True)
class Note:
    """What an output is, where it is text.

    Attributes:
        vocabulary: The words that the program's integers stand for, if it has integers.
        source: The path of the input that it is, if it is one.
    """

    vocabulary: tuple[bytes, ...] | None = None
    source: str | None = None


@dataclass(frozen=True)
class Traced:
    """A function that is ready to be lowered.

    Attributes:
        program: Of stored variables, and inputs by path, to outputs by name.
        variables: What the variables look like.
        inputs: What the inputs look like.
        asked: What it wants of text.
        notes: About its outputs, by name, in its order.
        tied: Whether open sizes at the same place of different inputs are equal.
    """

    program: Any
    variables: dict[str, jax.ShapeDtypeStruct]
    inputs: dict[str, jax.ShapeDtypeStruct]
    asked: list[Asked]
    notes: dict[str, Note]
    tied: bool


class TextInput(Text):
    """Text that callers will give.

    Args:
        path: Which.
        shape: Its shape.
        call: The call of a function that sees it.
    """

    def __init__(self, path: str, shape: tuple[Any, ...], call: _Call) -> None:
        self.path = path
        self.shape = shape
        self._call = call

    def ids(self, function: Callable[[Any], Any], dtype: Any = np.int32) -> jax.Array:
        """Returns integers for the text; see `Text.ids`."""
        return self._call.ids(self, function, dtype)


class _Call:
    """One call of a function: what it asks of text, and what it is given."""

    def __init__(self, given: Sequence[Any] | None) -> None:
        self._given = given
        self.asked: list[Asked] = []
        self.notes: dict[str, Note] = {}

    def ids(self, text: TextInput, function: Callable[[Any], Any], dtype: Any) -> Any:
        number = len(self.asked)
        name = jax.dtypes.canonicalize_dtype(dtype).name
        self.asked.append(Asked(text.path, function, name))
        if self._given is None:
            return jnp.zeros(text.shape, name)
        if number >= len(self._given):
            raise _impure()
        return self._given[number]

    def outputs(self, result: Any) -> dict[str, Any]:
        if not isinstance(result, Mapping):
            raise ArgumentError(
                f"The function of a signature returns a dict of arrays. Received: {type(result).__name__}."
            )
        values = {str(name): _as_words(value) for name, value in result.items()}
        self.notes = {name: _note(value) for name, value in values.items()}
        arrays = {name: value for name, value in values.items() if not isinstance(value, TextInput)}
        return {name: jnp.asarray(v.ids if isinstance(v, Words) else v) for name, v in arrays.items()}


def _as_words(value: Any) -> Any:
    """Returns text that is always the same as words; anything else as it is."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "OSU":
        return value
    text = [one.encode() if isinstance(one, str) else bytes(one) for one in value.reshape(-1).tolist()]
    vocabulary = sorted(set(text))
    ids = np.array([vocabulary.index(one) for one in text], np.int32).reshape(value.shape)
    return words(ids, vocabulary)


def _note(value: Any) -> Note:
    if isinstance(value, Words):
        return Note(vocabulary=tuple(value.vocabulary))
    return Note(source=value.path) if isinstance(value, TextInput) else Note()


def _impure() -> ArgumentError:
    return ArgumentError(
        "A function to be exported must do the same in each call. Received one that asked for other numbers of its "
        "text in the second call. Make it depend on its arguments only."
    )


def has_batch(signature: SignatureFunction) -> bool:
    """Whether the number of examples is open."""
    return any(info.shape[:1] == (None,) for info in leaves(looks(signature), signature.parse).values())


def has_ties(signature: SignatureFunction) -> bool:
    """Whether several inputs have an open size at the same place, besides the number of examples."""
    infos = leaves(looks(signature), signature.parse).values()
    axes = [axis for info in infos for axis, size in enumerate(info.shape) if axis and size is None]
    return len(set(axes)) < len(axes)


def traced(signature: SignatureFunction, variables: Mapping[str, _Array], wanted: Range, tied: bool = False) -> Traced:
    """Traces a function.

    Args:
        signature: What holds it.
        variables: The variables, by name.
        wanted: For how many examples.
        tied: Whether open sizes at the same place of different inputs are equal.

    Raises:
        Exception: Whatever the function, or JAX, raises.
    """
    infos = leaves(looks(signature), signature.parse)
    shapes = _shapes(infos, wanted, tied)
    numbers = {path: _struct(shapes[path], info.dtype) for path, info in infos.items() if not info.is_text}
    kept = {name: jax.ShapeDtypeStruct(a.shape, _arrays.stored_dtype(a.dtype)) for name, a in variables.items()}
    dtypes = {name: array.dtype.name for name, array in variables.items()}

    def run(stored: dict[str, Any], given: dict[str, Any], call: _Call) -> dict[str, Any]:
        text = {path: TextInput(path, shapes[path], call) for path, info in infos.items() if info.is_text}
        values = {name: _arrays.meaning(value, dtypes[name]) for name, value in stored.items()}
        inputs = nested(signature.inputs, signature.parse, {**given, **text})
        return call.outputs(signature.function(values, inputs))

    first = _Call(None)
    jax.eval_shape(lambda stored, given: run(stored, given, first), kept, numbers)
    extra = {lookup_path(i, a.path): _struct(shapes[a.path], a.dtype) for i, a in enumerate(first.asked)}
    notes: dict[str, Note] = {}

    def program(stored: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        call = _Call([given[path] for path in extra])
        outputs = run(stored, {path: given[path] for path in numbers}, call)
        if [a.path for a in call.asked] != [a.path for a in first.asked]:
            raise _impure()
        notes.update(call.notes)
        return outputs

    made = jax.jit(program)
    made.trace(kept, {**numbers, **extra})
    return Traced(made, kept, {**numbers, **extra}, first.asked, notes, tied)


def lookup_path(number: int, source: str) -> str:
    """Returns the path of the integers that a program wants of a text."""
    return f"{source}#{number}"


def _struct(shape: tuple[Any, ...], dtype: str) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(jnp.dtype(dtype)))


def _shapes(infos: Mapping[str, TensorInfo], wanted: Range, tied: bool) -> dict[str, tuple[Any, ...]]:
    """Returns shapes in which open sizes are symbols, and the number of examples as wanted."""
    scope = export.SymbolicScope([f"{BATCH} >= {wanted.least}"])
    symbol: Callable[[str], Any] = lambda name: export.symbolic_shape(name, scope=scope)[0]  # noqa: E731
    batch = wanted.most or symbol(BATCH)
    number = itertools.count()

    def shape(info: TensorInfo) -> tuple[Any, ...]:
        return tuple(
            size if size is not None else symbol(f"size{axis if tied else next(number)}") if axis else batch
            for axis, size in enumerate(info.shape)
        )

    return {path: shape(info) for path, info in infos.items()}
