"""A trace of JAX that computes as if it were not there, and shows tapes what was computed.

JAX hands each operation to the current trace. `Recording` hands it on to the trace around it, which computes it:
outside of `jax.jit` at once. Results are what they would be without it: arrays, or placeholders of code that is being
compiled. Tapes know them by identity, as TensorFlow's know tensors by their number.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import core
from jax._src.array import ArrayImpl

from lockstep._types import Array, Variable
from lockstep.compat.tensorflow._tape import jaxpr_identity
from lockstep.compat.tensorflow._tape.entry import Entry, staged_entry

_STOPS = "stop_gradient"
_own = threading.local()


class Recording(core.Trace):
    """Hands operations to the trace around it, and their results to the open tapes.

    Attributes:
        parent: The trace around it.
        tapes: The tapes that are recording, outermost first.
        hosts: Watched tensors of the host, by their identity, and the arrays that stand for them.
    """

    def __init__(self, parent: Any) -> None:
        super().__init__()
        self.requires_low = parent.requires_low
        self.parent = parent
        self.tapes: list[Any] = []
        self._open: list[Any] = []
        self.hosts: dict[int, tuple[Any, Array]] = {}
        self._memory: dict[Any, Array] = {}
        # By the variable's identity: it, its value, and the array that stands for this value on the tapes.
        self._reads: dict[int, tuple[Variable, Array, Array]] = {}

    def stage_value(self, val: Any) -> Any:
        """Lifts a value into the trace around."""
        (found,) = self._with_watched((val,))
        # Itself, or what stands for it: the identity is what tapes know it by.
        return found if isinstance(found, jax.Array) else self.parent.stage_value(found)

    def process_primitive(self, primitive: Any, tracers: Sequence[Any], params: dict[str, Any], /) -> Any:
        """Computes an operation."""
        tracers = self._with_watched(tracers)
        # Loops and conditions are traced anew at each call: the same ones are compiled once.
        params = jaxpr_identity.canonical(params)
        found = self.parent.process_primitive(primitive, tracers, params)
        if primitive.name == _STOPS:
            return self._alias(found)
        self._show(tracers, found if primitive.multiple_results else [found], lambda: Entry.of(primitive, params))
        return found

    def process_custom_jvp_call(
        self, primitive: Any, fun: Any, jvp: Any, tracers: Sequence[Any], /, **rest: Any
    ) -> Any:
        """Computes a function that has a rule of its own for derivatives."""
        return self._custom("process_custom_jvp_call", primitive, (fun, jvp), tracers, rest)

    def process_custom_vjp_call(
        self, primitive: Any, fun: Any, fwd: Any, bwd: Any, tracers: Sequence[Any], /, **rest: Any
    ) -> Any:
        """Computes a function that has a rule of its own for derivatives."""
        return self._custom("process_custom_vjp_call", primitive, (fun, fwd, bwd), tracers, rest)

    def _custom(self, process: str, primitive: Any, functions: Any, tracers: Sequence[Any], rest: Any) -> Any:
        tracers = self._with_watched(tracers)
        if not any(tape.knows(tracers) for tape in self.tapes):
            return getattr(self.parent, process)(primitive, *functions, tracers, **rest)
        # What a rule's derivative is shows only once it is traced, which a function is the first time.
        with core.set_current_trace(self.parent):
            entry, constants, has_run = staged_entry(process, primitive, functions, tracers, rest)
            # JAX's wrappers of a function note what it returned, and do so once.
            found = entry.call([*constants, *tracers]) if has_run else functions[0].call_wrapped(*tracers)
        results = [self._alias(r) if any(r is t for t in tracers) else r for r in found]
        self._show([*constants, *tracers], results, lambda: entry)
        return results

    def process_call(self, call_primitive: Any, f: Any, tracers: Sequence[Any], params: dict[str, Any], /) -> Any:
        """Computes a call whose function is not traced yet: its operations are recorded one by one."""
        del call_primitive, params
        with core.set_current_trace(self):
            return f.call_wrapped(*tracers)

    def read(self, variable: Variable, value: Any) -> Any:
        """Returns the array that stands for a variable's value, and for nothing else, on the tapes."""
        if core.trace_ctx.trace is not self and _trace_of(value) not in (None, self.parent):
            return value  # Of code that is being traced further inside.
        known = self._reads.get(id(variable))
        if known is not None and known[2] is value:
            return value  # It has been told already.
        if known is None or known[1] is not value:
            # Two variables may share an array, or the program has it from elsewhere: then it is no read of this one.
            known = self._reads[id(variable)] = (variable, value, self._alias(value))
        for tape in self.tapes:
            tape.note_read(variable, known[2])
        return known[2]

    def watch_host(self, host: Any) -> Array:
        """Returns the array that stands for a tensor of the host."""
        known = self.hosts.get(id(host))
        if known is None:
            with core.set_current_trace(self.parent):
                known = self.hosts[id(host)] = (host, jnp.array(host.view(np.ndarray)))
            self._memory[_place_of(host)] = known[1]
        return known[1]

    def _with_watched(self, values: Sequence[Any]) -> Sequence[Any]:
        """Returns what an operation is given, with arrays for watched tensors of the host."""
        if not self._memory:
            return values
        # JAX hands on its own view of a tensor that a program gives it, which only its memory tells.
        return [v if isinstance(v, jax.Array) else self._memory.get(_place_of(v), v) for v in values]

    def python_call(self, inputs: Sequence[Any], results: Sequence[Any], pull: Callable[..., Any]) -> list[Any]:
        """Records a call whose derivatives a function of Python's computes; returns what stands for its results.

        Args:
            inputs: The arrays that it was given.
            results: What it computed, unrecorded.
            pull: From derivatives by the results to those by the inputs, `None` where there is none.
        """
        found = [self._alias(result) for result in results]
        self._show(inputs, found, lambda: Entry.of_python(pull, len(inputs), found))
        return found

    def begin(self, tape: Any) -> None:
        """Begins to show a tape what is computed."""
        if not self._open:
            _active().append(self)
        self._open.append(tape)
        self.resume(tape)

    def resume(self, tape: Any) -> None:
        """Goes on to show a tape what is computed."""
        self.tapes.append(tape)
        core.trace_ctx.set_trace(self)

    def pause(self, tape: Any) -> None:
        """Shows a tape nothing more."""
        self.tapes.remove(tape)
        if not self.tapes:
            core.trace_ctx.set_trace(self.parent)

    def end(self, tape: Any) -> None:
        """Ends a tape."""
        self.pause(tape)
        self._open.remove(tape)
        if not self._open:
            _active().remove(self)
            # Nothing is kept alive once nobody records.
            self.hosts.clear()
            self._memory.clear()
            self._reads.clear()

    def _show(self, inputs: Sequence[Any], results: Sequence[Any], make: Callable[[], Entry]) -> None:
        entry = None
        for tape in self.tapes:
            if tape.knows(inputs):
                entry = entry or make().filled(inputs, results)
                tape.record(entry)

    def _alias(self, value: Any) -> Any:
        """Returns another object that is the same array."""
        if type(value) is ArrayImpl and value.is_fully_addressable and len(value.sharding.device_set) == 1:
            # Not a copy: two objects share the memory, of which neither can change anything.
            alias = ArrayImpl(value.aval, value.sharding, [value], committed=value.committed, _skip_checks=True)
            # So that the array is seen to be used: its memory must not be given away.
            alias._lockstep_source = value  # pyright: ignore[reportAttributeAccessIssue]
            return alias
        with core.set_current_trace(self.parent):
            return jnp.array(value, copy=True)


