"""`sample_from_datasets` and `choose_from_datasets`: elements of several datasets, as chance or another one says."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lockstep.data import _columns
from lockstep.data._blocks import Block, join_blocks
from lockstep.data._map_program import InvalidElementError
from lockstep.data._plan import CHUNK, INFINITE, UNKNOWN, Cursor, DeferredError, Node, Run, State
from lockstep.data._transforms.sequence import CompatibleInputs


class Choose(Node):
    """Elements of several datasets, each from the one that another dataset, or chance, names.

    Args:
        inputs: The datasets, and last the one of choices, or of weights, if there is one.
        weights: float64 (n,), the probability of each dataset, or `None` if the last input holds choices or weights.
        seed: Of the choices by chance.
        stop: Whether the first dataset that ends, ends all.
        each_iteration: Whether the choices by chance differ from pass to pass.
        weights_of: Returns the probability of each dataset for an element of the last input, which then holds weights.
    """

    def __init__(
        self,
        inputs: Sequence[Node],
        weights: Sequence[float] | None,
        seed: int | None,
        stop: bool,
        each_iteration: bool = False,
        weights_of: Callable[[Any], np.ndarray[Any, Any]] | None = None,
    ) -> None:
        self.inputs = tuple(inputs)
        self._weights_of = weights_of
        self._weights = None if weights is None else np.asarray(weights, np.float64)
        self._seed = seed
        self._stop = stop
        self._each_iteration = each_iteration
        self._compatible = CompatibleInputs(self._sources)

    @property
    def _sources(self) -> Sequence[Node]:
        return self.inputs if self._weights is not None else self.inputs[:-1]

    def open(self, run: Run) -> Cursor:
        cursors = [node.open(run.for_input(i)) for i, node in enumerate(self.inputs)]
        wrap = self._compatible.begin()
        sources = [wrap(i, cursor) for i, cursor in enumerate(cursors[: len(self._sources)])]
        choices: _RandomChoices | _ChoiceReader | _WeightedChoices
        if self._weights_of is not None:
            draws = _uniform_draws(lambda chunk: run.random(self._seed, chunk, self._each_iteration))
            choices = _WeightedChoices(cursors[-1], self._weights_of, draws)
        elif self._weights is None:
            choices = _ChoiceReader(cursors[-1], len(sources))
        else:
            choices = _RandomChoices(self._weights, self._seed, self._each_iteration, run)
        return _ChooseCursor(sources, choices, self._stop)

    @property
    def spec(self) -> Any:
        return self._compatible.spec

    @property
    def cardinality(self) -> int:
        counts = [n.cardinality for n in self._sources]
        if self._weights is not None and not self._stop:
            if INFINITE in counts:
                return INFINITE
            return UNKNOWN if UNKNOWN in counts else sum(counts)
        # How many elements a finite input gives depends on the choices.
        if any(n != INFINITE for n in counts):
            return UNKNOWN
        # By choices, the dataset is as long as the choices are.
        return INFINITE if self._weights is not None else self.inputs[-1].cardinality

    @property
    def label(self) -> str:
        weights = self._weights if self._weights is None else self._weights.tolist()
        return f"Choose({weights}, {self._seed}, {self._stop}, {self._each_iteration})"


class _ChooseCursor:
    def __init__(
        self, inputs: list[Cursor], choices: _RandomChoices | _ChoiceReader | _WeightedChoices, stop: bool
    ) -> None:
        self._inputs = inputs
        self._choices = choices
        self._stop = stop
        self._ended = [False] * len(inputs)
        self._deferred = DeferredError()

    def next(self, limit: int) -> Block | None:
        self._deferred.raise_deferred()
        parts: list[Block] = []
        try:
            # Each element is a block of its own here: a chunk bounds what an endless limit would collect.
            while len(parts) < min(limit, CHUNK) and not all(self._ended):
                choice = self._choices.next()
                # A choice of a dataset that has ended is drawn again: its weight goes to the others, as in tf.data.
                block = None if choice is None or self._ended[choice] else self._inputs[choice].next(1)
                if block is not None:
                    parts.append(block)
                elif choice is None or self._stop:
                    self._ended = [True] * len(self._inputs)
                else:
                    self._ended[choice] = True
                    if self._choices.none_left(self._ended):
                        self._ended = [True] * len(self._inputs)
        except Exception as error:
            if not parts:
                raise
            self._deferred.defer(error)
        return join_blocks(parts) if parts else None

    def state(self) -> State:
        return self._deferred.add_to_state(
            {
                "inputs": [c.state() for c in self._inputs],
                "choices": self._choices.state(),
                "ended": list(self._ended),
            }
        )

    def restore(self, state: State) -> None:
        state = self._deferred.take_from_state(state)
        for cursor, saved in zip(self._inputs, state["inputs"], strict=True):
            cursor.restore(saved)
        self._choices.restore(state["choices"])
        self._ended = list(state["ended"])


class _RandomChoices:
    """Random choices, each of which depends on its number alone."""

    def __init__(self, weights: np.ndarray[Any, Any], seed: int | None, each_iteration: bool, run: Run) -> None:
        # A dataset of weight 0 never ends, because it is never read.
        self._possible = (weights > 0).tolist()
        self._limits = np.cumsum(weights / weights.sum())
        self._draws = lambda chunk: run.random(seed, chunk, each_iteration)
        self._chunk = -1
        self._drawn: list[int] = []
        self._number = 0

    def next(self) -> int:
        chunk, place = divmod(self._number, CHUNK)
        if chunk != self._chunk:
            # Inverse of the cumulative distribution: one uniform number per choice, whatever the weights are.
            drawn = np.searchsorted(self._limits, self._draws(chunk).random(CHUNK), side="right")
            self._chunk, self._drawn = chunk, np.minimum(drawn, len(self._limits) - 1).tolist()
        self._number += 1
        return self._drawn[place]

    def none_left(self, ended: list[bool]) -> bool:
        """Returns whether no dataset that goes on can be chosen."""
        return not any(possible and not end for possible, end in zip(self._possible, ended, strict=True))

    def state(self) -> State:
        return self._number

    def restore(self, state: State) -> None:
        self._number = state


class _ChoiceReader:
    """Choices read from a dataset of integers."""

    def __init__(self, cursor: Cursor, count: int) -> None:
        self._cursor = cursor
        self._count = count
        self.state = cursor.state
        self.restore = cursor.restore

    def next(self) -> int | None:
        block = self._cursor.next(1)
        if block is None:
            return None
        choice = np.asarray(block.take())
        if choice.shape != (1,) or choice.dtype.kind not in "iu" or not 0 <= choice[0] < self._count:
            raise InvalidElementError(
                f"A choice must be a whole number from 0 to {self._count - 1}, the number of a dataset. Received one "
                f"that is out of range: {choice.tolist()} of {choice.dtype}."
            )
        return int(choice[0])

    def none_left(self, ended: list[bool]) -> bool:
        """Returns whether no dataset that goes on can be chosen."""
        return all(ended)


def _uniform_draws(draws: Callable[[int], np.random.Generator]) -> Callable[[int], float]:
    """Returns a function from a number to a float from 0 to 1."""
    chunks = functools.lru_cache(2)(lambda chunk: draws(chunk).random(CHUNK).tolist())
    return lambda number: chunks(number // CHUNK)[number % CHUNK]


class _WeightedChoices:
    """Random choices, each by the weights that an element of a dataset stands for."""

    def __init__(
        self, cursor: Cursor, weights_of: Callable[[Any], np.ndarray[Any, Any]], draw: Callable[[int], float]
    ) -> None:
        self._cursor = cursor
        self._weights_of = weights_of
        self._draw = draw
        self._number = 0

    def next(self) -> int | None:
        block = self._cursor.next(1)
        if block is None:
            return None
        limits = np.cumsum(self._weights_of(_columns.element(block.take(), 0)))
        choice = np.searchsorted(limits, self._draw(self._number) * limits[-1], side="right")
        self._number += 1
        return min(int(choice), len(limits) - 1)

    def none_left(self, ended: list[bool]) -> bool:
        """Returns whether no dataset that goes on can be chosen."""
        return all(ended)

    def state(self) -> State:
        return {"upstream": self._cursor.state(), "number": self._number}

    def restore(self, state: State) -> None:
        self._cursor.restore(state["upstream"])
        self._number = state["number"]
