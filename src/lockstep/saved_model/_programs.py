"""Programs of signatures for any number of examples and for several kinds of devices, traced and lowered.

A function is traced with a symbol in the place of the number of examples, so that the program is exact for each number.
Where a function decides by that number ("more than one?"), one program is made for a single example, and one for more.
Nothing is padded, and nothing done for each example alone: for a function that looks at several examples, or whose
outputs are not one for each, that would be another function.
"""

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
from lockstep._types import ArrayLike, DType
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.saved_model import _arrays
from lockstep.saved_model._description import TensorInfo
from lockstep.saved_model._function import SignatureFunction, input_infos, nest, program_infos_by_path

_Array = np.ndarray[Any, np.dtype[Any]]
# The symbol's name in programs, by which `_write` knows outputs that have one row for each example.
BATCH = "batch"
_PLATFORMS = ("cpu", "cuda", "tpu")


@dataclass(frozen=True)
class Range:
    """Numbers of examples that a program takes: from `least` to `most`, which is as many or `None`."""

    least: int = 1
    most: int | None = None


_ANY = (Range(1, None),)
_ONE_OR_MORE = (Range(1, 1), Range(2, None))


@dataclass(frozen=True)
class TextRequest:
    """Request of a function for integers of the text at `path`, of type `dtype`."""

    path: str
    function: Callable[[Any], Any]
    dtype: str


@dataclass(frozen=True)
class OutputNote:
    """Note about an output that is text: words that the program's integers stand for, or the path of an input."""

    vocabulary: tuple[bytes, ...] | None = None
    source: str | None = None


@dataclass(frozen=True)
class Traced:
    """A function that is ready to be lowered.

    Attributes:
        program: Of stored variables, and inputs by path, to outputs by name.
        asked: Its requests for integers of text, in the order of its calls.
        notes: About its outputs, by name, in its order.
        tied: Whether open sizes at the same place of different inputs are equal.
    """

    program: Any
    variables: dict[str, jax.ShapeDtypeStruct]
    inputs: dict[str, jax.ShapeDtypeStruct]
    asked: list[TextRequest]
    notes: dict[str, OutputNote]
    tied: bool


class TextInput(Text):
    """Text that callers will give, as a function sees it while it is traced."""

    def __init__(self, path: str, shape: tuple[Any, ...], call: _Call) -> None:
        self.path = path
        self.shape = shape
        self._call = call

    def ids(self, function: Callable[[Any], Any], dtype: DType = np.int32) -> jax.Array:
        """Returns integers for the text; see `Text.ids`."""
        return self._call.ids(self, function, dtype)


class _Call:
    """A call of a function: its requests for integers of text, and the answers, if there are any yet."""

    def __init__(self, given: Sequence[Any] | None) -> None:
        self._given = given
        self.asked: list[TextRequest] = []
        self.notes: dict[str, OutputNote] = {}

    def ids(self, text: TextInput, function: Callable[[Any], Any], dtype: DType) -> Any:
        number = len(self.asked)
        name = jax.dtypes.canonicalize_dtype(dtype).name
        self.asked.append(TextRequest(text.path, function, name))
        # The first call finds out what is asked; only the shapes and types of its results count.
        if self._given is None:
            return jnp.zeros(text.shape, name)
        if number >= len(self._given):
            raise _impure_error()
        return self._given[number]

    def outputs(self, result: Any) -> dict[str, Any]:
        if not isinstance(result, Mapping):
            raise ArgumentError(
                f"The function of a signature returns a dict of arrays. Received: {type(result).__name__}."
            )
        values = {str(name): _to_words(value) for name, value in result.items()}
        self.notes = {
            name: OutputNote(vocabulary=tuple(value.vocabulary))
            if isinstance(value, Words)
            else OutputNote(source=value.path if isinstance(value, TextInput) else None)
            for name, value in values.items()
        }
        arrays = {name: value for name, value in values.items() if not isinstance(value, TextInput)}
        return {name: jnp.asarray(v.ids if isinstance(v, Words) else v) for name, v in arrays.items()}


