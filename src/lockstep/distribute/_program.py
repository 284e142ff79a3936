"""Programs of `Strategy.run`: a function of one replica, compiled for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import jaxpr_as_fun
from jax.sharding import PartitionSpec

from lockstep._engine.step import backends, sequential_emulation
from lockstep._engine.step.batches import Split
from lockstep._engine.step.compiler import Carried, Compiler, on_each_replica
from lockstep._engine.step.error_feedback import ErrorFeedback, gradient_adapter
from lockstep._engine.step.jaxprs import is_traced, name_of
from lockstep._engine.step.program_digest import describe
from lockstep._engine.step.replicas import AXIS, Replicas
from lockstep._types import Array, Batch, Jaxpr, PyTree, Variable
from lockstep.distribute._again import Again
from lockstep.distribute._arguments import OWN, OWN_SCALAR, Fixed, Numbers, Shapes, rows_of
from lockstep.distribute._collectives import Traced
from lockstep.distribute._context import ReplicaContext
from lockstep.distribute._replica_values import is_own
from lockstep.distribute._trace import Known, Made, Trace
from lockstep.distribute._values import PerReplica, Shape

if TYPE_CHECKING:
    from lockstep.distribute._held import Held

# A variable of which each replica has its own value.
_ROW = "row"
_WHOLE = ""
_OWN = (OWN, OWN_SCALAR, _ROW)


class Packed:
    """The results of a program, which carry what its trace says of them.

    Attributes:
        made: What the trace says.
        outputs: Arrays that the function returns; lists of one for each replica where they may differ in shape.
        values: Of the assigned variables.
        reads: What is read of them.
    """

    def __init__(self, made: Made, outputs: Sequence[Any], values: Sequence[Any], reads: Sequence[Any]) -> None:
        self.made = made
        self.outputs = outputs
        self.values = values
        self.reads = reads

    @property
    def last(self) -> Any:
        """One of the arrays, by which to know that they are there; the last one is the least likely to be given away.

        `None` while an outer function is traced, and if there is none.
        """
        found = [*self.values[-1:], *jax.tree.leaves(self.outputs[-1:])[-1:]]
        return found[-1] if found and not is_traced(found[-1]) else None


# What a trace says is metadata of its results' tree: jit hands it back with each compiled signature, so that a call
# with earlier shapes gets what was said of these.
jax.tree_util.register_pytree_node(
    Packed, lambda p: ((p.outputs, p.values, p.reads), p.made), lambda made, parts: Packed(made, *parts)
)


class Program:
    """A function compiled for all replicas, for arguments that are alike but for the shapes of arrays.

    Args:
        strategy: Whose replicas.
        replicas: Where it runs.
        function: Of one replica.
        structure: Of its arguments, (args, kwargs).
        key: What each leaf is.
        numbers: Which of Python's numbers are a part of the program.
        donated: The numbers of leaves whose arrays may be overwritten.

    Attributes:
        convert: Makes of a function the one that is traced in its place; for who converts its conditions and loops.
    """

    convert: ClassVar[Callable[[Callable[..., Any]], Callable[..., Any]]] = staticmethod(lambda function: function)

    def __init__(
        self,
        strategy: Any,
        replicas: Replicas,
        function: Callable[..., Any],
        structure: PyTree,
        key: Sequence[Any],
        numbers: Numbers,
        donated: frozenset[int],
    ) -> None:
        self._replicas = replicas
        self._function = Program.convert(function)
        self._structure = structure
        self._key = key
        self._numbers = numbers
        self._donated = donated
        self._name = name_of(function)
        # The numbers of the leaves that are arrays, as it was traced last.
        self._arrays: list[int] = []
        self._context = ReplicaContext(strategy, Traced(replicas))
        self._known = Known([], {})
        # Carries what was not sent of gradients, of a function that averages some.
        self._adapter = gradient_adapter(replicas)
        self._compiler = Compiler(replicas)
        self._call = self._compiler.compile(self._trace_and_run, static_argnums=(0,), donate_argnums=(1,))

    @property
    def variables(self) -> list[Any]:
        """Keras variables that it reads or assigns, as far as known."""
        return self._known.variables

    def __call__(self, arrays: Mapping[int, Any], values: Sequence[Any], shapes: Shapes) -> Packed:
        """Runs it.

        Raises:
            Again: If it has to be called once more, with what it knows now.
        """
        split = Split.UNEVEN if shapes else Split.EVEN
        given = {i: a for i, a in arrays.items() if i in self._donated}
        rest = {i: a for i, a in arrays.items() if i not in given}
        # The arrays that are given away stand for the state of a step: both are donated.
        carried = self._adapter.wrap(given, split, dict)
        packed, after = self._call(shapes, carried, (rest, values))
        self._adapter.unwrap(after, 1)
        return packed

    def _trace_and_run(self, shapes: Shapes, carried: Carried, data: Batch) -> tuple[Packed, Carried]:
        # A retrace must number its all-reduces as the first trace did.
        backends.begin_program()
        (given, before), (rest, values) = carried, data
        arrays = {**given, **rest}
        numbers = self._arrays = sorted(arrays)
        inputs = [*(arrays[i] for i in numbers), *values]
        kinds = [self._key[i] for i in numbers] + [_kind(v) for v in self.variables]
        trace = Trace(self._function, self._arguments, numbers, self._known, self._context)
        if shapes:
            return self._uneven(trace, inputs, kinds, shapes), ((), ())
        packed, after = self._even(trace, inputs, kinds, before)
        return packed, ((), after)

    def _arguments(self, arrays: Mapping[int, Any]) -> Any:
        parts = [key.value if isinstance(key, Fixed) else self._numbers.fixed.get(i) for i, key in enumerate(self._key)]
        return self._structure.unflatten([arrays.get(i, part) for i, part in enumerate(parts)])

    def _even(self, trace: Trace, inputs: list[Any], kinds: list[Any], before: Any) -> tuple[Packed, Any]:
        """Traces the program in which each replica computes its own shard."""
        count, is_own = self._replicas.count, [k in _OWN for k in kinds]
        shares = [_shard_shape(a, kind, count) for a, kind in zip(inputs, kinds, strict=True)]
        rows = jax.tree.map(lambda a: jax.ShapeDtypeStruct((1, *a.shape[1:]), a.dtype), before)
        step = self._adapter.carry_replica(lambda state, inputs: (trace.run(*inputs), state))
        # Recorded before it is sharded: shard_map asks where results lie, and only the record shows which of them vary.
        look = jax.make_jaxpr(lambda own, *inputs: step(((), own), inputs), axis_env=[(AXIS, count)], return_shape=True)
        record, (_, (_, after)) = look(rows, *shares)
        (record,) = trace.filled([record])
        # After derivatives are filled in: whether an output varies may depend on one.
        made = trace.made([record], [True] * len(jax.tree.leaves(rows)) + is_own)
        if isinstance(self._adapter, ErrorFeedback):
            of_replica = jax.tree.map(lambda r: jax.ShapeDtypeStruct(r.shape[1:], r.dtype), after)
            # The residuals are arguments of the program: once their shapes are known, it is traced with them.
            if self._adapter.note_shapes(of_replica):
                raise Again
        # Only a trace that stands is compared: those that end in `Again` never run.
        self._check_same([record], inputs)

        def body(own: Any, *arrays: Array) -> Any:
            mine = [_local_value(a, kind) for a, kind in zip(arrays, kinds, strict=True)]
            # The record, not the function: that would run a second time, with its side effects.
            flat = jaxpr_as_fun(record)(*jax.tree.leaves(own), *mine)
            results, after = jax.tree.unflatten(structure, flat)
            outputs, values, reads = trace.finished(made, results, mine)
            # A scalar that varies is a row of its array; arrays are concatenated along their first axis.
            rows = [v[None] if varies and not v.ndim else v for v, varies in zip(outputs, made.varies, strict=True)]
            values = [v[None] if a.is_own else v for a, v in zip(made.assigned, values, strict=True)]
            return (rows, values, reads), after

        # The record returns flat: what the function returns and assigns, then residuals.
        structure = jax.tree.structure(([0] * (len(record.out_avals) - len(jax.tree.leaves(after))), after))
        specs = [_spec(varies) for varies in made.varies], [_spec(a.is_own) for a in made.assigned], _spec(False)
        places = _spec(True), *map(_spec, is_own)
        found, after = on_each_replica(self._replicas, body, places, (specs, _spec(True)))(before, *inputs)
        return Packed(made, *found), after

    def _check_same(self, records: Sequence[Any], inputs: Sequence[Any]) -> None:
        """Raises `MismatchError` if other tasks have recorded something else."""

        def explain() -> dict[str, Any]:
            variables = {v.path: describe(v.value) for v in self.variables}
            return {"argument": self._describe_arguments(inputs), "variable": variables}

        # Each trace is compared: it goes by what the program knows, and all tasks know the same.
        self._compiler.check_same(len(self._compiler.digests), f"strategy.run({self._name})", records, explain)

    def _describe_arguments(self, inputs: Sequence[Any]) -> dict[str, str]:
        """Returns each argument by its path as text: the global shape of an array."""
        arrays = dict(zip(self._arrays, inputs, strict=False))
        leaves = [a.value if isinstance(a, Fixed) else self._numbers.fixed.get(i) for i, a in enumerate(self._key)]
        texts = [describe(arrays.get(i, leaf)) for i, leaf in enumerate(leaves)]
        paths = jax.tree_util.tree_flatten_with_path(self._structure.unflatten(texts))[0]
        return {("kwargs" if path[0].idx else "args") + jax.tree_util.keystr(path[1:]): text for path, text in paths}

    def _uneven(self, trace: Trace, inputs: list[Any], kinds: list[Any], shapes: Shapes) -> Packed:
        """Traces the program in which each device computes the shards of all."""
        count, is_own = self._replicas.count, [k in _OWN for k in kinds]
        waiting = iter(shapes)
        cut = [
            self._slice_shards(a, k, next(waiting) if k in (OWN, OWN_SCALAR) else ())
            for a, k in zip(inputs, kinds, strict=True)
        ]
        shares = [tuple(pieces[i] for pieces in cut) for i in range(count)]
        records, _ = sequential_emulation.trace_replicas(trace.run, shares, rows_of(shapes))
        records = trace.filled(records)
        made = trace.made(records, is_own)
        self._check_same(records, inputs)

        def finished(record: Jaxpr, *mine: Any) -> Any:
            return trace.finished(made, jaxpr_as_fun(record)(*mine), mine)

        # A second trace: how assigned values combine is known only when all replicas have been traced.
        finals = [
            sequential_emulation.trace_replica(partial(finished, record), share, sequential_emulation.Turn(i, count))
            for i, (record, share) in enumerate(zip(records, shares, strict=True))
        ]
        found = [
            jax.tree.unflatten(structure, flat)
            for (_, structure), flat in zip(
                finals, sequential_emulation.evaluate([f for f, _ in finals], shares), strict=True
            )
        ]
        outputs, values, reads = found[0]
        outputs = [[f[0][k] for f in found] if varies else outputs[k] for k, varies in enumerate(made.varies)]
        values = [jnp.stack([f[1][k] for f in found]) if a.is_own else values[k] for k, a in enumerate(made.assigned)]
        place, whole = lax.with_sharding_constraint, self._replicas.whole
        lies = [self._replicas.by_example if a.is_own else whole for a in made.assigned]
        values = [place(v, sharding) for v, sharding in zip(values, lies, strict=True)]
        return Packed(made, place(outputs, whole), values, place(reads, whole))

    def _slice_shards(self, array: Array, kind: Any, shapes: Sequence[Shape]) -> list[Any]:
        """Slices an array into each replica's shard."""
        count = self._replicas.count
        if kind not in _OWN:
            return [array] * count
        # One all-gather here; from now on nothing travels.
        array = lax.with_sharding_constraint(array, self._replicas.whole)
        if kind != OWN:
            return [array[i] for i in range(count)]
        each = array.shape[0] // count
        parts = [array[i * each : (i + 1) * each] for i in range(count)]
        return [lax.slice(part, [0] * part.ndim, shape) for part, shape in zip(parts, shapes, strict=True)]

    def unpack(self, packed: Packed, held: Held | None) -> Any:
        """Returns what the function returns, and gives variables their values."""
        made = packed.made
        found = zip(packed.outputs, made.varies, made.shapes, strict=True)
        arrays = iter([self._unpack_own(value, shape) if varies else value for value, varies, shape in found])
        leaves = [next(arrays) if leaf is None else self._unpack_fixed(leaf) for leaf in made.leaves]
        if made.assigned:
            assert held is not None
            reads = iter(packed.reads)
            pairs = zip(made.assigned, packed.values, strict=True)
            held.keep([(a, value, next(reads) if a.is_read_together else value) for a, value in pairs])
        return made.structure.unflatten(leaves)

    def _unpack_fixed(self, values: Sequence[Any]) -> Any:
        """Returns a leaf that is no array: a value that all replicas have, or one of each."""
        if len(values) == 1:
            return values[0]
        # Numbers become arrays, as the values of replicas that `run` returns are; other objects stay as they are.
        own = [values[i] for i, _ in self._replicas.local]
        if not all(isinstance(v, (bool, int, float, complex)) for v in values):
            return PerReplica(own)
        with jax.ensure_compile_time_eval():  # Also where an outer function is traced.
            pairs = zip(own, self._replicas.local, strict=True)
            return PerReplica([jax.device_put(jnp.asarray(v), d) for v, (_, d) in pairs], [()] * len(values))

    def _unpack_own(self, value: PyTree, shape: Shape) -> PerReplica:
        if not isinstance(value, list):
            return PerReplica.of_stack(value, self._replicas.count, not shape)
        # Every device has computed all replicas' values, so each finds its own there.
        own = [value[i] if is_traced(value[i]) else _on(value[i], device) for i, device in self._replicas.local]
        return PerReplica(own, [v.shape for v in value])


def _kind(variable: Variable) -> str:
    return _ROW if is_own(variable) else _WHOLE


def _spec(is_own: bool) -> PartitionSpec:
    return PartitionSpec(AXIS) if is_own else PartitionSpec()


def _shard_shape(array: Array, kind: Any, count: int) -> jax.ShapeDtypeStruct:
    """Returns the shape of one replica's shard of an array."""
    shape = array.shape
    if kind in _OWN:
        shape = (shape[0] // count, *shape[1:]) if kind == OWN else shape[1:]
    # A Python number stays weakly typed as an array: otherwise bfloat16 times a rate would be float32 from its second
    # value on.
    return jax.ShapeDtypeStruct(shape, array.dtype, weak_type=array.aval.weak_type)


def _local_value(array: Array, kind: Any) -> Any:
    return array[0] if kind in (OWN_SCALAR, _ROW) else array


def _on(array: jax.Array, device: Any) -> jax.Array:
    """Returns a device's copy of an array that is whole on all."""
    return next(shard.data for shard in array.addressable_shards if shard.device == device)
