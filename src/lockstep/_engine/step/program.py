"""Step programs: a step function compiled for the replicas.

*Global view*: the step is written for the whole batch, and XLA's partitioner divides the work. What one device would
compute is computed, whatever the step does with the batch: normalise over it, compare its examples, draw one mask.

*Replica view*: the step is written for one replica's shard and reduces explicitly, for what has a meaning per replica.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lockstep._engine.step import backends, placement
from lockstep._engine.step.batches import (
    BatchFn,
    DeviceBatch,
    GatherIndices,
    Outputs,
    RaggedShard,
    Split,
    StepsPerExecutionTuner,
    as_even_shard,
    chunk_capacity,
    concat_ragged,
    global_shapes,
)
from lockstep._engine.step.compiler import (
    Adapter,
    Carried,
    Compiler,
    JittedFunction,
    TracedStep,
    shard_over_replicas,
    signature,
    trace_step,
)
from lockstep._engine.step.cost import estimate_seconds, pays
from lockstep._engine.step.error_feedback import gradient_adapter
from lockstep._engine.step.local_sgd import LocalSGD, LocalTraining
from lockstep._engine.step.memory import StepMemory, measure
from lockstep._engine.step.program_digest import A_STEP, Subject
from lockstep._engine.step.protocol import OutputMode, Step, Update
from lockstep._engine.step.replicas import AXIS, Replicas
from lockstep._engine.step.zero1 import OptimizerSharding
from lockstep._types import Array, Batch, PyTree, State


class ShardedOptimizer(Adapter):
    """Carries the state with the optimizer's part of it divided over the replicas; see `zero1`."""

    def __init__(
        self,
        replicas: Replicas,
        sharding: OptimizerSharding,
        replica_step: Step | None = None,
        update: Update | None = None,
    ) -> None:
        super().__init__(replicas, replica_step, update)
        self.optimizer_sharding = sharding
        # The step constrains the state: which leaves are the optimizer's is known when it is traced.
        self.state_sharding = None

    def constrain(self, state: State) -> State:
        """Has XLA leave a state where it lies between steps."""
        return self._sharding.constrain(state)

    def state_specs(self, state: State) -> Any:
        """Returns how each array of a state is divided over the mesh."""
        return self._sharding.specs(state)

    def state_axes(self, carried: Carried) -> Sequence[int | None]:
        """Returns along which axis each array that is carried is divided."""
        return self._sharding.axes(carried)

    @property
    def _sharding(self) -> OptimizerSharding:
        assert self.optimizer_sharding is not None
        return self.optimizer_sharding


def adapter_for(
    replicas: Replicas,
    replica_step: Step | None = None,
    local: LocalTraining | None = None,
    optimizer: Callable[[], Collection[int]] | None = None,
    update: Update | None = None,
) -> Adapter:
    """Returns the adapter of a step program, as the strategy's options ask for.

    Args:
        replicas: Where the program runs.
        replica_step: The step of one replica's shard; see `Adapter`.
        local: How replicas train by themselves in between, if they do; then `replica_step` does not count.
        optimizer: Returns which leaves of the state are an optimizer's, by index, if the replicas may divide these.
        update: Makes the next state of gradients in the global view; see `Adapter`.
    """
    if local is not None:
        return LocalSGD(local, replicas)
    if optimizer is not None and replicas.shards_optimizer_state and replicas.count > 1:
        return ShardedOptimizer(replicas, OptimizerSharding(replicas, optimizer), replica_step, update)
    # In the global view gradients travel as XLA decides.
    return Adapter(replicas) if replica_step is None else gradient_adapter(replicas, replica_step, update)


