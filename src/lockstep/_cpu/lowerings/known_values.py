"""Values of variables that no input of a program decides, computed with NumPy while the program is rewritten."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jax.extend.core import Literal, primitives

from lockstep._engine.step.jaxprs import constants_of, is_traced, open_jaxpr
from lockstep._types import Aval, Jaxpr, JaxprAtom, JaxprEquation

# Numbers of an array whose values are computed; what only repeats or moves them is a view as large as it likes.
_MOST_NUMBERS = 1 << 20


class KnownValues:
    """The values of a jaxpr's variables, as far as its constants, or inputs whose values are given, decide them.

    Args:
        jaxpr: Closed or not.
        inputs: Values of some of its inputs, by variable, each from a function.
    """

    def __init__(self, jaxpr: Jaxpr, inputs: Mapping[Any, Callable[[], np.ndarray]] | None = None) -> None:
        body = open_jaxpr(jaxpr)
        self._values: dict[Any, np.ndarray] = {}
        self._makers: dict[Any, Callable[[], np.ndarray]] = dict(inputs or {})
        self._inside: dict[int, KnownValues] = {}
        for variable, constant in zip(body.constvars, constants_of(jaxpr), strict=False):
            if _is_here(constant):
                self._values[variable] = np.asarray(constant)
        for eqn in body.eqns:
            self._add(eqn)

    def of(self, atom: JaxprAtom) -> np.ndarray | None:
        """Returns the value of an atom; `None` if it is not known."""
        if isinstance(atom, Literal):
            return np.asarray(atom.val)
        if atom not in self._values and atom in self._makers:
            self._values[atom] = self._makers[atom]()
        return self._values.get(atom)

    def is_known(self, atom: JaxprAtom) -> bool:
        """Returns whether the value of an atom can be computed."""
        return isinstance(atom, Literal) or atom in self._values or atom in self._makers

    def inside(self, eqn: JaxprEquation) -> KnownValues:
        """Returns the values in the function that an equation of the jaxpr calls by `jit`."""
        return self._inside[id(eqn)]

    def _maker(self, atom: JaxprAtom) -> Callable[[], np.ndarray]:
        def value() -> np.ndarray:
            known = self.of(atom)
            assert known is not None
            return known

        return value

    def _add(self, eqn: JaxprEquation) -> None:
        if eqn.primitive is primitives.jit_p:
            called: Any = eqn.params["jaxpr"]
            pairs = zip(open_jaxpr(called).invars, eqn.invars, strict=True)
            given = {inner: self._maker(outer) for inner, outer in pairs if self.is_known(outer)}
            inside = self._inside[id(eqn)] = KnownValues(called, given)
            for outer, inner in zip(eqn.outvars, open_jaxpr(called).outvars, strict=True):
                if inside.is_known(inner):
                    self._makers[outer] = inside._maker(inner)
            return
        compute = _operation(eqn)
        if compute is not None and all(map(self.is_known, eqn.invars)):
            makers = [self._maker(atom) for atom in eqn.invars]
            self._makers[eqn.outvars[0]] = lambda: compute([make() for make in makers], eqn.params, eqn.outvars[0].aval)


def _is_here(constant: Any) -> bool:
    return getattr(constant, "is_fully_addressable", True) and not is_traced(constant)


_Operation = Callable[[Sequence[np.ndarray], Mapping[str, Any], Aval], np.ndarray]


def _operation(eqn: JaxprEquation) -> _Operation | None:
    """Returns the function that computes an equation's result; `None` if there is none."""
    name = eqn.primitive.name
    if name not in _ARITHMETIC:
        return _MOVES.get(name)
    out = eqn.outvars[0].aval
    is_small = all(isinstance(size, int) for size in out.shape) and out.size <= _MOST_NUMBERS
    # NumPy's integers divide, and its smaller floats round, in other ways.
    return _ARITHMETIC[name] if is_small and out.dtype.name in ("bool", "float32", "float64") else None


def _iota(_: Sequence[np.ndarray], params: Mapping[str, Any], out: Aval) -> np.ndarray:
    shape = [size if axis == params["dimension"] else 1 for axis, size in enumerate(out.shape)]
    return np.broadcast_to(np.arange(out.shape[params["dimension"]], dtype=out.dtype).reshape(shape), out.shape)


def _broadcast(inputs: Sequence[np.ndarray], params: Mapping[str, Any], out: Aval) -> np.ndarray:
    shape = [1] * len(out.shape)
    for axis, size in zip(params["broadcast_dimensions"], inputs[0].shape, strict=True):
        shape[axis] = size
    return np.broadcast_to(inputs[0].reshape(shape), out.shape)


def _tile(inputs: Sequence[np.ndarray], params: Mapping[str, Any], out: Aval) -> np.ndarray:
    pairs = list(zip(params["reps"], inputs[0].shape, strict=True))
    apart = inputs[0].reshape([n for _, size in pairs for n in (1, size)])
    return np.broadcast_to(apart, [n for pair in pairs for n in pair]).reshape(out.shape)


def _convert(inputs: Sequence[np.ndarray], _: Mapping[str, Any], out: Aval) -> np.ndarray:
    # Each number once, however often a view repeats it.
    (value,) = inputs
    once = value[tuple(slice(1) if stride == 0 else slice(None) for stride in value.strides)]
    return np.broadcast_to(once.astype(out.dtype), out.shape)


def _reshape(inputs: Sequence[np.ndarray], _: Mapping[str, Any], out: Aval) -> np.ndarray:
    return inputs[0].reshape(out.shape)


_MOVES: Mapping[str, _Operation] = {
    "iota": _iota,
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda inputs, params, _: np.concatenate(inputs, params["dimension"]),
    "tile": _tile,
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "transpose": lambda inputs, params, _: inputs[0].transpose(params["permutation"]),
    "convert_element_type": _convert,
}


def _of_elements(function: Callable[..., Any]) -> _Operation:
    def compute(inputs: Sequence[np.ndarray], _: Mapping[str, Any], out: Aval) -> np.ndarray:
        # A quotient by zero, as XLA's; what takes another value's place need not be finite.
        with np.errstate(all="ignore"):
            return np.asarray(function(*inputs), out.dtype)

    return compute


def _sum(inputs: Sequence[np.ndarray], params: Mapping[str, Any], out: Aval) -> np.ndarray:
    return inputs[0].sum(axis=tuple(params["axes"]), dtype=out.dtype)


_ARITHMETIC: Mapping[str, _Operation] = {
    **{name: _of_elements(getattr(np, name)) for name in ("abs", "floor", "ceil", "sign")},
    "add": _of_elements(np.add),
    "sub": _of_elements(np.subtract),
    "mul": _of_elements(np.multiply),
    "div": _of_elements(np.divide),
    "neg": _of_elements(np.negative),
    "max": _of_elements(np.maximum),
    "min": _of_elements(np.minimum),
    "eq": _of_elements(np.equal),
    "ne": _of_elements(np.not_equal),
    "lt": _of_elements(np.less),
    "le": _of_elements(np.less_equal),
    "gt": _of_elements(np.greater),
    "ge": _of_elements(np.greater_equal),
    "and": _of_elements(np.logical_and),
    "or": _of_elements(np.logical_or),
    "not": _of_elements(np.logical_not),
    "select_n": _of_elements(lambda which, *cases: np.choose(which.astype(np.int64), cases)),
    "integer_pow": lambda inputs, params, out: (inputs[0] ** params["y"]).astype(out.dtype),
    "square": _of_elements(np.square),
    "reduce_sum": _sum,
}
