"""The session that hooks see, and the listener that calls them around steps.

Source: tensorflow/python/training/monitored_session.py.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jax
import keras
import numpy as np

from lockstep._engine.runtime.progress import is_done
from lockstep._engine.step.batches import Outputs
from lockstep._engine.step.jaxprs import is_traced
from lockstep._text import Words
from lockstep._types import PyTree
from lockstep.errors import ArgumentError
from lockstep.estimator._core import CompiledModelFn
from lockstep.estimator._hooks import GLOBAL_STEP_ARGS, SessionRunArgs, SessionRunContext, SessionRunValues, next_call
from lockstep.estimator._model_fn.records import SummaryOp
from lockstep.estimator._model_fn.variables import GLOBAL_STEP
from lockstep.estimator._state import VariableState
from lockstep.estimator._types import Hook

# Where no hook limits how many steps a dispatch runs, the program and the input do.
_UNLIMITED_STEPS = 1 << 30
# So many dispatches may run before the host looks at what their steps have checked.
_UNSEEN_CHECKS = 8


class Signals(Protocol):
    """Signals between workers, received by all after the same step; a feed transports them."""

    def broadcast(self, signal: str) -> None:
        """Broadcasts a signal that all workers receive after the same step."""

    def has_received(self, signal: str) -> bool:
        """Returns whether all workers have received a signal, and forgets it."""
        ...


class AloneSignals:
    """Signals of a single process, received at once."""

    def __init__(self) -> None:
        self._pending: set[str] = set()

    def broadcast(self, signal: str) -> None:
        self._pending.add(signal)

    def has_received(self, signal: str) -> bool:
        is_pending = signal in self._pending
        self._pending.discard(signal)
        return is_pending


class Session:
    """The session of one run, for hooks.

    Source: the methods of tf.compat.v1.Session that tf.estimator's hooks use.

    `save` writes a checkpoint, `(directory, basename, step, together) -> path`; `flush` waits until all are written.

    Attributes:
        global_step: The number of steps done.
        batches: The number of batches this run has used.
        is_chief: Whether this process writes.
        is_stopping: Whether the run ends after this step.
        is_in_run: Whether what is fetched now was asked for together with the step.
    """

    def __init__(
        self,
        compiled: CompiledModelFn,
        state: VariableState,
        step: int,
        is_chief: bool,
        signals: Signals,
        save: Callable[[str, str, int, bool], str] | None = None,
        flush: Callable[[], None] | None = None,
    ) -> None:
        self._compiled = compiled
        self._state = state
        self._signals = signals
        self._save = save
        self._flush = flush
        self._outputs: Outputs | None = None
        # What the checks of steps have counted, as long as nobody has looked.
        self._unseen: deque[Any] = deque()
        self.global_step = step
        self.batches = 0
        self.is_chief = is_chief
        self.is_stopping = False
        self.is_in_run = False

    @property
    def increment(self) -> int:
        """Returns the global step's increment per step; 0 where steps do not train."""
        return self._compiled.increment if self._compiled.mode == "train" else 0

    def run(self, fetches: PyTree, feed_dict: Mapping[str, Any] | None = None) -> Any:
        """Returns values of the state at hand, and of the last step, in the structure of `fetches`.

        Args:
            fetches: "global_step", "loss", names of variables and of values that the model_fn has named, variables and
                values of the model_fn themselves, in dicts, lists and tuples.
            feed_dict: Must be empty: data come from the input_fn.

        Raises:
            ArgumentError: If there is no such thing.
        """
        if feed_dict:
            raise ArgumentError("Nothing can be fed into a step. Received: feed_dict. Let the input_fn yield the data.")
        return self.fetch(fetches, raw=False)

    def fetch(self, fetches: PyTree, raw: bool) -> Any:
        """Fetches values, on the host, or raw: as the device arrays of all steps of the dispatch."""
        if isinstance(fetches, dict):
            return {k: self.fetch(v, raw) for k, v in fetches.items()}
        if isinstance(fetches, (list, tuple)):
            parts = [self.fetch(v, raw) for v in fetches]
            if hasattr(fetches, "_fields"):
                return type(fetches)(*parts)
            return parts if isinstance(fetches, list) else tuple(parts)
        if isinstance(fetches, str):
            # TensorFlow's names of tensors end in ":0"; hooks from there bring them along.
            return self._fetch_named(fetches.removesuffix(":0"), raw)
        if isinstance(fetches, keras.Variable):
            return self._state.value(self._compiled.first_call.scope.key_of(fetches))
        if isinstance(fetches, SummaryOp):
            return self._fetch_summary(fetches, raw)
        path = self._compiled.output_paths.get(id(fetches))
        if path == (GLOBAL_STEP,):
            return self._fetch_named(GLOBAL_STEP, raw)
        if path is None:
            raise ArgumentError(
                "A hook may ask for names, for variables, and for values of the model_fn that it holds as attributes. "
                f"Received: {fetches!r}. Give the value a name: lockstep.estimator.train.record(name, value), or "
                "tf.identity(value, name=name)."
            )
        return self._output(path, raw)

    def assign(self, values: Mapping[str, Any]) -> None:
        """Sets variables, by name: for `Scaffold(init_fn=...)`, which runs before training begins.

        Raises:
            ArgumentError: If there is no such variable, or its shape is another.
        """
        for name, value in values.items():
            entry = self._compiled.variables.entries.get(name)
            if entry is None or entry.shape != np.shape(value):
                raise ArgumentError(
                    f"A value must fit a variable of the model_fn. Received: {name!r} with shape {np.shape(value)}; "
                    f"there is {entry or 'none of that name'}."
                )
            self._state.assign(name, np.asarray(value).astype(entry.dtype))

    def should_stop(self) -> bool:
        """Returns whether the run ends after this step."""
        return self.is_stopping

    def save(self, directory: str, basename: str = "model.ckpt") -> str:
        """Writes a checkpoint of this step; returns its path, without a suffix.

        With several workers it does not hold the position in the data, of which each has a part.

        Raises:
            ArgumentError: If this run does not train.
        """
        return self._write_checkpoint(directory, basename, together=False)

    def save_together(self, directory: str, basename: str = "model.ckpt") -> str:
        """Writes a checkpoint likewise, with the position in the data; all tasks call it after the same step."""
        return self._write_checkpoint(directory, basename, together=True)

    def _write_checkpoint(self, directory: str, basename: str, together: bool) -> str:
        if self._save is None:
            raise ArgumentError(
                "Checkpoints are written by training. Received: save in another run. Use a hook of train."
            )
        return self._save(directory, basename, self.global_step, together)

    def flush(self) -> None:
        """Waits until the checkpoints that were saved are on the disk."""
        if self._flush is not None:
            self._flush()

    def broadcast(self, signal: str) -> None:
        """Broadcasts a signal that all workers receive after the same step."""
        self._signals.broadcast(signal)

    def has_received(self, signal: str) -> bool:
        """Returns whether all workers have received a signal, and forgets it."""
        return self._signals.has_received(signal)

    def record_outputs(self, outputs: Outputs, steps: int) -> None:
        """Records the outputs of steps."""
        # Device arrays: fetching them to the host here would wait for the step, and most hooks read few of them.
        self._outputs = outputs
        if self._compiled.checks:
            self._unseen.append(outputs.all["checks"])
        self.batches += steps
        self.global_step += steps * self.increment

    def verify_checks(self, wait: bool) -> None:
        """Looks at what the model_fn has checked in steps that have ended; with `wait`, in all.

        Raises:
            ArgumentError: If a condition does not hold; labels out of range are one.
        """
        while self._unseen:
            counts = self._unseen[0]
            # Waiting for each step would leave the device idle between two.
            if not wait and len(self._unseen) <= _UNSEEN_CHECKS and not all(map(is_done, counts)):
                return
            self._unseen.popleft()
            for message, count in zip(self._compiled.checks, counts, strict=True):
                if np.any(np.asarray(count) > 0):
                    raise ArgumentError(message)

    def values(self) -> dict[str, np.ndarray]:
        """Returns the variables of checkpoints, on the host."""
        # Without local ones, such as metrics, which each evaluation starts anew.
        return {key: self._state.value(key) for key in self._compiled.variables.checkpoint_keys()}

    def _fetch_named(self, name: str, raw: bool) -> Any:
        if name == GLOBAL_STEP:
            # Counted here: reading the variable would wait for the step in progress.
            return np.int64(self.global_step - (self.increment if self.is_in_run else 0))
        if name == "summaries":
            values = self._output(("summaries",), raw=True)
            ops = zip(self._compiled.summaries, values, strict=True)
            # The Estimator adds the loss to a model_fn's summaries, as TensorFlow's does.
            loss = (SummaryOp("scalar", "loss", None), self._output(("loss",), raw))
            return [loss, *((op, self._on_host(v, raw)) for op, v in ops)]
        if name == "loss":
            return self._output(("loss",), raw)
        if name in self._compiled.names:
            return self._output(("values", name), raw)
        if name in self._state:
            return self._state.value(name)
        known = ["loss", GLOBAL_STEP, *self._compiled.names, *self._compiled.variables.entries]
        # The likely ones, or the first few: a model has hundreds of variables.
        close = difflib.get_close_matches(name, known, 3) or known[:8]
        raise ArgumentError(
            f"A hook asks for values by the names that the model_fn has given. Received: {name!r}; there are "
            f"{', '.join(close)}."
        )

    def _fetch_summary(self, op: SummaryOp, raw: bool) -> SummaryOp:
        # A writer's add_summary takes it, as it takes the bytes that TensorFlow's session gives.
        leaves, structure = jax.tree.flatten(op.value)
        values = [self.fetch(leaf, raw) if is_traced(leaf) else leaf for leaf in leaves]
        return dataclasses.replace(op, value=jax.tree.unflatten(structure, values))

    def _output(self, path: tuple[Any, ...], raw: bool) -> Any:
        """Returns the output at a path."""
        if self._outputs is None:
            raise ArgumentError("Values of a step can be asked for after it. Received: a fetch before the first step.")
        value: Any = self._outputs.all
        for part in path:
            if part not in value and not isinstance(part, int):
                raise ArgumentError(
                    f"A value by name must be known before the first step. Received: {part!r}, which no hook held as "
                    "text when the run began. Keep its name in an attribute of the hook."
                )
            value = value[part]
        return value if path == ("summaries",) else self._on_host(value, raw)

    def _on_host(self, value: PyTree, raw: bool) -> Any:
        # Raw values stay on devices: a hook that reads them later does not wait for the step.
        if raw:
            return value
        # Text is integers and a vocabulary on the device.
        array = value.on_host() if isinstance(value, Words) else np.asarray(value)
        # A dispatch of several steps has a row for each: a hook sees the last step's, as if it were called after it.
        places = self._outputs.slots if self._outputs is not None else None
        return array if places is None else array[places[-1]]