class StepProgram:
    """A step compiled for the replicas.

    Args:
        step: Pure function `(state, batch) -> (outputs, state)` of the whole batch.
        replicas: Where it runs.
        adapter: Which form of the step is compiled, and what it carries besides the state. Default: the step itself,
            and nothing.
        output_mode: Which outputs a dispatch of several steps hands out.
        repeats: Whether several steps may go into one dispatch.
        subject: What messages call the step, and how to explain that it is another one on some task.
    """

    def __init__(
        self,
        step: Step,
        replicas: Replicas,
        adapter: Adapter | None = None,
        output_mode: OutputMode = "last",
        repeats: bool = True,
        subject: Subject = A_STEP,
    ) -> None:
        self._replicas = replicas
        self.runtime = replicas.runtime
        self._step = step
        self._adapter = Adapter(replicas) if adapter is None else adapter
        # Takes the adapter's place when another one's state is restored.
        self._dormant: LocalSGD | None = None
        if isinstance(adapter, LocalSGD) and adapter.averages_alone:
            self._adapter, self._dormant = Adapter(replicas), adapter
        self._output_mode: OutputMode = output_mode
        self._subject = subject
        self.tuner = StepsPerExecutionTuner(replicas.runtime.is_alone)
        # Whether several steps go into one dispatch, once that is decided; and the bytes that each then hands out.
        self._repeats: bool | None = None if repeats else False
        self._output_bytes = 0
        self._compiler = Compiler(replicas)
        # By split and signature: traced once, then maybe divided by a backend.
        self._traced: dict[Any, TracedStep] = {}  # Before it runs: its cost and digest are looked at.
        self._partitioned: dict[Any, Step] = {}
        self._out_shardings = replicas.whole, (self._adapter.state_sharding, replicas.by_example)
        # The state is donated: weights and optimizer are in the device's memory once while a step runs, not twice.
        self._run_one = self._compiler.compile(self._one_step, (0, 1, 2), (3,), self._out_shardings)

    @cached_property
    def _run_several(self) -> JittedFunction:
        return self._compiler.compile(self._several_steps, (0, 1), (2,), self._out_shardings, is_loop=True)

    # Running

    def __call__(self, state: State, batch: DeviceBatch) -> tuple[PyTree, State]:
        """Runs one step; `state` is donated."""
        carried = self._adapter.wrap(state, batch.split, partial(self._shapes_on_devices, batch))
        outputs, after = self._run_one(batch.split, batch.counts, batch.batch_fn, carried, batch.data)
        return outputs, self._adapter.unwrap(after, 1)

    def run(self, state: State, placed: DeviceBatch) -> tuple[Outputs, State]:
        """Runs as many steps as `placed` has; `state` is donated."""
        if not placed.capacity:
            outputs, after = self(state, placed)
            return Outputs(outputs, None, self.local), after
        # Arguments, not constants: one compiled loop runs any number of steps.
        first, steps = np.int32(placed.first), np.int32(placed.steps)
        carried = self._adapter.wrap(state, placed.split, partial(self._shapes_on_devices, placed))
        outputs, after = self._run_several(placed.split, placed.batch_fn, carried, placed.data, first, steps)
        slots = range(placed.first, placed.first + placed.steps) if self._output_mode == "all" else None
        return Outputs(outputs, slots, self.local), self._adapter.unwrap(after, placed.steps)

    @property
    def max_steps(self) -> int:
        """How many steps the next dispatch may run."""
        limit = self._adapter.max_steps
        return self.tuner.max_steps if limit is None else min(self.tuner.max_steps, limit)

    def synchronize(self, state: State, ends: bool) -> State:
        """Has the state hold what replicas came to by themselves: all, where training ends, or else metrics."""
        return self._adapter.synchronize(state, ends)

    def local(self, value: PyTree) -> PyTree:
        """Returns this process's copy; of what stays each replica's own, that of its first replica."""
        return jax.tree.map(self._adapter.to_local, value)

    # Tracing and compiling

    def _one_step(
        self, split: Split, counts: tuple[int, ...], batch_fn: BatchFn | None, carried: Carried, data: PyTree
    ) -> tuple[PyTree, Carried]:
        batch = self._divide(split, batch_fn(*data) if batch_fn else data, counts)
        outputs, (state, own) = self._step_for(split, carried, batch)(carried, batch)
        # Where `out_shardings` says nothing of the state, the step itself does.
        return outputs, (self._adapter.constrain(state) if self._adapter.state_sharding is None else state, own)

    def _several_steps(
        self, split: Split, batch_fn: BatchFn | None, start: Carried, data: PyTree, first: Array, steps: Array
    ) -> tuple[PyTree, Carried]:
        """Steps on the batches of a chunk, one after the other."""
        batch_at = partial(self._batch_at, split, batch_fn, data)
        batch = jax.eval_shape(batch_at, first)
        traced, step = self._trace(split, start, batch), self._step_for(split, start, batch)
        keeps_all = self._output_mode == "all"
        capacity = (jax.tree.leaves(data[1] if batch_fn else data)[0].shape[0],) if keeps_all else ()

        def one(slot: Array, loop: tuple[PyTree, Carried]) -> tuple[PyTree, Carried]:
            outputs, carried = loop
            new, after = step(carried, batch_at(slot))
            if keeps_all:
                new = jax.tree.map(lambda a, v: lax.dynamic_update_index_in_dim(a, v, slot, 0), outputs, new)
            return jax.tree.map(_as_dtype, outputs, new), self._constrain(carried, after)

        # A loop carries outputs from its start; the first step overwrites them.
        nothing = jax.tree.map(lambda s: jnp.zeros((*capacity, *s.shape), s.dtype), traced.outputs)
        outputs, after = lax.fori_loop(first, first + steps, one, (nothing, start))
        # And as it leaves the loop: of a sharded state `out_shardings` says nothing.
        return outputs, self._constrain(start, after)

    def _batch_at(self, split: Split, batch_fn: BatchFn | None, data: PyTree, slot: Array) -> Batch:
        """Returns the batch in a slot of a chunk."""
        # Resident arrays are there once for all slots; stacked are the rows of each batch, or its arrays.
        stacked = data[1] if batch_fn else data
        own = jax.tree.map(lambda a: lax.dynamic_index_in_dim(a, slot, keepdims=False), stacked)
        return self._divide(split, batch_fn(data[0], own) if batch_fn else own, ())

    def _divide(self, split: Split, batch: Batch, counts: tuple[int, ...]) -> Batch:
        """Has XLA divide a batch among the replicas."""
        if counts:
            batch = concat_ragged(batch, counts)
        if self._replicas.count == 1:
            return batch
        is_whole = split is Split.WHOLE or (split is Split.UNEVEN and not self._adapter.divides_uneven)
        sharding = self._replicas.whole if is_whole else self._replicas.by_example
        return jax.tree.map(lambda a: lax.with_sharding_constraint(a, sharding) if a.ndim else a, batch)

    def _constrain(self, before: Carried, after: Carried) -> Carried:
        """Has a loop carry on arrays of the same dtypes and in the same place as before."""
        state, own = jax.tree.map(_as_dtype, before, after)
        if self._replicas.count == 1:
            return state, own
        own = jax.tree.map(lambda a: lax.with_sharding_constraint(a, self._replicas.by_example), own)
        return self._adapter.constrain(state), own

    def _trace(self, split: Split, carried: Carried, batch: Batch) -> TracedStep:
        """Returns the step for batches of these shapes, traced once."""
        key = _key(split, carried, batch)
        if key not in self._traced:
            self._traced[key] = trace_step(self._adapter.carry(self._step, split), carried, batch)
        return self._traced[key]

    def _step_for(self, split: Split, carried: Carried, batch: Batch) -> Step:
        """Returns the traced step, or one replica's part of it where a backend has a quicker all-reduce than XLA's."""
        traced, key, subject = self._trace(split, carried, batch), _key(split, carried, batch), self._subject
        explain = partial(subject.explain, traced.jaxpr.in_avals)
        self._compiler.check_same(key, subject.name, [traced.jaxpr], explain, subject.advice)
        replicas, adapter = self._replicas, self._adapter
        if split is not Split.EVEN or adapter.is_explicit or not backends.all_reduce(AXIS, replicas.count):
            return traced
        if key not in self._partitioned:
            platform, axes = self._compiler.platform, adapter.state_axes(carried)
            own = backends.partition(platform, traced, carried, batch, replicas, axes)
            specs = adapter.state_specs(carried[0])
            self._partitioned[key] = traced if own is None else shard_over_replicas(replicas, own, split, specs)
        backends.begin_program()
        return self._partitioned[key]

    def _shapes_on_devices(self, placed: DeviceBatch) -> Batch:
        """Returns shapes and dtypes of a global batch, or of one of a chunk."""

        def first_batch(data: PyTree) -> Batch:
            if placed.capacity:
                return self._batch_at(placed.split, placed.batch_fn, data, 0)
            return self._divide(placed.split, placed.batch_fn(*data) if placed.batch_fn else data, placed.counts)

        return jax.eval_shape(first_batch, placed.data)

    def memory(self, state: State, batch: Batch) -> StepMemory:
        """Returns what one step takes of each device's memory, for a state and a global batch of these shapes."""
        return measure(self._run_one, self._replicas, self._adapter, state, batch)

    # Deciding how many steps go into one dispatch

    def decide(self, state: State, batch: Any) -> None:
        """Decides whether several steps go into one dispatch; all tasks do it together."""
        if self._repeats is None:
            # The chief decides: all tasks must run the same program.
            mine = self._judge(state, batch) if self.runtime.is_chief and batch is not None else None
            self._repeats, self._output_bytes = self.runtime.all_gather_object("the first batch", mine)[0] or (False, 0)

    def _judge(self, state: State, batch: Any) -> tuple[bool, int] | None:
        """Returns whether several steps should go into one dispatch, and the bytes of outputs kept of each."""
        count = self._replicas.count
        shapes = global_shapes(self._replicas, batch)
        rows = next((leaf.shape[0] for leaf in jax.tree.leaves(shapes) if leaf.shape), 0)
        if isinstance(batch, RaggedShard) and not rows:
            return None
        split = Split.EVEN if rows and rows % count == 0 else Split.WHOLE
        carried = self._adapter.wrap_shapes(state, split, shapes)
        traced = self._trace(split, carried, shapes)
        # Devices that are parts of one CPU do all of this process's work together. In the replica view the work of one
        # replica is traced, else that of all.
        here = len(self._replicas.local) if self._compiler.platform == "cpu" else 1
        part = here / (1 if self._adapter.is_explicit else count) if split is Split.EVEN else 1.0
        seconds = estimate_seconds(traced.jaxpr, self._compiler.platform) * part
        is_short = pays(seconds, len(jax.tree.leaves(carried)))
        # What a loop carries keeps its shapes and types: a step that changes these runs alone.
        return is_short and traced.keeps(carried), _nbytes(traced.outputs) if self._output_mode == "all" else 0

    def compiled(self) -> list[str]:
        """Returns a short digest of each step that was compiled, in their order: JSON, equal on all tasks."""
        return [digest[:12] for digest in self._compiler.digests]

    def decision(self) -> list[int] | None:
        """Returns what was decided, and for which layout, as JSON; `None` if nothing was."""
        return None if self._repeats is None else [int(self._repeats), self._output_bytes, *self._layout]

    def follow(self, decision: list[int] | None) -> bool:
        """Takes over what was decided for a run that this one goes on with; returns whether nothing is left to decide.

        A short last batch must not decide anew: steps in a loop round differently from steps that stand alone. On
        another layout they do anyway.
        """
        if decision is None or decision[2:] != self._layout:
            return False
        if self._repeats is None:
            self._repeats, self._output_bytes = bool(decision[0]), int(decision[1])
        return True

    @property
    def _layout(self) -> list[int]:
        return [len(self.runtime.tasks), self._replicas.count]

    # Placing

    def prepare(self, batch: Any) -> Any:
        """Makes of a batch on the host what is to be placed."""
        return as_even_shard(self._replicas, batch)

    def chunk_capacity(self, batch: Any) -> int:
        """Returns how many batches like a prepared one may be placed together; 0 if each goes alone."""
        # The processes' numbers of rows are constants of the program, and may be others in the next batch.
        if not self._repeats or isinstance(batch, RaggedShard):
            return 0
        is_cached = isinstance(batch, GatherIndices)
        nbytes = batch.rows.nbytes if is_cached else _nbytes(global_shapes(self._replicas, batch))
        return chunk_capacity(nbytes, self._output_bytes, self.runtime.is_alone)

    def place(self, batches: Sequence[Any]) -> DeviceBatch:
        """Puts prepared batches that go together on the devices."""
        capacity = self.chunk_capacity(batches[0])
        if not capacity:
            return placement.place_batch(self._replicas, batches[0])
        return placement.place_chunk(self._replicas, batches, capacity)

    def place_batch(self, batch: Any) -> DeviceBatch:
        """Puts a global batch on the devices."""
        return placement.place_batch(self._replicas, self.prepare(batch))

    def place_state(self, value: jax.Array) -> jax.Array:
        """Puts a full copy on every device."""
        return placement.replicate(self._replicas, value)

    def agree_on_state(self, state: list[jax.Array]) -> list[jax.Array]:
        """Makes the chief's content of the state everyone's."""
        return placement.broadcast_from_chief(self._replicas, [self._adapter.to_global(v) for v in state])

    @property
    def optimizer_sharding(self) -> OptimizerSharding | None:
        """Where the state of an optimizer lies, if replicas divide it."""
        return self._adapter.optimizer_sharding

    # Checkpoints

    def extra_state(self) -> dict[str, np.ndarray]:
        """Returns what the program keeps from step to step besides the state, for a checkpoint."""
        return self._adapter.extra_state()

    def restore_extra_state(self, values: Mapping[str, Any]) -> None:
        """Takes over what `extra_state` has returned; a program that keeps nothing ignores it."""
        if self._dormant is not None and values:
            self._adapter, self._dormant = self._dormant, None
        self._adapter.restore_extra_state(values)


def _key(split: Split, carried: Carried, batch: Batch) -> Any:
    leaves, structure = jax.tree.flatten((carried, batch))
    return split, structure, signature(leaves)


def _as_dtype(like: Array, value: Array) -> Array:
    # Types that JAX calls weak would change what a loop carries.
    return lax.convert_element_type(value, like.dtype)


def _nbytes(shapes: PyTree) -> int:
    return sum(math.prod(s.shape) * s.dtype.itemsize for s in jax.tree.leaves(shapes))
