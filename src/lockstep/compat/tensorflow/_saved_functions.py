"""Functions that `tf.saved_model.save` writes: a program for each way in which they are called, with its variables."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import export

from lockstep._nest import Structure, flatten
from lockstep._types import Variable
from lockstep.compat.tensorflow._dtypes import as_dtype
from lockstep.compat.tensorflow._functions.arguments import TensorKind
from lockstep.compat.tensorflow._functions.concrete import ConcreteFunction
from lockstep.compat.tensorflow._functions.program import Program
from lockstep.compat.tensorflow._functions.refusals import cannot_compile
from lockstep.compat.tensorflow._saved_values import Slot, encode, encode_signature
from lockstep.compat.tensorflow._spec import TensorSpec
from lockstep.distribute.internal import Fixed
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.saved_model.internal import export_widely

# Ranks that a function of a spec without one is exported for: pictures have four, films five.
_RANKS = range(6)
# Sizes are tried one by one where a function has no program for any: so many are tried, and so many programs kept.
_MOST_TRIED, _MOST_KEPT = 1024, 8


@dataclass(frozen=True)
class Call:
    """Describes one way to call a function: specs of tensors and plain values, and the structure of (args, kwargs)."""

    leaves: Sequence[Any]
    structure: Structure


def calls_of(function: Any) -> list[Call]:
    """Returns how a function may be called: as its signature says, or as it was called before."""
    if isinstance(function, ConcreteFunction):
        return [Call(*flatten(function.structured_input_signature))]
    if function.input_signature is not None:
        return [Call(*flatten((tuple(function.input_signature), {})))]
    return [
        Call([TensorSpec(k.shape, k.dtype) if isinstance(k, TensorKind) else k.value for k in p.kinds], p.structure)
        for p in function.programs
        if not p.is_refused
    ]


class SavedFunction:
    """A function with its programs, to be written.

    Args:
        name: For messages.
        function: The Python function.
        calls: How it is called.

    Attributes:
        results: The structure of what it returns, `Slot` in place of tensors; `None` without a program.
        inputs: Specs of the tensors of the first call, in their order, each with the name of its parameter.

    Raises:
        UnsupportedError: If it cannot be compiled.
    """

    def __init__(self, name: str, function: Callable[..., Any], calls: Sequence[Call], largest: int) -> None:
        self._function, self._calls = function, calls
        self._signature = inspect.signature(function)
        self._programs = [one for call in calls for one in _programs_of(name, function, call, largest)]
        self.results = _merge([_slots(one.structured_outputs) for one in self._programs]) if self._programs else None
        self.inputs = _inputs_of(self._signature, calls[0]) if calls else []

    @property
    def specs(self) -> list[TensorSpec] | None:
        """Specs of the tensors that its only program takes; `None` if it has several."""
        if len(self._programs) != 1:
            return None
        kinds = [kind for kind in self._programs[0].kinds if isinstance(kind, TensorKind)]
        named = zip(kinds, self.inputs, strict=True)
        return [TensorSpec(_open(kind.shape), jnp.dtype(kind.dtype), spec.name) for kind, (_, spec) in named]

    def call(self, tensors: Sequence[Any]) -> Any:
        """Calls it with tensors in the order of `inputs`."""
        given = iter(tensors)
        only = self._calls[0]
        args, kwargs = only.structure.unflatten(
            [next(given) if isinstance(leaf, TensorSpec) else leaf for leaf in only.leaves]
        )
        return self._function(*args, **kwargs)

    def describe(self, variables: Sequence[Variable], add_file: Callable[[bytes], str]) -> dict[str, Any]:
        """Returns it as JSON.

        Args:
            variables: All variables of the object.
            add_file: Keeps the content of a file, and returns its name.

        Raises:
            ArgumentError: If it reads a variable that the object does not have.
        """
        numbers = {id(variable): number for number, variable in enumerate(variables)}
        programs: list[dict[str, Any]] = []
        for one in self._programs:
            for variable in one.variables:
                if id(variable) not in numbers:
                    raise ArgumentError(
                        "What is saved has all variables that its functions read, as attributes or in lists and dicts "
                        f"of them. Received: a function that reads {variable.path}. Make it an attribute, too."
                    )
            changed = [numbers[id(v)] for v in one.changed]
            programs.append(
                {
                    "file": add_file(_serialize(*one.lowerable)),
                    "changed": changed,
                    "read": [numbers[id(v)] for v in one.variables[len(changed) :]],
                    "arguments": _arguments_of(self._signature, one),
                    "outputs": encode(_slots(one.structured_outputs)),
                }
            )
        return {"signature": encode_signature(self._signature), "programs": programs}


def _programs_of(name: str, function: Callable[..., Any], call: Call, largest: int) -> list[Program]:
    """Returns programs for all sizes; where there is none, those for the sizes that go with the variables.

    Raises:
        UnsupportedError: If the function cannot be compiled.
    """
    shapes = [tuple(s.shape) if s.shape.rank is not None else None for s in call.leaves if isinstance(s, TensorSpec)]
    ranks = _RANKS if None in shapes else (0,)
    found: list[Program] = []
    problem: Exception | None = None
    for rank in ranks:
        known = [(None,) * rank if shape is None else shape for shape in shapes]
        attempts = [[_symbols(known, tied)] for tied in (False, True)]
        attempts.append(list(_sizes(known, largest)))
        for attempt in attempts:
            made: list[Program] = []
            for sizes in attempt:
                try:
                    made.append(_trace(function, call, sizes))
                except Exception as error:
                    problem = problem or error
            if made:
                found += made[-_MOST_KEPT:]
                break
    if not found and problem is not None:
        if cannot_compile(problem):
            raise UnsupportedError(
                f"A saved function is compiled. Received: {name}, which cannot be: {problem}"
            ) from problem
        raise problem
    return found


def _symbols(shapes: Sequence[Sequence[int | None]], tied: bool) -> list[tuple[Any, ...]]:
    """Returns shapes with a symbol for each open size, or with one for all first sizes."""
    scope = export.SymbolicScope()
    found: list[tuple[Any, ...]] = []
    for i, shape in enumerate(shapes):
        names = [str(n) if n is not None else ("b" if tied and not j else f"s{i}_{j}") for j, n in enumerate(shape)]
        found.append(tuple(export.symbolic_shape(f"({', '.join(names)},)", scope=scope)) if names else ())
    return found


def _sizes(shapes: Sequence[Sequence[int | None]], largest: int) -> Iterator[list[tuple[Any, ...]]]:
    """Yields shapes with each size in place of the open ones but the first."""
    places = [(i, j) for i, shape in enumerate(shapes) for j, n in enumerate(shape) if n is None and j]
    every = itertools.product(range(1, largest + 1), repeat=len(places)) if places else iter(())
    for sizes in itertools.islice(every, _MOST_TRIED):
        known = dict(zip(places, sizes, strict=True))
        yield _symbols([[known.get((i, j), n) for j, n in enumerate(s)] for i, s in enumerate(shapes)], tied=True)


def _trace(function: Callable[..., Any], call: Call, shapes: Sequence[tuple[Any, ...]]) -> Program:
    given = iter(shapes)
    kinds = [
        TensorKind(next(given), _dtype(leaf.dtype)) if isinstance(leaf, TensorSpec) else Fixed(leaf)
        for leaf in call.leaves
    ]
    program = Program(function, call.structure, kinds)
    program.prepare()
    return program


def _dtype(dtype: Any) -> Any:
    # Types are JAX's: 64 bits are 32 unless it is told otherwise.
    return jax.dtypes.canonicalize_dtype(as_dtype(dtype).dtype)


def _serialize(program: Callable[..., Any], arguments: Sequence[Any]) -> bytes:
    exported, _ = export_widely(program, arguments)
    try:
        # With its derivatives, which a loaded function may be asked for.
        return bytes(exported.serialize(vjp_order=1))
    except Exception:
        # A loop whose number of turns is computed has none.
        return bytes(exported.serialize())


def _slots(outputs: Any) -> Any:
    leaves, structure = flatten(outputs)
    count = itertools.count()
    return structure.unflatten(
        [
            Slot(next(count), _open(leaf.shape), jnp.dtype(leaf.dtype).name) if hasattr(leaf, "dtype") else leaf
            for leaf in leaves
        ]
    )


def _open(shape: Sequence[Any]) -> list[int | None]:
    return [size if isinstance(size, int) else None for size in shape]


def _merge(results: Sequence[Any]) -> Any:
    """Returns the structure of results with the shapes that those of all programs have in common."""
    flat, structures = zip(*(flatten(one, lambda leaf: isinstance(leaf, Slot)) for one in results), strict=True)
    return structures[0].unflatten([_common(column) for column in zip(*flat, strict=False)])


def _common(column: Sequence[Any]) -> Any:
    first = column[0]
    if not isinstance(first, Slot):
        return first
    shapes = [slot.shape for slot in column]
    if len({len(shape) for shape in shapes}) > 1:
        return Slot(first.number, None, first.dtype)
    sizes = [sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True)]
    return Slot(first.number, sizes, first.dtype)


def _bound(signature: inspect.Signature, leaves: Sequence[Any], structure: Structure) -> Mapping[str, Any]:
    args, kwargs = structure.unflatten(leaves)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def _arguments_of(signature: inspect.Signature, program: Program) -> dict[str, Any]:
    count = itertools.count()
    leaves = [
        Slot(next(count), _open(kind.shape), jnp.dtype(kind.dtype).name) if isinstance(kind, TensorKind) else kind.value
        for kind in program.kinds
    ]
    return {name: encode(part) for name, part in _bound(signature, leaves, program.structure).items()}


def _inputs_of(signature: inspect.Signature, call: Call) -> list[tuple[str, TensorSpec]]:
    """Returns the tensors that a call takes, in their order, each with the name of its parameter."""
    numbered = list(enumerate(call.leaves))
    bound = _bound(signature, [_Leaf(*pair) for pair in numbered], call.structure)
    found = [(leaf, name) for name, part in bound.items() for leaf in flatten(part)[0] if isinstance(leaf, _Leaf)]
    found.sort(key=lambda pair: pair[0].number)
    return [(name, leaf.value) for leaf, name in found if isinstance(leaf.value, TensorSpec)]


@dataclass(frozen=True)
class _Leaf:
    number: int
    value: Any