class HookRunner:
    """Listener of the loop that calls hooks before and after steps; `note` receives the outputs of steps."""

    def __init__(self, hooks: Sequence[Any], session: Session, is_alone: bool, note: Callable[[Outputs], None]) -> None:
        self._hooks = list(hooks)
        self._session = session
        self._is_alone = is_alone
        self._note = note
        self._steps = 1
        # Hooks whose `before_run` was called for this step, and `after_run` not yet.
        self._called: list[tuple[Any, SessionRunContext, SessionRunArgs | None]] = []
        self._wants_stop = False
        # The global step after which to call each hook; in the past for hooks that are called after every dispatch.
        # All of them after the first step: a hook's own interval counts from a step that it has seen.
        self._due: list[float] = [session.global_step + 1 for _ in self._hooks]

    def create(self) -> None:
        """Calls `after_create_session` of the hooks."""
        for hook in self._hooks:
            hook.after_create_session(self._session, None)

    def end(self) -> None:
        """Calls `end` of the hooks, after a run without errors."""
        # Before any of them ends: a NaN of the last steps must be known before the last checkpoint.
        self.settle()
        for hook in self._hooks:
            hook.end(self._session)

    def settle(self) -> None:
        """Makes hooks that check steps lazily check all of them now."""
        # In the midst of `after`, when a hook saves: those that check lazily have not seen this step yet, so they are
        # called out of their order.
        self._session.verify_checks(wait=True)
        lazy = [call for call in self._called if hasattr(call[0], "settle")]
        self._called = [call for call in self._called if not hasattr(call[0], "settle")]
        for call in lazy:
            self._call_after_run(*call)
        for hook in self._hooks:
            if hasattr(hook, "settle"):
                hook.settle()

    def max_steps(self, step: int) -> int:
        """Returns the maximum number of steps to dispatch before a hook is due."""
        del step
        session = self._session
        if not session.increment:
            return 1
        # A dispatch may run several steps, but a due hook must be called right after its step.
        left = min((due - session.global_step for due in self._due if due > session.global_step), default=math.inf)
        return _UNLIMITED_STEPS if left == math.inf else max(1, math.ceil(left / session.increment))

    def before(self, step: int, steps: int) -> None:
        """Calls `before_run` of the hooks that are due after these steps."""
        del step
        self._steps = steps
        following = self._session.global_step + steps * self._session.increment
        self._called = []
        for hook, due in zip(self._hooks, self._due, strict=True):
            if due > following and self._session.increment:
                continue
            context = SessionRunContext(SessionRunArgs(None), self._session, steps * self._session.increment)
            request = hook.before_run(context)
            if request is not None and not isinstance(request, SessionRunArgs):
                request = SessionRunArgs(request)
            self._called.append((hook, context, request))

    def after(self, step: int, outputs: Outputs) -> bool:
        """Calls `after_run` of these hooks with their values; returns whether to stop."""
        del step
        self._session.record_outputs(outputs, self._steps)
        self._note(outputs)
        # Not with several workers, of which one would end at another step than the others.
        if self._is_alone:
            self._session.verify_checks(wait=False)
        self._wants_stop = False
        while self._called:
            self._call_after_run(*self._called.pop(0))
        session = self._session
        for number, hook in enumerate(self._hooks):
            if self._due[number] <= session.global_step:
                following = next_call(hook, session.global_step)
                self._due[number] = math.inf if following is None else following
        # TensorFlow's coordinator stops a worker at once; here all workers stop after the same step, when all have the
        # signal, as one that left would leave the others in a collective.
        if self._wants_stop and self._is_alone:
            session.is_stopping = True
        elif self._wants_stop:
            session.broadcast("stop")
        if not self._is_alone and session.has_received("stop"):
            session.is_stopping = True
        return session.is_stopping

    def _call_after_run(self, hook: Hook, context: SessionRunContext, request: SessionRunArgs | None) -> None:
        """Calls `after_run` of a hook with the values that it has requested."""
        results = None
        if request is not None and request.fetches is not None:
            # TensorFlow reads the global step in the run that counts it, before it does: loss = ..., step = 0.
            self._session.is_in_run = request is not GLOBAL_STEP_ARGS and not getattr(request, "raw", False)
            try:
                results = self._session.fetch(request.fetches, getattr(request, "raw", False))
            finally:
                self._session.is_in_run = False
        hook.after_run(context, SessionRunValues(results, None, None))
        self._wants_stop |= context.stop_requested
