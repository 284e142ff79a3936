"""A call that has been prepared, and the threads that compute it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockstep._cpu.onednn.calls import Call
from lockstep._cpu.onednn.library import Argument, Handle, Library
from lockstep._cpu.onednn.memory import Arena
from lockstep._cpu.onednn.pieces import MOST_PIECES, divide
from lockstep._cpu.onednn.plan import Step, plan
from lockstep._cpu.onednn.threads import threads
from lockstep._engine.runtime.buffers import align_size
from lockstep._engine.runtime.local_devices import usable_cores

_Steps = list[tuple[Handle, Any]]


class Operation:
    """A call, with kernels made for its shapes.

    Args:
        dnnl: The library.
        call: What is to be computed.
        arena: Where it has its memory from while it runs.
    """

    def __init__(self, dnnl: Library, call: Call, arena: Arena) -> None:
        self._dnnl, self._arena = dnnl, arena
        cores = usable_cores()
        pieces = divide(call, cores)
        self._threads = max(1, cores // MOST_PIECES) if len(pieces) > 1 else 1
        with dnnl.threads(self._threads):
            self._plan = plan(dnnl, call, pieces)
        # Where those arrays are in the arena that exist only during the call.
        self._offsets: list[int] = []
        self._bytes = 0
        for array in self._plan.arrays:
            self._offsets.append(self._bytes)
            self._bytes += align_size(dnnl.size(array.description)) if array.operand is None else 0
        # Those of calls that are not running: each call has one of its own.
        self._contexts: list[_Context] = []

    def run(self, addresses: Sequence[int]) -> None:
        """Computes it, of arrays at these addresses and into them, in the order of the plan's numbers."""
        try:
            context = self._contexts.pop()
        except IndexError:
            context = _Context(self._dnnl, self._plan.arrays, self._plan.pieces, self._plan.last)
        with self._arena.lend(self._bytes) as start:
            for memory, array, offset in zip(context.memory, self._plan.arrays, self._offsets, strict=True):
                place = start + offset if array.operand is None else addresses[array.operand] + array.offset
                self._dnnl.place(memory, place)
            self._compute(context)
        self._contexts.append(context)

    def _compute(self, context: _Context) -> None:
        first, *others = context.pieces
        executors = threads().beside_caller(len(others))
        given = [executor.submit(self._execute, *piece) for executor, piece in zip(executors, others, strict=True)]
        self._execute(*first)
        for future, piece in zip(given, others, strict=True):
            # What no thread has begun yet is done here.
            if future.cancel():
                self._execute(*piece)
            else:
                future.result()
        if context.last:
            self._execute(first[0], context.last)

    def _execute(self, stream: Handle, steps: _Steps) -> None:
        with self._dnnl.threads(self._threads):
            for primitive, arguments in steps:
                self._dnnl.execute(primitive, stream, arguments)


class _Context:
    """Arrays and streams for one call at a time."""

    def __init__(
        self, dnnl: Library, arrays: Sequence[Any], pieces: Sequence[Sequence[Step]], last: Sequence[Step]
    ) -> None:
        self.memory = [dnnl.memory(array.description) for array in arrays]
        self.pieces = [(dnnl.stream(), self._bind(steps)) for steps in pieces]
        self.last = self._bind(last)

    def _bind(self, steps: Sequence[Step]) -> _Steps:
        bound: _Steps = []
        for step in steps:
            arguments = [Argument(number, self.memory[array]) for number, array in step.arguments.items()]
            bound.append((step.primitive, (Argument * len(arguments))(*arguments)))
        return bound
