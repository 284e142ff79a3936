"""The one way from a function of replicas to a compiled program.

The programs of training loops (`program.StepProgram`) and those of `strategy.run` (`distribute._program`) both trace,
compare with the other tasks, rewrite and compile here; an `Adapter` says what a program carries from call to call
besides the state that its caller sees.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend.core import jaxpr_as_fun
from jax.sharding import PartitionSpec

from lockstep._engine.runtime import host_memory
from lockstep._engine.step import backends
from lockstep._engine.step.batches import Split
from lockstep._engine.step.placement import local_copy
from lockstep._engine.step.program_digest import ADVICE, check_same_program
from lockstep._engine.step.protocol import Step, Update
from lockstep._engine.step.replicas import AXIS, Replicas
from lockstep._engine.step.zero1 import OptimizerSharding
from lockstep._types import Array, Batch, Jaxpr, PyTree, PyTreeDef, State

WHOLE, PER_REPLICA = PartitionSpec(), PartitionSpec(AXIS)
# Whoever compiles for less has little to give back, and would wait for 3 to 13 ms more.
_LONG_SECONDS = 1.0
Carried = tuple[Any, Any]
"""Defines what compiled steps take and return in place of the state.

First arrays that all replicas have alike, or that an optimizer's sharding divides; then arrays of which each replica
has its own, with a first axis of replicas.
"""


@dataclass(frozen=True)
class TracedStep:
    """A step `(state, batch) -> (outputs, state)` that has been traced once.

    Attributes:
        jaxpr: What it computes, of flat arguments; closed.
        structure: Of its results.
    """

    jaxpr: Jaxpr
    structure: PyTreeDef

    def __call__(self, state: State, batch: Batch) -> tuple[PyTree, State]:
        """Computes it, as a part of another traced function."""
        return jax.tree.unflatten(self.structure, jaxpr_as_fun(self.jaxpr)(*jax.tree.leaves((state, batch))))

    @property
    def outputs(self) -> PyTree:
        """Shapes and dtypes of the outputs."""
        return jax.tree.unflatten(self.structure, self.jaxpr.out_avals)[0]

    def keeps(self, state: State) -> bool:
        """Returns whether the state comes out with the structure, shapes and dtypes that it went in with."""
        after = jax.tree.unflatten(self.structure, self.jaxpr.out_avals)[1]
        return jax.tree.structure(after) == jax.tree.structure(state) and signature(after) == signature(state)


def trace_step(step: Step, state: State, batch: Batch) -> TracedStep:
    """Traces a step for a state and a batch of these shapes and dtypes."""
    backends.begin_program()
    # Shapes alone: no value can get into the jaxpr, nor is one waited for that a dispatch still computes.
    arguments = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (state, batch))
    jaxpr, shapes = jax.make_jaxpr(step, return_shape=True)(*arguments)
    return TracedStep(jaxpr, jax.tree.structure(shapes))


def signature(tree: PyTree) -> tuple[Any, ...]:
    """Returns the shape and dtype of each array; hashable."""
    return tuple((a.shape, a.dtype) for a in jax.tree.leaves(tree))


def on_each_replica(replicas: Replicas, function: Callable[..., Any], in_specs: Any, out_specs: Any) -> Any:
    """Returns a function in the global view that runs one of a replica's shards on each."""
    # check_vma: what varies is found by `replica_invariance`, which sees through a backend's own all-reduce, too.
    return jax.shard_map(function, mesh=replicas.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


class JittedFunction:
    """A function under `jax.jit` that gives back to the system what compiling it has left free.

    Of a MobileNetV2's step on a CPU that is 0.8 of 1.6 GB. Malloc would keep it, and search it in every step.

    Args:
        function: The function.
        platform: Of the devices that it is compiled for.
        **options: Of `jax.jit`.
    """

    def __init__(self, function: Callable[..., Any], platform: str, **options: Any) -> None:
        self._platform = platform
        # XLA compiles what was traced.
        self._has_traced = False

        @wraps(function)
        def traced(*arguments: Any) -> Any:
            self._has_traced = True
            results = function(*arguments)
            backends.begin_compilation(platform)
            return results

        self._jitted = jax.jit(traced, **options)

    def __call__(self, *arguments: Any) -> Any:
        """Compiles for the signature of the arguments, if that is new, and begins to run."""
        began = time.monotonic()
        results = self._call(self._jitted, arguments)
        if self._has_traced:
            self._has_traced = False
            if time.monotonic() - began > _LONG_SECONDS:
                host_memory.release_free_memory()
            if host_memory.is_kept():
                # Whoever reads the results gets the error of a run that failed.
                with contextlib.suppress(jax.errors.JaxRuntimeError):
                    jax.block_until_ready(results)
                host_memory.separate_large_blocks()
        return results

    def lower(self, *arguments: Any) -> jax.stages.Lowered:
        """Lowers for the signature of the arguments."""
        return self._call(self._jitted.lower, arguments)

    def _call(self, jitted: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        try:
            return jitted(*arguments)
        finally:
            if self._has_traced:
                backends.end_compilation(self._platform)


class Compiler:
    """Compiles the programs of some replicas: passes over the jaxpr, options, shardings, donation."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self.platform = replicas.devices[0].platform
        # The digests of programs that were compared with the other tasks'.
        self._digests: dict[Hashable, str] = {}

    def compile(
        self,
        function: Callable[..., Any],
        static_argnums: tuple[int, ...],
        donate_argnums: tuple[int, ...],
        out_shardings: Any = None,
        is_loop: bool = False,
    ) -> JittedFunction:
        """Returns a function that traces, rewrites and compiles `function` once for each signature of its arguments.

        Args:
            function: In the global view.
            static_argnums: Its arguments that are no arrays.
            donate_argnums: Its arguments whose buffers may be overwritten.
            out_shardings: Where results are to lie, as a prefix of their structure; `None` leaves it to XLA.
            is_loop: Whether it is a loop of steps, for which backends have options of XLA's compiler.
        """
        return JittedFunction(
            backends.apply_passes(self.platform, function, static_argnums, len(self._replicas.devices) > 1),
            self.platform,
            static_argnums=static_argnums,
            donate_argnums=donate_argnums,
            compiler_options=backends.compiler_options(self.platform) if is_loop else None,
            **({} if out_shardings is None else {"out_shardings": out_shardings}),
        )

    def check_same(
        self,
        key: Hashable,
        name: str,
        jaxprs: Sequence[Jaxpr],
        explain: Callable[[], dict[str, Any]],
        advice: str = ADVICE,
    ) -> None:
        """Compares a program with the other tasks', once for each key; see `check_same_program`."""
        # When it is new: the comparison is a message between all tasks, which a short step could not afford each time.
        if key not in self._digests:
            self._digests[key] = check_same_program(self._replicas.runtime, name, jaxprs, explain, advice)

    @property
    def digests(self) -> list[str]:
        """The digests of the programs that were compared, in their order."""
        return list(self._digests.values())


class Adapter:
    """The protocol by which a program carries more than its state, or carries it otherwise.

    This class itself carries the state as it is.

    `wrap` and `unwrap` are the ends of a dispatch, on the host: `unwrap(compiled(wrap(state)))`. `carry` makes of the
    step that a program was given the one that is compiled, of what is carried.

    Args:
        replicas: Where the program runs.
        replica_step: The step of one replica's shard, combining outputs and state over `AXIS` itself. If given, batches
            that divide evenly run in the replica view; else all in the global view.
        update: If given, `replica_step` returns averaged gradients in place of a state; `update(state, gradients)` then
            runs in the global view, where XLA shards it. It is traced right after `replica_step`.

    Attributes:
        state_sharding: Where the state lies when a program has ended; `None` if the adapter says so in the program.
        divides_uneven: Whether XLA divides batches that the replicas cannot divide evenly.
    """

    optimizer_sharding: OptimizerSharding | None = None
    divides_uneven = True

    def __init__(self, replicas: Replicas, replica_step: Step | None = None, update: Update | None = None) -> None:
        self._replicas = replicas
        self._replica_step = replica_step
        self._update = update
        self.state_sharding: Any = replicas.whole

    @property
    def is_explicit(self) -> bool:
        """Returns whether steps are written for one replica, so that XLA has nothing to divide."""
        return self._replica_step is not None

    @property
    def max_steps(self) -> int | None:
        """How many steps may follow before the host has to do something; `None` for no limit."""
        return None

    def wrap(self, state: State, split: Split, batch: Callable[[], Batch]) -> Carried:
        """Returns what the next dispatch consumes; `batch` returns the shapes of a global batch."""
        del split, batch
        return state, ()

    def wrap_shapes(self, state: State, split: Split, batch: Batch) -> Carried:
        """Returns shapes and dtypes of what `wrap` would return."""
        del split, batch
        return state, ()

    def unwrap(self, carried: Carried, steps: int) -> State:
        """Takes what a dispatch of so many steps has returned; returns the state."""
        del steps
        return carried[0]

    def carry(self, step: Step, split: Split) -> Step:
        """Returns the step of what is carried, in the global view, for batches that lie on the replicas as `split`."""
        # `shard_map` has shards of one shape. A batch that does not divide into these runs the step of the whole.
        if self._replica_step is None or split is not Split.EVEN:
            return carrying_nothing(step)
        shard_step = shard_over_replicas(self._replicas, self.carry_replica(self._replica_step), split)
        update = self._update
        if update is None:
            return shard_step

        def step_and_update(carried: Carried, batch: Batch) -> tuple[PyTree, Carried]:
            # Outside of `shard_map`, of the state from before the step: where its arrays are sharded, XLA divides the
            # update.
            outputs, (gradients, own) = shard_step(carried, batch)
            return outputs, (update(carried[0], gradients), own)

        return step_and_update

    def carry_replica(self, step: Step) -> Step:
        """Returns one replica's step of what is carried, made of one of the state."""
        return carrying_nothing(step)

    def constrain(self, state: State) -> State:
        """Has XLA leave a state where it lies between steps."""
        return jax.tree.map(lambda a: lax.with_sharding_constraint(a, self._replicas.whole), state)

    def state_specs(self, state: State) -> Any:
        """Returns how each array of a state is divided over the mesh, as a prefix of its structure."""
        del state
        return WHOLE

    def state_axes(self, carried: Carried) -> Sequence[int | None] | None:
        """Returns along which axis each array that is carried is divided; `None` if none is."""
        del carried
        return None

    def to_global(self, value: Array) -> Array:
        """Returns an array of the state as one that all replicas have alike."""
        return value

    def to_local(self, value: Array) -> Array:
        """Returns an array of the state or of outputs as one of this process."""
        return local_copy(value)

    def synchronize(self, state: State, ends: bool) -> State:
        """Has the state hold what replicas came to by themselves: all, where training ends, or else metrics."""
        del ends
        return state

    def extra_state(self) -> dict[str, np.ndarray]:
        """Returns what the adapter keeps besides the state, for a checkpoint; all tasks call it together."""
        return {}

    def restore_extra_state(self, values: Mapping[str, Any]) -> None:
        """Takes over what `extra_state` has returned; all tasks call it together."""


def carrying_nothing(step: Step) -> Step:
    """Makes of a step of the state one of (state, nothing of each replica's own)."""

    def carried_step(carried: Carried, batch: Batch) -> tuple[PyTree, Carried]:
        outputs, after = step(carried[0], batch)
        return outputs, (after, ())

    return carried_step


def shard_over_replicas(replicas: Replicas, step: Step, split: Split, state_specs: Any = WHOLE) -> Step:
    """Returns a replica's step of what is carried as one in the global view."""

    def sharded(carried: Carried, batch: Batch) -> tuple[PyTree, Carried]:
        # Scalars of a batch, such as a learning rate, go whole to every replica.
        specs = jax.tree.map(lambda a: PER_REPLICA if a.ndim and split is Split.EVEN else WHOLE, batch)
        state = state_specs, PER_REPLICA
        return on_each_replica(replicas, step, (state, specs), (WHOLE, state))(carried, batch)

    return sharded