def _to_words(value: ArrayLike) -> Any:
    """Returns text that is always the same as words; anything else as it is."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "OSU":
        return value
    text = [one.encode() if isinstance(one, str) else bytes(one) for one in value.reshape(-1).tolist()]
    # Sorted, so that two exports of one function have equal programs.
    vocabulary = sorted(set(text))
    ids = np.array([vocabulary.index(one) for one in text], np.int32).reshape(value.shape)
    return words(ids, vocabulary)


def _impure_error() -> ArgumentError:
    return ArgumentError(
        "A function to be exported must do the same in each call. Received one that asked for other numbers of its "
        "text in the second call. Make it depend on its arguments only."
    )


def has_batch(signature: SignatureFunction) -> bool:
    """Returns whether the number of examples is open."""
    infos = program_infos_by_path(input_infos(signature), signature.parse)
    return any(info.shape[:1] == (None,) for info in infos.values())


def has_ties(signature: SignatureFunction) -> bool:
    """Returns whether several inputs have an open size at the same place, besides the number of examples."""
    infos = program_infos_by_path(input_infos(signature), signature.parse).values()
    axes = [axis for info in infos for axis, size in enumerate(info.shape) if axis and size is None]
    return len(set(axes)) < len(axes)


def trace_signature(
    signature: SignatureFunction, variables: Mapping[str, _Array], wanted: Range, tied: bool = False
) -> Traced:
    """Traces a signature's function for a range of examples; raises whatever the function, or JAX, raises.

    With `tied`, open sizes at the same place of different inputs are equal.
    """
    infos = program_infos_by_path(input_infos(signature), signature.parse)
    shapes = _shapes(infos, wanted, tied)
    numbers = {path: _struct(shapes[path], info.dtype) for path, info in infos.items() if not info.is_text}
    kept = {name: jax.ShapeDtypeStruct(a.shape, _arrays.stored_dtype(a.dtype)) for name, a in variables.items()}
    dtypes = {name: array.dtype.name for name, array in variables.items()}

    def run(stored: dict[str, Any], given: dict[str, Any], call: _Call) -> dict[str, Any]:
        text = {path: TextInput(path, shapes[path], call) for path, info in infos.items() if info.is_text}
        values = {name: _arrays.from_stored(value, dtypes[name]) for name, value in stored.items()}
        inputs = nest(signature.inputs, signature.parse, {**given, **text})
        return call.outputs(signature.function(values, inputs))

    first = _Call(None)
    jax.eval_shape(lambda stored, given: run(stored, given, first), kept, numbers)
    extra = {lookup_path(i, a.path): _struct(shapes[a.path], a.dtype) for i, a in enumerate(first.asked)}
    notes: dict[str, OutputNote] = {}

    def program(stored: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        call = _Call([given[path] for path in extra])
        outputs = run(stored, {path: given[path] for path in numbers}, call)
        # Requests are answered by their number, so another order would mix texts up without a word.
        if [a.path for a in call.asked] != [a.path for a in first.asked]:
            raise _impure_error()
        notes.update(call.notes)
        return outputs

    # Traced here, and not only when it is exported: the notes are filled in while it is.
    compiled = jax.jit(program)
    compiled.trace(kept, {**numbers, **extra})
    return Traced(compiled, kept, {**numbers, **extra}, first.asked, notes, tied)


def lookup_path(number: int, source: str) -> str:
    """Returns the path of the integers that a program wants of a text."""
    return f"{source}#{number}"


def _struct(shape: tuple[Any, ...], dtype: str) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(jnp.dtype(dtype)))


def _shapes(infos: Mapping[str, TensorInfo], wanted: Range, tied: bool) -> dict[str, tuple[Any, ...]]:
    """Returns shapes in which open sizes are symbols, and the number of examples as wanted."""
    # The constraint lets a function compare the number with 1: for 2 or more the answer is known.
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


@dataclass(frozen=True)
class Lowered:
    """A program, its range, and the platforms for which it could not be made, each with the reason."""

    exported: export.Exported
    range: Range
    left_out: dict[str, str]


def lower_signature(
    name: str, signature: SignatureFunction, variables: Mapping[str, _Array]
) -> tuple[Traced, list[Lowered]]:
    """Makes the programs of a signature; the last one is for most numbers of examples.

    Raises:
        UnsupportedError: If there is no program for any number of examples.
        Exception: Whatever the function raises for a known number of examples, too.
    """
    problem: Exception | None = None
    all_ranges = (_ANY, _ONE_OR_MORE) if has_batch(signature) else (_ANY,)
    # The most general first. Functions that compare two inputs' lengths need these to be one symbol.
    for ranges, tied in itertools.product(all_ranges, (False, True) if has_ties(signature) else (False,)):
        try:
            traces = [trace_signature(signature, variables, wanted, tied) for wanted in ranges]
            programs = [_program(trace, wanted) for trace, wanted in zip(traces, ranges, strict=True)]
        except Exception as error:
            # The first attempt's error is the one about the function as it was written.
            problem = problem or error
        else:
            return traces[-1], programs
    assert problem is not None
    if not has_batch(signature):
        raise problem
    # Also with a known number? Then it is not the symbol's fault.
    _program(trace_signature(signature, variables, Range(2, 2), has_ties(signature)), Range(2, 2))
    raise _unsized_error(name, problem) from problem


def _unsized_error(name: str, problem: Exception) -> UnsupportedError:
    return UnsupportedError(
        f"An export computes any number of examples with one program. Received for the signature {name!r} a function "
        f"that JAX cannot trace without knowing their number: {_first_line(problem)}. Compute with x.shape[0] only by "
        "functions of jax.numpy or keras.ops, do what is done for each example by jax.vmap, or fix the number of "
        "examples: default_batch_size=n for the receiver function, or a shape [n, ...]."
    )


def _program(trace: Traced, wanted: Range) -> Lowered:
    exported, left_out = export_widely(trace.program, (trace.variables, trace.inputs))
    if wanted.most is None:
        # Compiled for some sizes: only then JAX finds out that some operations do not know theirs.
        size = max(2, wanted.least)
        sizes = lambda shape: tuple(d if isinstance(d, int) else size for d in shape)  # noqa: E731
        inputs = {path: jax.ShapeDtypeStruct(sizes(s.shape), s.dtype) for path, s in trace.inputs.items()}
        jax.jit(exported.call).lower(trace.variables, inputs).compile()
    return Lowered(exported, wanted, left_out)


def export_widely(program: Any, arguments: Sequence[Any]) -> tuple[export.Exported, dict[str, str]]:
    """Exports a function that `jax.jit` made for as many platforms as possible; returns why others are left out.

    Args:
        program: The function.
        arguments: Shapes and dtypes of what it takes.
    """
    here = export.default_export_platform()
    wanted = list(dict.fromkeys((here, *_PLATFORMS)))
    left_out: dict[str, str] = {}
    try:
        return _export(program, arguments, wanted), left_out
    except Exception:
        for platform in wanted:
            try:
                _export(program, arguments, [platform])
            except Exception as error:
                left_out[platform] = _first_line(error)
    able = [platform for platform in wanted if platform not in left_out]
    # If not even this machine's is possible, the error is the function's own, and is raised.
    return _export(program, arguments, able if here in able else [here]), left_out


def _export(program: Any, arguments: Sequence[Any], platforms: list[str]) -> export.Exported:
    # Programs do not say where in the source code an operation comes from: paths are private.
    option = "jax_traceback_in_locations_limit"
    before = getattr(jax.config, option)
    jax.config.update(option, 0)
    try:
        return export.export(program, platforms=platforms)(*arguments)
    finally:
        jax.config.update(option, before)


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}".removesuffix(".")
