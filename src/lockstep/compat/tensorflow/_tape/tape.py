"""A tape: which values it watches, what was computed of them, and derivatives of that."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from lockstep._types import Array, Variable
from lockstep.compat.tensorflow._shards import VariableShard
from lockstep.compat.tensorflow._tape import recording
from lockstep.compat.tensorflow._tape.backward import Derivatives, Path
from lockstep.compat.tensorflow._tape.entry import Entry, is_inexact
from lockstep.compat.tensorflow._tensor import HostTensor
from lockstep.errors import ArgumentError


class EagerTape:
    """Records what is computed of watched values, wherever it is opened.

    Args:
        is_persistent: Whether derivatives may be taken several times.
        watches_all: Whether trainable variables are watched when they are read.
    """

    def __init__(self, is_persistent: bool, watches_all: bool) -> None:
        self._is_persistent = is_persistent
        self._watches_all = watches_all
        self._recording: recording.Recording | None = None
        self._is_used = False
        self._were_watched: tuple[Variable, ...] = ()
        self.reset()

    def reset(self) -> None:
        """Forgets all that was recorded and watched."""
        self._entries: list[Entry] = []
        # Identities of the values that derivatives can be taken through. Who has one is kept, so that it stays unique.
        self._known: set[int] = set()
        self._kept: list[Any] = []
        self._variables: dict[int, tuple[Variable, list[Any]]] = {}
        self._asked: dict[int, Variable] = {}
        self._hosts: dict[int, tuple[Any, Any]] = {}

    def begin(self) -> None:
        """Begins to record."""
        if self._recording is not None:
            raise ValueError("Tape is still recording, and cannot be entered again: leave its block first.")
        self._recording = recording.here()
        self._recording.begin(self)

    def end(self) -> None:
        """Ends recording; what was recorded stays until derivatives are taken."""
        if self._recording is not None:
            self._recording.end(self)
            self._recording = None

    def watch(self, value: Any) -> None:
        """Watches a tensor or a variable; those without floats have no derivatives."""
        if isinstance(value, keras.Variable):
            self._asked[id(value)] = value
        elif not is_inexact(value):
            return
        elif isinstance(value, HostTensor):
            if self._recording is not None:
                array = self._recording.watch_host(value)
                self._hosts[id(value)] = (value, array)
                self._keep(array)
        else:
            self._keep(value)

    def _keep(self, array: Any) -> None:
        self._known.add(id(array))
        self._kept.append(array)

    def knows(self, values: Sequence[Any]) -> bool:
        """Returns whether one of the values is watched, or was computed of what is watched."""
        known = self._known
        return any(id(value) in known for value in values)

    def record(self, entry: Entry) -> None:
        """Records an operation on known values."""
        if any(entry.edges):
            self._entries.append(entry)
            self._known.update(id(r) for r, edges in zip(entry.results, entry.edges, strict=True) if edges)

    def note_read(self, variable: Variable, array: Any) -> None:
        """Takes note of an array that stands for a variable's value."""
        if id(array) in self._known or not is_inexact(array):
            return
        if id(variable) in self._asked or (self._watches_all and variable.trainable):
            self._variables.setdefault(id(variable), (variable, []))[1].append(array)
            self._keep(array)

    def watched_variables(self) -> tuple[Variable, ...]:
        """Returns the variables that are watched, in the order in which they were read."""
        return self._were_watched or tuple(variable for variable, _ in self._variables.values())

    @contextlib.contextmanager
    def stop_recording(self) -> Generator[None]:
        """Opens a context in which nothing is recorded."""
        around = self._recording
        if around is None:
            raise RuntimeError("Tape is not recording: stop_recording can be used inside of its block only.")
        around.pause(self)
        try:
            yield
        finally:
            around.resume(self)

    def gradient(self, targets: Sequence[Any], sources: Sequence[Any], weights: Sequence[Any] | None) -> list[Any]:
        """Returns the derivatives of the sum of targets by the sources; `None` where there is none.

        Args:
            targets: Tensors; those that were not computed of what is watched count as constants.
            sources: Variables and tensors.
            weights: Of the elements of each target; default: 1.
        """
        with self._use():
            arrays = [self._array_of(target) for target in targets]
            path, of_sources = self._path(arrays, sources)
            derivatives = Derivatives(path)
            for i, array in enumerate(arrays):
                if array is None or id(array) not in path.needed:
                    continue
                weight = None if weights is None else weights[i]
                derivatives.add(array, _ones(array) if weight is None else _weight(weight, array))
            derivatives.run({id(a) for arrays in of_sources for a in arrays})
            return [_total(derivatives, arrays, path) for arrays in of_sources]

    def jacobian(self, target: Any, sources: Sequence[Any]) -> list[Any]:
        """Returns the derivatives of each element of a tensor by the sources."""
        with self._use():
            array = self._array_of(target)
            path, of_sources = self._path([array], sources)
            if array is None:
                return [None] * len(sources)

            def basis() -> Array:
                return jnp.eye(array.size, dtype=array.dtype).reshape((array.size, *array.shape))

            found = self._rows(array, path, of_sources, basis)
            return [None if f is None else f.reshape((*array.shape, *f.shape[1:])) for f in found]

    def batch_jacobian(self, target: Any, source: Any) -> Any:
        """Returns the derivatives of each element of an example by those of the same example."""
        with self._use():
            array = self._array_of(target)
            path, of_sources = self._path([array], [source])
            if array is None:
                return None
            batch, inner = array.shape[0], array.shape[1:]
            size = int(np.prod(inner))

            def basis() -> Array:
                # Examples do not depend on each other: each takes the same element of its own.
                rows = jnp.eye(size, dtype=array.dtype).reshape((size, 1, *inner))
                return jnp.broadcast_to(rows, (size, batch, *inner))

            (found,) = self._rows(array, path, of_sources, basis)
            if found is None:
                return None
            return jnp.moveaxis(found, 0, 1).reshape((batch, *inner, *found.shape[2:]))

    def _rows(self, array: Any, path: Path, of_sources: Sequence[Sequence[Any]], basis: Any) -> list[Any]:
        if array is None or id(array) not in path.needed:
            return [None] * len(of_sources)
        derivatives = Derivatives(path, lead=True)
        derivatives.add(array, basis())
        derivatives.run({id(a) for arrays in of_sources for a in arrays})
        return [_total(derivatives, arrays, path) for arrays in of_sources]

    @contextlib.contextmanager
    def _use(self) -> Generator[None]:
        """Lets derivatives be taken, once or for ever."""
        if self._is_used:
            raise RuntimeError(
                "A non-persistent GradientTape can only be used to compute one set of gradients (or jacobians). Make "
                "it with persistent=True to take several."
            )
        if self._is_persistent:
            yield
            return
        # Its own derivatives are not recorded, and what it holds is let go.
        self.end()
        self._is_used, self._were_watched = True, self.watched_variables()
        try:
            yield
        finally:
            self.reset()

    def _path(self, arrays: Sequence[Any], sources: Sequence[Any]) -> tuple[Path, list[Sequence[Any]]]:
        of_sources = [self._arrays_of(source) for source in sources]
        return Path(self._entries, [a for a in arrays if a is not None], of_sources), of_sources

    def _array_of(self, target: Any) -> Any:
        """Returns the array on the tape that a target is; `None` if it is none."""
        if isinstance(target, keras.Variable):
            arrays = self._arrays_of(target)
            return arrays[-1] if arrays else None
        if id(target) in self._hosts:
            return self._hosts[id(target)][1]
        return target if id(target) in self._known else None

    def _arrays_of(self, source: Any) -> Sequence[Any]:
        """Returns the arrays that stand for a source; none if it is not watched."""
        if isinstance(source, keras.Variable):
            known = self._variables.get(id(source))
            return () if known is None else known[1]
        if isinstance(source, VariableShard):
            raise ArgumentError(
                f"Derivatives are taken by whole variables. Received: the shard {source.name}. Take "
                "layer.trainable_weights or model.trainable_variables, which have the variable itself."
            )
        if id(source) in self._hosts:
            return (self._hosts[id(source)][1],)
        return (source,) if id(source) in self._known else ()


def _ones(array: Any) -> Array:
    return jnp.ones(array.shape, array.dtype)


def _weight(weight: Any, array: Any) -> Array:
    value = jnp.asarray(weight.value if isinstance(weight, keras.Variable) else weight)
    value = jnp.broadcast_to(value, array.shape).astype(array.dtype)
    return _conjugate(value)


def _total(derivatives: Derivatives, arrays: Sequence[Any], path: Path) -> Any:
    found = [derivatives.found[id(a)] for a in arrays if id(a) in path.needed and id(a) in derivatives.found]
    if not found:
        return None
    total = found[0]
    for value in found[1:]:
        total = total + value
    return _conjugate(total)


def _conjugate(value: Any) -> Any:
    # TensorFlow's derivatives by complex numbers are the conjugates of JAX's.
    return jnp.conj(value) if jnp.issubdtype(value.dtype, jnp.complexfloating) else value


def is_array(value: Any) -> bool:
    """Returns whether a value is a tensor, on the host or not."""
    return isinstance(value, (jax.Array, HostTensor))
