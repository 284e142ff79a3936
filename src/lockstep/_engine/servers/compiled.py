"""Exported programs at work on a server: sizes in buckets, rates by step, rows that are brought up to date."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from numpy.lib.stride_tricks import as_strided

from lockstep._engine.servers.layout import dtype_of
from lockstep._engine.servers.rule import Program, Rule
from lockstep._types import Array

_LEAST = 64
# Steps whose rates one call computes: a clock's arithmetic is nothing beside the call.
_AHEAD = 64
# Room for the rates of so many steps at first.
_PAST = 1024


@functools.lru_cache(maxsize=1024)
def load(code: bytes) -> Callable[..., Any]:
    """Returns an exported program as a function of NumPy arrays; it is compiled for each size that it meets, once."""
    return _with_all_types(jax.jit(_program(code).call))


@functools.lru_cache(maxsize=1024)
def _program(code: bytes) -> export.Exported:
    return export.deserialize(bytearray(code))


def _with_all_types(function: Callable[..., Any]) -> Callable[..., Any]:
    """Has a function take arguments as they are: without this a float64 variable would become float32 on the way."""

    def call(*arguments: Any) -> Any:
        # A server's threads have all types already: to switch them on takes as long as a small update.
        if jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
            return function(*arguments)
        with jax.enable_x64(True):
            return function(*arguments)

    return call


@functools.lru_cache(maxsize=256)
def _joint(codes: tuple[bytes, ...]) -> Callable[..., Any]:
    """Returns several programs as one, which takes the arguments of each as a list: one call of XLA costs 40 us."""
    programs = [_program(code) for code in codes]
    return _with_all_types(
        jax.jit(lambda arguments: [p.call(*own) for p, own in zip(programs, arguments, strict=True)])
    )


@functools.lru_cache(maxsize=256)
def _clock_ahead(code: bytes, rates: int) -> Callable[..., Any]:
    """Returns `(iteration, hyper, scalars) -> (*rates, *scalars)` of `_AHEAD` steps from that one on, stacked."""
    program = _program(code)

    def run(iteration: Array, hyper: Sequence[Array], scalars: Sequence[Array]) -> Any:
        def step(carry: Any, i: Array) -> Any:
            results = program.call(iteration + i, *hyper, *carry)
            return list(results[rates:]), list(results)

        return lax.scan(step, list(scalars), jnp.arange(_AHEAD, dtype=np.int32))[1]

    return _with_all_types(jax.jit(run))


def bucket(count: int) -> int:
    """Returns the size that arrays of `count` rows or elements are padded to: at most a quarter more, few in number."""
    if count <= _LEAST:
        return _LEAST
    step = 1 << ((count - 1).bit_length() - 3)
    return -(-count // step) * step


def coarse_bucket(count: int) -> int:
    """Returns a power of two, for programs that are called with very different sizes: fewer have to be compiled."""
    return max(_LEAST, 1 << (count - 1).bit_length())


class Rates:
    """Returns what an optimizer's clock gives at each step, from `first` on: rows that are behind read it again."""

    def __init__(self, program: Program, iteration: int) -> None:
        self._code = program.clock
        taken = _program(program.clock).in_avals
        # Of the hyperparameters, which follow the iteration.
        self._float = taken[1].dtype if len(taken) > 1 else np.dtype(np.float32)
        self._dtypes = [dtype_of(d) for d in program.rates]
        self.scalars = [np.asarray(s.initial, dtype_of(s.dtype)) for s in program.scalars]
        self.keeps = program.movement is not None
        self.first = iteration
        self.stop = iteration
        # The last step whose rates are others than those of the step before.
        self.changed = iteration
        self.past = [np.zeros(_PAST, d) for d in self._dtypes]
        # What the clock gives in the next steps, from `_begin` on, as long as the hyperparameters stay these.
        self._ahead: list[Array] = []
        self._begin = iteration
        self._hyper: tuple[float, ...] = ()

    def advance(self, iteration: int, hyper: Sequence[float]) -> list[Array]:
        """Returns the rates of this step, and goes on to the next."""
        if not self._ahead or not 0 <= iteration - self._begin < _AHEAD or tuple(hyper) != self._hyper:
            self._look_ahead(iteration, hyper)
        values = [a[iteration - self._begin, ...] for a in self._ahead]
        count = len(self._dtypes)
        self.scalars = values[count:]
        if self.keeps:
            self._append(values[:count])
        return values[:count]

    def _look_ahead(self, iteration: int, hyper: Sequence[float]) -> None:
        given = [np.asarray(h, self._float) for h in hyper]
        results = _clock_ahead(self._code, len(self._dtypes))(np.int32(iteration), given, self.scalars)
        self._ahead = [np.asarray(r) for r in results]
        self._begin, self._hyper = iteration, tuple(hyper)

    def window(self, starts: Array, width: int) -> list[Array]:
        """Returns the rates of `width` steps from each of `starts` on, of shape (n, width); beyond the last, any."""
        places = starts - self.first
        size = int(places.max()) + width
        self.past = [p if p.size >= size else np.resize(p, size + _PAST) for p in self.past]
        # Each row is a piece of the past: to index all its elements took a tenth of a server's time (Adam).
        return [as_strided(p, (p.size - width + 1, width), p.strides * 2, writeable=False)[places] for p in self.past]

    def _append(self, values: Sequence[Array]) -> None:
        length = self.stop - self.first
        if self.past and length == self.past[0].size:
            self.past = [np.concatenate([p, np.zeros_like(p)]) for p in self.past]
        for past, value in zip(self.past, values, strict=True):
            past[length] = value
            if not length or past[length - 1] != value:
                self.changed = self.stop
        self.stop += 1

    def state(self) -> dict[str, Array]:
        """Returns arrays that `load_state` takes, for a cut."""
        past = {f"past{i}": p[: self.stop - self.first] for i, p in enumerate(self.past)}
        return {**past, **{f"scalar{i}": s for i, s in enumerate(self.scalars)}, "first": np.int64(self.first)}

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Takes the arrays of `state`."""
        self.first = int(state["first"])
        self.past = [np.array(state[f"past{i}"], d) for i, d in enumerate(self._dtypes)]
        self.stop = self.first + (self.past[0].size if self.past else 0)
        changes = [np.flatnonzero(p[1:] != p[:-1]) for p in self.past]
        self.changed = self.first + max((int(c[-1]) + 1 for c in changes if c.size), default=0)
        self.past = [np.concatenate([p, np.zeros(_PAST, p.dtype)]) for p in self.past]
        self.past = [np.concatenate([p, np.zeros_like(p)]) for p in self.past]
        self.scalars = [np.asarray(state[f"scalar{i}"]) for i in range(len(self.scalars))]
        self._ahead = []

    def restart(self, iteration: int) -> None:
        """Goes on with another count of steps; scalars stay as they are."""
        self.first = self.stop = self.changed = iteration
        self._ahead = []


class Programs:
    """All programs of a rule, compiled when they are first called."""

    def __init__(self, rule: Rule, iteration: int) -> None:
        self.rule = rule
        self.rates = {key: Rates(program, iteration) for key, program in rule.programs.items()}
        self._updates = {key: load(program.update) for key, program in rule.programs.items()}
        self._replays = {key: load(p.replay) for key, p in rule.programs.items() if p.replay is not None}

    def restart(self, iteration: int) -> None:
        """Goes on with another count of steps; scalars stay as they are."""
        for clock in self.rates.values():
            clock.restart(iteration)

    def begin_update(self, key: str, rates: Sequence[Array], arrays: Sequence[Array]) -> Sequence[jax.Array]:
        """Begins to update rows; returns value and slots as XLA's arrays, which may be flat, and not computed yet."""
        if self.rule.programs[key].is_elementwise:
            arrays = [a.reshape(-1) for a in arrays]
        return self._updates[key](*rates, *arrays)

    def begin_updates(self, keys: Sequence[str], arguments: Sequence[Sequence[Array]]) -> Sequence[Sequence[jax.Array]]:
        """Begins to compute updates of several variables; each has its rates before its arrays."""
        return _joint(tuple(self.rule.programs[key].update for key in keys))(list(map(list, arguments)))

    def replay(self, key: str, starts: Array, steps: Array, arrays: Sequence[Array]) -> list[Array]:
        """Returns rows after steps without gradient: row i after those from `starts[i]` on, `steps[i]` of them.

        Args:
            key: Of the program.
            starts: The steps that rows begin with.
            steps: How many follow, at least 1; in ascending order.
            arrays: Value and slots of the rows.
        """
        results = [np.empty_like(a) for a in arrays]
        end = steps.size
        while end:
            # Rows with nearly as many steps go together: the others would wait for the longest.
            # Never for one step alone: of that XLA leaves the lookup of the rate out, and rounds Ftrl otherwise.
            width = max(2, 1 << (int(steps[end - 1]) - 1).bit_length())
            begin = 0 if width == 2 else int(np.searchsorted(steps, width // 2, "right"))
            size = _size_of_group(end - begin)
            # Rows with fewer steps fill the size up.
            own = slice(max(0, end - size), end)
            count = pad_to_bucket(steps[own].astype(np.int32), size)
            window = [pad_to_bucket(w, size) for w in self.rates[key].window(starts[own], width)]
            given = [pad_to_bucket(a[own], size) for a in arrays]
            for result, new in zip(results, self._replays[key](count, *window, *given), strict=True):
                result[own] = np.asarray(new)[: own.stop - own.start]
            end = own.start
        return results


def _size_of_group(count: int) -> int:
    """Returns a power of two near `count`: where it is the next lower one, the rest of the rows makes a group again."""
    size = coarse_bucket(count)
    return size if size == _LEAST or count > 3 * size // 4 else size // 2


def pad_to_bucket(array: Array, size: int) -> Array:
    """Returns an array with zeros appended to the size of its bucket."""
    if len(array) == size:
        return array
    result = np.zeros((size, *array.shape[1:]), array.dtype)
    result[: len(array)] = array
    return result