def _trace_of(value: Any) -> Any:
    """Returns the trace that a placeholder is of; `None` for an array."""
    return getattr(value, "_trace", None) if isinstance(value, core.Tracer) else None


def _place_of(value: Any) -> Any:
    """Returns where an array of the host lies; `None` for anything else."""
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return None
    array = np.asarray(value)
    return array.__array_interface__["data"][0], array.shape, array.dtype, array.strides


def _active() -> list[Recording]:
    """Returns the recordings of this thread, of which the last is the innermost."""
    if not hasattr(_own, "active"):
        _own.active = []
    return _own.active


def innermost() -> Recording | None:
    """Returns the innermost recording of this thread, also from inside of a function that JAX traces."""
    active = getattr(_own, "active", None)
    return active[-1] if active else None


def current() -> Recording | None:
    """Returns the recording that operations on this thread are handed to, if it is one."""
    trace = core.trace_ctx.trace
    return trace if type(trace) is Recording else None


def here() -> Recording:
    """Returns the recording for a tape that is opened here: the current one, or a new one."""
    found = current()
    if found is not None:
        return found
    around = core.trace_ctx.trace
    if around is not core.eval_trace:
        return Recording(around)
    # One for all tapes of a thread: what JAX has traced, it keeps by the trace around.
    if not hasattr(_own, "recording"):
        _own.recording = Recording(around)
    return _own.recording


def is_compiling() -> bool:
    """Returns whether JAX is tracing this code to compile it, so that it runs once and its effects are lost."""
    trace = core.trace_ctx.trace
    if type(trace) is not Recording:
        return not core.trace_state_clean()
    return trace.parent is not core.eval_trace


def stands_for(host: Any) -> Any:
    """Returns the array that stands for a tensor of the host that a tape watches; `None` for any other."""
    found = innermost()
    if found is None or not found.hosts:
        return None
    known = found.hosts.get(id(host))
    return None if known is None else known[1]
