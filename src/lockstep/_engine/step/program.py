"""Step programs: a step function compiled for the replicas.

*Global view*: the step is written for the whole batch, and XLA's partitioner divides the work. What one device would
compute is computed, whatever the step does with the batch: normalise over it, compare its examples, draw one mask.

*Replica view*: the step is written for one replica's share and reduces explicitly, for what has a meaning per replica.
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
from jax.sharding import NamedSharding, PartitionSpec

from lockstep._engine.step import backends, chunks, cost, same_program
from lockstep._engine.step.local_state import LocalState
from lockstep._engine.step.outputs import Outputs
from lockstep._engine.step.placement import (
    Placed,
    Split,
    as_share,
    cut_parts,
    from_chief,
    local_copy,
    place_batch,
    place_chunk,
    place_whole,
    shapes_of,
)
from lockstep._engine.step.portions import Lookup, Part, Recipe
from lockstep._engine.step.protocol import Kept, Step, Update
from lockstep._engine.step.recorded import Recorded, record, signature
from lockstep._engine.step.replicas import AXIS, Replicas
from lockstep._engine.step.residuals import Residuals, compensated, uncompensated
from lockstep._engine.step.rounds import Local
from lockstep._engine.step.same_program import A_STEP, Subject
from lockstep._engine.step.slots import Slots


class CompiledProgram:
    """A step compiled for the replicas.

    Args:
        step: Pure function `(state, batch) -> (outputs, state)` of the whole batch.
        replicas: Where it runs.
        replica_step: The same for one replica's share, combining outputs and state over `replicas.AXIS` itself;
            if given, batches that divide evenly run in the replica view.
        kept: Which outputs a dispatch of several steps hands out.
        repeats: Whether several steps may go into one dispatch.
        local: If replicas train by themselves in between, how; then `step` and `replica_step` do not count.
        slots: Returns which leaves of the state are an optimizer's, by number, if the replicas may divide these.
        subject: What messages call the step, and how to explain that it is another one on some task.
        update: If given, `replica_step` returns in place of a state what this one makes it of, which XLA divides:
            `(state, made) -> state`. It is traced right after it.
    """

    def __init__(
        self,
        step: Step,
        replicas: Replicas,
        replica_step: Step | None = None,
        kept: Kept = "last",
        repeats: bool = True,
        local: Local | None = None,
        slots: Callable[[], Collection[int]] | None = None,
        subject: Subject = A_STEP,
        update: Update | None = None,
    ) -> None:
        self._replicas = replicas
        self.runtime = replicas.runtime
        self._step = step
        self._replica_step = replica_step
        self._spare: LocalState | None = None
        self._update = update
        compresses = replicas.reduction is not None and replicas.reduction.compresses
        self._residuals = Residuals(replicas) if replica_step is not None and compresses else None
        self._local = None if local is None else LocalState(local, replicas)
        if local is not None and local.rounds.averages and replicas.count == 1:
            # Its mean is itself: it trains as without rounds, unless it has to go on in one that several have begun.
            self._local, self._spare = None, self._local
        self._kept: Kept = kept
        self._subject = subject
        self._records: dict[Any, Recorded] = {}
        # The digests of those that were compared with the other tasks'.
        self._compared: dict[Any, str] = {}
        self._own_steps: dict[Any, Step] = {}
        # Whether several steps go into one dispatch, once that is decided.
        self._repeats: bool | None = None if repeats else False
        self._output_bytes = 0
        self.pace = chunks.Pace(replicas.runtime.is_alone)
        divides = replicas.divides_slots and replicas.count > 1
        self.slots = None if slots is None or not divides else Slots(replicas, slots)
        # What is divided says itself where it lies.
        lies = (replicas.whole, (None if self.slots else replicas.whole, replicas.by_example))
        self._jit = partial(jax.jit, out_shardings=lies)
        once = backends.rewritten(self._platform, self._traced, (0, 1, 2))
        self._once = self._jit(once, static_argnums=(0, 1, 2), donate_argnums=3)

    @cached_property
    def _repeat(self) -> Callable[..., Any]:
        options = backends.compiler_options(self._platform)
        repeated = backends.rewritten(self._platform, self._repeated, (0, 1))
        return self._jit(repeated, static_argnums=(0, 1), donate_argnums=2, compiler_options=options)

    def __call__(self, state: Any, batch: Placed) -> tuple[Any, Any]:
        """Runs one step; `state` is donated."""
        carried = self._carried(state, batch)
        outputs, after = self._once(batch.split, batch.counts, batch.recipe, carried, batch.data)
        return outputs, self._parted(after, 1)

    def run(self, state: Any, placed: Placed) -> tuple[Outputs, Any]:
        """Runs as many steps as `placed` has; `state` is donated."""
        if not placed.places:
            outputs, after = self(state, placed)
            return Outputs(outputs, None, self.local), after
        first, steps = np.int32(placed.first), np.int32(placed.steps)
        carried = self._carried(state, placed)
        outputs, after = self._repeat(placed.split, placed.recipe, carried, placed.data, first, steps)
        places = range(placed.first, placed.first + placed.steps) if self._kept == "all" else None
        return Outputs(outputs, places, self.local), self._parted(after, placed.steps)

    @property
    def room(self) -> int:
        """How many steps the next dispatch may run."""
        return self.pace.most if self._local is None else min(self.pace.most, self._local.room)

    def prepare(self, batch: Any) -> Any:
        """Makes of a batch on the host what is to be placed."""
        return as_share(self._replicas, batch)

    def decide(self, state: Any, batch: Any) -> None:
        """Decides whether several steps go into one dispatch; all tasks do it together.

        Args:
            state: What the steps change.
            batch: A first batch, prepared; or `None` if this task has none.
        """
        if self._repeats is None:
            runtime = self._replicas.runtime
            # The chief decides: all tasks must run the same program.
            mine = self._judged(state, batch) if runtime.is_chief and batch is not None else None
            self._repeats, self._output_bytes = runtime.all_gather_object("the first batch", mine)[0] or (False, 0)

    def compiled(self) -> list[str]:
        """Returns a short digest of each step that was compiled, in their order: JSON, equal on all tasks."""
        return [digest[:12] for digest in self._compared.values()]

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
        return [len(self._replicas.runtime.tasks), self._replicas.count]

    def _judged(self, state: Any, batch: Any) -> tuple[bool, int] | None:
        """Whether several steps should go into one dispatch, and how many bytes each hands out that are kept."""
        shapes = shapes_of(self._replicas, batch)
        rows = next((leaf.shape[0] for leaf in jax.tree.leaves(shapes) if leaf.shape), 0)
        if isinstance(batch, Part) and not rows:
            return None
        split = Split.EVEN if rows and rows % self._replicas.count == 0 else Split.WHOLE
        carried = self._carried_shapes(split, state, shapes)
        recorded = self._recorded(split, carried, shapes)
        arrays = len(jax.tree.leaves(carried))
        pays = chunks.pays(self._seconds(recorded, split), arrays)
        return pays and recorded.keeps(carried), _nbytes(recorded.outputs) if self._kept == "all" else 0

    def places(self, batch: Any) -> int:
        """Returns how many batches like a prepared one may be placed together; 0 if each goes alone."""
        if not self._repeats or isinstance(batch, Part):
            return 0
        nbytes = batch.rows.nbytes if isinstance(batch, Lookup) else _nbytes(shapes_of(self._replicas, batch))
        return chunks.places_for(nbytes, self._output_bytes, self._replicas.runtime.is_alone)

    def place(self, batches: Sequence[Any]) -> Placed:
        """Puts prepared batches that go together on the devices."""
        places = self.places(batches[0])
        return place_chunk(self._replicas, batches, places) if places else place_batch(self._replicas, batches[0])

    def place_batch(self, batch: Any) -> Placed:
        """Puts a global batch on the devices."""
        return place_batch(self._replicas, self.prepare(batch))

    def place_state(self, value: jax.Array) -> jax.Array:
        """Puts a full copy on every device."""
        return place_whole(self._replicas, value)

    def agree_on_state(self, state: list[jax.Array]) -> list[jax.Array]:
        """Makes the chief's content of the state everyone's."""
        if self._local is not None:
            state = [v if (own := self._local.visible(v)) is None else self.place_state(own) for v in state]
        return from_chief(self._replicas, state)

    def local(self, value: Any) -> Any:
        """Returns this process' copy; of what stays each replica's own, that of its first replica."""
        return jax.tree.map(self._local_copy, value)

    def _local_copy(self, value: jax.Array) -> jax.Array:
        own = None if self._local is None else self._local.visible(value)
        return local_copy(value) if own is None else own

    def settle(self, state: Any, ends: bool) -> Any:
        """Has the state hold what replicas came to by themselves: all, where training ends, or else metrics."""
        return state if self._local is None else self._local.settle(state, ends)

    def residuals(self) -> dict[str, np.ndarray]:
        """Returns what was not sent of gradients, if they travel in fewer bytes."""
        kept = self._local or self._residuals
        return {} if kept is None else kept.fetch()

    def restore_residuals(self, values: Mapping[str, Any]) -> None:
        """Takes over what `residuals` has returned; gradients that travel as they are need none.

        Raises:
            CheckpointError: If they are something else.
        """
        if self._spare is not None and values:
            self._local, self._spare = self._spare, None
        kept = self._local or self._residuals
        if kept is not None:
            kept.restore(values)

    def _carried(self, state: Any, placed: Placed) -> tuple[Any, Any]:
        """What a step takes: the state, and what was not sent of gradients, if it is to be added."""
        if self._local is not None:
            return self._local.take(state)
        if self._residuals is None or placed.split is not Split.EVEN:
            return state, ()
        if self._residuals.shapes is None:
            batch = jax.eval_shape(partial(self._first_batch, placed), placed.data)
            self._residual_shapes(placed.split, state, batch)
        return state, self._residuals.take()

    def _parted(self, carried: tuple[Any, Any], steps: int) -> Any:
        """The state alone."""
        if self._local is not None:
            return self._local.give(*carried, steps)
        state, residuals = carried
        if self._residuals is not None and residuals:
            self._residuals.give(residuals)
        return state

    def _carried_shapes(self, split: Split, state: Any, batch: Any) -> tuple[Any, Any]:
        if self._local is not None:
            return self._local.shapes(state)
        return state, self._residual_shapes(split, state, batch)

    def _residual_shapes(self, split: Split, state: Any, batch: Any) -> Any:
        if self._residuals is None or self._replica_step is None or split is not Split.EVEN:
            return ()
        backends.begin_program()
        return self._residuals.learn(self._replica_step, state, batch)

    def _first_batch(self, placed: Placed, data: Any) -> Any:
        if placed.places:
            return self._batch_at(placed.split, placed.recipe, data, 0)
        return self._divided(placed.split, _batch(placed.recipe, data, placed.counts))

    @property
    def _platform(self) -> str:
        return self._replicas.local[0][1].platform

    def _seconds(self, recorded: Recorded, split: Split) -> float:
        """About how long a step takes. Devices that are parts of one CPU do all of this process' work together."""
        count, platform = self._replicas.count, self._platform
        here = len(self._replicas.local) if platform == "cpu" else 1
        # What is recorded is the work of one replica in the replica view, else that of all.
        recorded_for = count if self._replica_step is None and self._local is None else 1
        part = here / recorded_for if split is Split.EVEN else 1.0
        return cost.seconds(recorded.jaxpr.jaxpr, platform) * part

    def _traced(
        self, split: Split, counts: tuple[int, ...], recipe: Recipe | None, carried: Any, data: Any
    ) -> tuple[Any, Any]:
        """One step."""
        batch = self._divided(split, _batch(recipe, data, counts))
        outputs, after = self._step_for(split, carried, batch)(carried, batch)
        return outputs, after if self.slots is None else (self.slots.kept(after[0]), after[1])

    def _repeated(
        self, split: Split, recipe: Recipe | None, start: Any, data: Any, first: Any, steps: Any
    ) -> tuple[Any, Any]:
        """Steps on the batches of a chunk, one after the other."""
        batch_at = partial(self._batch_at, split, recipe, data)
        batch = jax.eval_shape(batch_at, first)
        recorded, step = self._recorded(split, start, batch), self._step_for(split, start, batch)
        everything = self._kept == "all"
        room = (_places(data, recipe),) if everything else ()

        def one(place: Any, carried: tuple[Any, Any]) -> tuple[Any, Any]:
            outputs, now = carried
            new, after = step(now, batch_at(place))
            if everything:
                new = jax.tree.map(lambda a, v: lax.dynamic_update_index_in_dim(a, v, place, 0), outputs, new)
            return jax.tree.map(_typed, outputs, new), self._kept_where_it_lies(now, after)

        nothing = jax.tree.map(lambda s: jnp.zeros((*room, *s.shape), s.dtype), recorded.outputs)
        outputs, after = lax.fori_loop(first, first + steps, one, (nothing, start))
        # And as it leaves the loop: of a state in parts `out_shardings` says nothing.
        return outputs, self._kept_where_it_lies(start, after)

    def _batch_at(self, split: Split, recipe: Recipe | None, data: Any, place: Any) -> Any:
        """The batch at a place of a chunk."""
        shared, stacked = ((data[0],), data[1]) if recipe else ((), data)
        own = jax.tree.map(lambda a: lax.dynamic_index_in_dim(a, place, keepdims=False), stacked)
        return self._divided(split, _batch(recipe, (*shared, own) if recipe else own, ()))

    def _kept_where_it_lies(self, before: Any, after: Any) -> Any:
        """What a loop carries on, of the same types and in the same place as before."""
        now = jax.tree.map(_typed, before, after)
        if self._replicas.count == 1:
            return now
        state = (self.slots.kept if self.slots else self._whole)(now[0])
        return state, jax.tree.map(lambda a: lax.with_sharding_constraint(a, self._replicas.by_example), now[1])

    def _whole(self, state: Any) -> Any:
        return jax.tree.map(lambda a: lax.with_sharding_constraint(a, self._replicas.whole), state)

    def _recorded(self, split: Split, carried: Any, batch: Any) -> Recorded:
        """The step for batches of these shapes, traced once."""
        key = _key(split, carried, batch)
        if key not in self._records:
            step = uncompensated(self._step)
            if self._local is not None:
                step = partial(self._on_each_replica, self._local.step(split is not Split.EVEN), split)
            elif split is Split.EVEN and self._replica_step is not None:
                compensates = compensated if self._residuals is not None else uncompensated
                step = self._updated(partial(self._on_each_replica, compensates(self._replica_step), split))
            backends.begin_program()
            self._records[key] = record(step, carried, batch)
        return self._records[key]

    def _updated(self, first: Step) -> Step:
        """A step whose replicas leave the update to XLA; or the step itself."""
        update = self._update
        if update is None:
            return first

        def both(carried: tuple[Any, Any], data: Any) -> tuple[Any, tuple[Any, Any]]:
            outputs, (made, kept) = first(carried, data)
            return outputs, (update(carried[0], made), kept)

        return both

    def _step_for(self, split: Split, carried: Any, batch: Any) -> Step:
        """The recorded step, or what each replica does of it where that lets its sums take a quicker way than XLA's."""
        recorded = self._recorded(split, carried, batch)
        self._demand_same(_key(split, carried, batch), recorded)
        count = self._replicas.count
        is_explicit = self._replica_step is not None or self._local is not None
        if split is not Split.EVEN or is_explicit or not backends.all_reduce(AXIS, count):
            return recorded
        key = _key(split, carried, batch)
        if key not in self._own_steps:
            axes = None if self.slots is None else self.slots.axes(carried)
            own = backends.partition(self._platform, recorded, carried, batch, self._replicas, axes)
            specs = None if self.slots is None else self.slots.specs(carried[0])
            step = partial(self._on_each_replica, own, split, specs=specs)
            self._own_steps[key] = recorded if own is None else step
        backends.begin_program()
        return self._own_steps[key]

    def _demand_same(self, key: Any, recorded: Recorded) -> None:
        """Raises `MismatchError` if other tasks have recorded another step; each record is compared once."""
        if key not in self._compared:
            subject, record = self._subject, recorded.jaxpr
            explain = partial(subject.explain, record.in_avals)
            runtime = self._replicas.runtime
            self._compared[key] = same_program.demand_same(runtime, subject.name, [record], explain, subject.advice)

    def _divided(self, split: Split, batch: Any) -> Any:
        """Has XLA divide a batch among the replicas."""
        if self._replicas.count == 1:
            return batch
        # Replicas that train by themselves cannot divide what does not divide evenly.
        is_whole = split is Split.WHOLE or (split is Split.UNEVEN and self._local is not None)
        sharding = self._replicas.whole if is_whole else self._replicas.by_example
        return jax.tree.map(lambda a: _constrained(a, sharding), batch)

    def _on_each_replica(self, step: Any, split: Split, carried: Any, data: Any, specs: Any = None) -> tuple[Any, Any]:
        whole, divided = PartitionSpec(), PartitionSpec(AXIS)
        state = whole if specs is None else specs
        shares = jax.tree.map(lambda a: divided if a.ndim and split is Split.EVEN else whole, data)
        return jax.shard_map(
            step,
            mesh=self._replicas.mesh,
            in_specs=((state, divided), shares),
            out_specs=(whole, (state, divided)),
            check_vma=False,
        )(carried, data)


def _key(split: Split, carried: Any, batch: Any) -> Any:
    leaves, structure = jax.tree.flatten((carried, batch))
    return split, structure, signature(leaves)


def _batch(recipe: Recipe | None, data: Any, counts: tuple[int, ...]) -> Any:
    """The batch that data on the devices stand for."""
    batch = recipe(*data) if recipe else data
    return cut_parts(batch, counts) if counts else batch


def _constrained(array: Any, sharding: NamedSharding) -> Any:
    return lax.with_sharding_constraint(array, sharding) if array.ndim else array


def _typed(like: Any, value: Any) -> Any:
    """The value as what the loop carries: types that JAX calls weak would change it."""
    return lax.convert_element_type(value, like.dtype)


def _places(data: Any, recipe: Recipe | None) -> int:
    stacked = data[1] if recipe else data
    return jax.tree.leaves(stacked)[0].shape[0]


def _nbytes(shapes: Any) -> int:
    return sum(math.prod(s.shape) * s.dtype.itemsize for s in jax.tree.leaves(shapes))
