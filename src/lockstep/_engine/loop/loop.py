"""The loop: runs a step program over batches, and calls a listener between dispatches."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

import jax

from lockstep._engine.runtime import progress
from lockstep._engine.runtime.progress import is_done
from lockstep._engine.step.batches import DeviceBatch, Outputs, StepsPerExecutionTuner
from lockstep._engine.step.protocol import Program
from lockstep.errors import Preempted

# Dispatches that may be in flight on the devices while Python goes on. More would only hold more batches in memory.
_IN_FLIGHT = 8
# From so many seconds on a dispatch is slow: what Python does after it, and not beside it, is 1 % of it or less.
_SLOW_SECONDS = 0.015
# Of a slow dispatch's time, and at most so many seconds: how long XLA's thread has to free memory before the next one.
_PAUSE, _LONGEST_PAUSE = 0.005, 0.001


class State(Protocol):
    """The state between steps; a listener may read or change it there."""

    @property
    def global_step(self) -> int | None:
        """Returns the number of the last step, which goes on counting over restarts; `None` if unknown."""
        ...

    def take(self) -> Any:
        """Returns the state for a step, which donates its buffers."""
        ...

    def give(self, state: Any) -> None:
        """Stores the state that a step returned."""
        ...


class Listener(Protocol):
    """Acts between dispatches, and may ask to stop."""

    def max_steps(self, step: int) -> int:
        """Returns how many steps, from `step` on, one dispatch may run: at least 1."""
        ...

    def before(self, step: int, steps: int) -> None:
        """Acts before a dispatch of so many steps, from `step` on (0 for an epoch's first)."""
        ...

    def after(self, step: int, outputs: Outputs) -> bool:
        """Acts after the start of a dispatch that ends with `step`; returns whether to stop."""
        ...


def run(batches: Iterable[DeviceBatch], program: Program, state: State, listener: Listener) -> int:
    """Runs the step program over `batches`, and returns the number of steps.

    Raises:
        Preempted: If a worker was asked to end; between two dispatches, on all workers the same ones. All steps before
            are complete, and `state` holds what they came to.
    """
    preemption = program.runtime.preemption
    account = preemption.progress
    in_flight = _InFlight(program.tuner, account)
    account.begin(state.global_step)
    steps = 0
    with account.being(progress.ELSEWHERE):
        try:
            for chunk in batches:
                done = 0
                while done < chunk.steps:
                    # Only here: all workers are between the same two dispatches.
                    preemption.sync_point()
                    most = min(chunk.steps - done, listener.max_steps(steps), program.max_steps)
                    piece = chunk.slice_steps(done, most)
                    done += piece.steps

                    account.at(progress.CALLBACKS)
                    listener.before(steps, piece.steps)

                    in_flight.make_room()
                    account.at(progress.STEP)
                    progress.mark("called")
                    # Returns before the devices are done; `after` is the state that they will have computed.
                    # The marker divides a profile into steps; without a profiler it takes about a microsecond.
                    with jax.profiler.StepTraceAnnotation("train", step_num=account.steps):
                        outputs, after = program.run(state.take(), piece)
                    state.give(after)
                    account.dispatched(piece.steps)
                    if account.phase is None:
                        # For the record of the run, whose thread reads it when it is computed. In one assignment
                        # with its step: the thread may look at any time.
                        account.outputs = outputs, account.last_step
                    # The very first step is waited for, so that a launcher knows when training goes on.
                    is_first = not progress.has_mark("stepped")
                    if is_first:
                        jax.block_until_ready(outputs.value)
                        progress.mark("stepped")
                    progress.write_progress(account, at_once=is_first)
                    in_flight.add(outputs.value, piece)
                    steps += piece.steps

                    account.at(progress.CALLBACKS)
                    stops = listener.after(steps - 1, outputs)
                    account.at(progress.ELSEWHERE)
                    if stops:
                        return steps
        except Preempted:
            # Whatever is saved next must be complete, and errors of the steps must come up here.
            in_flight.flush()
            preemption.mark_ended()
            raise
    return steps


class _InFlight:
    """The dispatches in flight: a bounded number, and how long they take."""

    def __init__(self, pace: StepsPerExecutionTuner, account: progress.Progress) -> None:
        self._tuner = pace
        self._account = account
        self._waiting: deque[tuple[Any, DeviceBatch]] = deque()
        self._last = time.perf_counter()

    def make_room(self) -> None:
        """Waits before a dispatch for all others, where they are slow and run on CPUs.

        On CPUs each holds the temporary memory of its program, even while it waits for the one before it: three times
        880 MB for MobileNetV2 on 16 pictures of 224x224.
        """
        if self._tuner.seconds < _SLOW_SECONDS or not self._waiting or not _is_on_cpu(self._waiting[-1][0]):
            return
        self._retire(0)
        # XLA's thread frees that memory after it has said that the results are ready, and may have lost its core to
        # this one. Without a pause 20 of 104 steps of that MobileNetV2 took new memory, which takes as long as a step
        # to clear (up to 3,400 MB resident); with one of 1 ms none did (1,690 MB). Nothing says when it is free: a
        # CPU's `memory_stats()` is None.
        time.sleep(min(self._tuner.seconds * _PAUSE, _LONGEST_PAUSE))

    def add(self, outputs: Any, piece: DeviceBatch) -> None:
        """Adds one, after waiting for those before it: for single steps some, for many in one dispatch all but one.

        Those that are done are retired now: where a call runs its program synchronously, also the one just added.
        """
        self._waiting.append((outputs, piece))
        self._retire(1 if piece.capacity else _IN_FLIGHT)

    def _retire(self, most: int) -> None:
        """Waits until at most so many are in flight, and retires those that are done."""
        # Time spent here is the devices', not the callbacks': `lockstep run` tells which of them hangs.
        self._account.at(progress.DEVICES)
        while self._waiting and (len(self._waiting) > most or all(map(is_done, jax.tree.leaves(self._waiting[0][0])))):
            oldest, its_piece = self._waiting.popleft()
            jax.block_until_ready(oldest)
            now = time.perf_counter()
            self._tuner.record(its_piece.steps, now - self._last, is_loop=bool(its_piece.capacity))
            self._last = now

    def flush(self) -> None:
        """Waits for all."""
        self._retire(0)


def _is_on_cpu(outputs: Any) -> bool:
    """Returns whether CPU devices compute some outputs."""
    arrays = [leaf for leaf in jax.tree.leaves(outputs) if isinstance(leaf, jax.Array)]
    return bool(arrays) and next(iter(arrays[0].devices())).platform == "cpu"
