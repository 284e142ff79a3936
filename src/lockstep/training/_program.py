"""A step program of a user's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import jax

from lockstep import checkpoint
from lockstep._engine.input.feed import Feed
from lockstep._engine.keras import agreement
from lockstep._engine.runtime import local_training
from lockstep._engine.step.batches import DeviceBatch, global_shapes
from lockstep._engine.step.jaxprs import name_of
from lockstep._engine.step.program import StepProgram, adapter_for
from lockstep._engine.step.program_digest import Subject, describe
from lockstep._engine.step.replicas import Replicas
from lockstep._nest import canonical, map_structure, unpack
from lockstep._types import ArrayLike, Batch, PyTree
from lockstep.checkpoint.internal import of_tensorflow
from lockstep.errors import ArgumentError, CheckpointError, UnsupportedError
from lockstep.training._program_fit import Plan, ProgramFit
from lockstep.training._program_layout import Layout, find_layout
from lockstep.training._program_replica import LocalStep, ReplicaStep
from lockstep.training._program_source import concatenate, source_of
from lockstep.training._program_state import (
    ProgramState,
    check_optimizer_state,
    in_order,
    local_array,
    optimizer_arrays,
)
from lockstep.training._program_step import UserStep, examine, of_arrays, shaped

if TYPE_CHECKING:
    from lockstep.distribute import Strategy

View = Literal["global", "replica"]


class Program:
    """A step of your own on the replicas of a strategy: plain JAX, optax, Flax, Equinox, or layers of Keras.

    The step is a pure function `(state, batch) -> (state, logs)`. The state is any pytree: arrays, keys of
    `jax.random`, and what is no array (functions and settings of Equinox' modules, text, `None`), which passes through
    as it is. Python's numbers are arrays if the step changes them. Logs are a pytree of numbers: `{"loss": loss}`.

    In the global view the step is written for the whole batch, and XLA divides its work over the replicas. So it
    computes what one device would, whatever it does with the batch, and whether or not the replicas can divide it.

    In the replica view the step is written for one replica's share, and says itself what the replicas exchange:
    `lockstep.distribute.get_replica_context()` has `average_gradients` (which follows the strategy's options),
    `all_reduce` and `all_gather`. All replicas must come to the same state; logs that differ are averaged.

    Args:
        step: The step.
        strategy: Whose replicas. Default: the one whose scope is open, else one device.
        view: "global" (default) or "replica": for what the step is written.
        parameters: For strategies with `local_steps`, which need it: returns the part of a state that is combined at
            the end of a round. Each replica then makes the step on its share of a batch, as one device would, without
            any exchange; what else the state has of its own is its own for good. Others do without.
        optimizer_state: For strategies with `shard_optimizer_state`, which need it: returns the part of a state that
            is the optimizer's, of which each replica then keeps a part of each array. Others do without.

    Raises:
        ArgumentError: If an argument is not as describe.
        UnsupportedError: If the strategy has options that the view cannot follow.

    Examples:
        >>> def step(params, batch):
        ...     loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        ...     return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), {"loss": loss}
        >>> program = Program(step, strategy)
        >>> params = program.fit(params, dataset, epochs=3, checkpoint_dir="runs/mine")
    """

    def __init__(
        self,
        step: UserStep,
        strategy: Strategy | None = None,
        view: View = "global",
        parameters: Callable[[Any], Any] | None = None,
        optimizer_state: Callable[[Any], Any] | None = None,
    ) -> None:
        from lockstep.distribute import Strategy, get_strategy
        from lockstep.distribute.internal import default as default_strategy

        if not callable(step):
            raise ArgumentError(f"step is a function (state, batch) -> (state, logs). Received: {type(step).__name__}.")
        chosen: Any = get_strategy() if strategy is None else strategy
        if not isinstance(chosen, Strategy):
            raise ArgumentError(
                f"strategy is a strategy of lockstep.distribute. Received: {type(chosen).__name__}. Example: "
                "lockstep.distribute.MirroredStrategy()"
            )
        if strategy is None and chosen is default_strategy():
            local_training.warn(f"The Program of {name_of(step)}", "Give it the strategy: Program(step, strategy).")
        self._step = step
        self._replicas = chosen._demanded_replicas()  # pyright: ignore[reportPrivateUsage]
        self._optimizer_state = check_optimizer_state(optimizer_state, view, self._replicas)
        self._per_replica = ReplicaStep(step, chosen, self._replicas) if _is_replica(view, self._replicas) else None
        self._local = None if self._replicas.local_sgd is None else LocalStep(step, self._replicas, parameters)
        # A list: static leaves of a layout are compared, and need not be hashable.
        self._compiled: list[tuple[Layout, StepProgram]] = []
        # The leaves that were returned last, and the arrays behind them, which are on the replicas already.
        self._last: tuple[list[Any], list[jax.Array]] = ([], [])
        self.history: dict[str, list[Any]] = {}

    @property
    def is_chief(self) -> bool:
        """Returns whether this process is the one that prints and writes: the chief, or worker 0 without a chief."""
        return self._replicas.runtime.is_chief

    def __call__(self, state: PyTree, batch: Batch) -> tuple[Any, Any]:
        """Runs one step; all tasks call it alike.

        Args:
            state: The state; one that a step returned is consumed by it, as by `jax.jit(..., donate_argnums=0)`.
            batch: A global batch, the same on every task: a pytree of arrays; or one of `batches`, or of what
                `strategy.experimental_distribute_dataset` returns.

        Returns:
            The new state, on all replicas, and the logs of the step, as arrays of this process.

        Raises:
            ArgumentError: If the step is not pure, or its state not like the one it was given.
            UnsupportedError: If the strategy has `local_steps`, which need the end of training: see `fit`.
        """
        if self._replicas.local_sgd is not None:
            raise UnsupportedError(
                "With local_steps replicas train by themselves until a round or the training ends. Received: a call of "
                "one step. Use Program.fit, which knows when training ends, or a strategy without local_steps."
            )
        return self._replicas.runtime.launch("a step of lockstep.training.Program", partial(self._run, state, batch))

    def _run(self, state: PyTree, batch: Batch) -> tuple[tuple[Any, Any], Any]:
        """Returns the new state and the logs, and an array of them."""
        # One of `batches` is on the replicas already.
        batch = batch if isinstance(batch, DeviceBatch) else canonical(concatenate(batch, self._replicas))
        layout, program = self._program_for(state, batch)
        placed = batch if isinstance(batch, DeviceBatch) else program.place_batch(batch)
        outputs, after = program.run(self._placed(layout, program, state), placed)
        new, logs = layout.state(after), unpack(outputs.last)
        self._last = jax.tree.leaves(new), after
        # One array stands for all of them, which are ready together. Until then this task depends on the others, and
        # says so if they are gone.
        return (new, logs), next(iter([*jax.tree.leaves(logs), *after]), None)

    def fit(
        self,
        state: PyTree,
        dataset: Any,
        *,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        steps: int | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        save_every: int | Literal["epoch"] | None = "epoch",
        keep_max: int = 5,
        callbacks: Sequence[Any] | None = None,
        verbose: Any = "auto",
    ) -> Any:
        """Trains: the whole loop, with several short steps in one dispatch, callbacks, checkpoints and exact restarts.

        With `checkpoint_dir`, a call that was interrupted and is made again, by the same program, goes on with the step
        after the newest checkpoint, with the batch that comes next; on any number of workers and devices. A call that
        had come to its end returns that state. SIGTERM on any worker saves and ends all of them after the same step.

        Args:
            state: The state to begin with; it is not consumed. With several workers, the chief's counts.
            dataset: A `lockstep.data.Dataset` of global batches, or an iterable of them, the same on every worker.
            epochs: How many passes over it; default: 1, or as many as `steps` take.
            steps_per_epoch: After how many batches an epoch ends, and the next one continues; default: with the data.
            steps: With how many steps in all training ends, counted over epochs and restarts.
            checkpoint_dir: Where checkpoints are, and nothing else. Default: there are none.
            save_every: After how many steps there is one, or "epoch": after each. `None`: only at the end, and when the
                job is asked to end.
            keep_max: How many are kept, the newest ones.
            callbacks: Keras' callbacks, whose `model` is a `Training`; `Every` makes one of a function.
            verbose: As in Keras: "auto", 0, 1 or 2.

        Returns:
            The state at the end, as arrays of this process.

        Raises:
            ArgumentError: If an argument, or the step, is not as describe.
            CheckpointError: If a checkpoint cannot be written, or is of another state or other data.
            InputError: If there are no data, or they cannot be read.
            Preempted: After SIGTERM, when all is saved.
        """
        plan = Plan(epochs, steps_per_epoch, steps, checkpoint_dir, save_every, keep_max)
        runtime = self._replicas.runtime
        with runtime.collective_region("lockstep.training.Program.fit"):
            source = source_of(dataset, self._replicas, steps_per_epoch or steps)
            layout, program = self._program_for(state, source.peek)
            # It copies: each step donates the state's buffers, and those of the caller must live.
            held = ProgramState(program, layout, layout.arrays(state))
            feed = Feed(source, program, runtime, steps_per_epoch)
            self.history = ProgramFit(held, program, feed, plan, callbacks, verbose, runtime).run()
            # Inside of the region: if the optimizer's state lies in parts, this puts them together, with all tasks.
            return held.local()

    def batches(self, dataset: Any, steps: int | None = None) -> Iterator[DeviceBatch]:
        """Yields the global batches of one pass over a dataset, for a loop around `program(state, batch)`.

        Each is on the replicas already, and every worker has read its own rows of it alone.

        Args:
            dataset: As for `fit`.
            steps: How many at most.
        """
        source = source_of(dataset, self._replicas, steps)
        # Places single batches, because the caller's loop takes them one by one; its step is never run.
        placing = StepProgram(lambda state, batch: (batch, state), self._replicas, repeats=False)
        with Feed(source, placing, self._replicas.runtime, steps, at_most=True).epoch(()) as batches:
            yield from batches

    def local(self, value: ArrayLike) -> Any:
        """Returns a state that a step returned as arrays of this process, for what it does without the others.

        All tasks call it together where the strategy has `shard_optimizer_state` and they are several.
        """
        sharded = [a for a in jax.tree.leaves(value) if _is_placed(a, self._replicas) and not a.is_fully_replicated]
        # A worker that calls it alone would wait in a collective operation, without a word of why.
        if sharded:
            self._replicas.runtime.all_gather_object("lockstep.training.Program.local", len(sharded))
        return map_structure(lambda a: local_array(self._replicas, a) if _is_placed(a, self._replicas) else a, value)

    def restore(self, state: PyTree, checkpoint_dir: str | os.PathLike[str]) -> Any:
        """Returns the state of the newest checkpoint of a directory, in the structure of `state`.

        Raises:
            CheckpointError: If there is none, or it is of another state.
        """
        of_tensorflow.refuse_in(checkpoint_dir, "It does not know the state of a Program.")
        found = checkpoint.load_newest(checkpoint_dir)
        if found is None:
            raise CheckpointError(
                f"A state is restored from a directory with checkpoints. Received: {os.fspath(checkpoint_dir)!r}, "
                "which holds none. Give the checkpoint_dir of a fit that has saved."
            )
        # Python's numbers are in a checkpoint if the step changed them.
        saved = {key.removeprefix("state/") for key in found.arrays}
        layout = Layout(state, frozenset(i for i, name in enumerate(Layout(state).names) if name in saved))
        arrays = [jax.numpy.asarray(a) for a in layout.arrays(state)]
        return layout.state([jax.numpy.asarray(a) for a in in_order(layout, arrays, found.arrays)])

    def _program_for(self, state: PyTree, batch: Batch) -> tuple[Layout, StepProgram]:
        """Returns the step for states like this one, compiled once; `batch` is one, or a function that returns one."""
        for layout, program in self._compiled:
            if layout.fits(state):
                return layout, program
        example = batch() if callable(batch) else batch
        if not isinstance(example, DeviceBatch):
            shapes = shaped(global_shapes(self._replicas, example))
        elif example.batch_fn:
            shapes = jax.eval_shape(example.batch_fn, *example.data)
        else:
            shapes = shaped(example.data)

        def trace(layout: Layout) -> None:
            arrays = shaped([jax.numpy.asarray(a) for a in layout.arrays(state)])
            if self._per_replica is None:
                examine(self._step, layout, arrays, shapes)
            else:
                self._per_replica.examine(layout, arrays, shapes)

        layout = find_layout(state, trace)
        program = self._compile(layout, state, shapes)
        self._compiled.append((layout, program))
        return layout, program

    def _compile(self, layout: Layout, state: PyTree, batch: Batch) -> StepProgram:
        def explain(avals: Sequence[Any]) -> dict[str, Any]:
            return layout.describe([describe(aval) for aval in avals])

        subject = Subject(f"the step {name_of(self._step)}", explain)
        if self._local is not None:
            arrays = shaped([jax.numpy.asarray(a) for a in layout.arrays(state)])
            adapter = adapter_for(self._replicas, local=self._local.local(layout, arrays, batch))
            return StepProgram(of_arrays(self._step, layout), self._replicas, adapter, subject=subject)
        per_replica = self._per_replica
        if per_replica is None:
            part = self._optimizer_state
            sharded = None if part is None else partial(optimizer_arrays, layout, part)
            adapter = adapter_for(self._replicas, optimizer=sharded)
            return StepProgram(of_arrays(self._step, layout), self._replicas, adapter, subject=subject)
        adapter = adapter_for(self._replicas, per_replica.of_replica(layout))
        return StepProgram(per_replica.of_whole(layout), self._replicas, adapter, subject=subject)

    def _placed(self, layout: Layout, program: StepProgram, state: PyTree) -> list[jax.Array]:
        """Returns the arrays of a state on the replicas: as the last step has left them there, or new copies."""
        # By identity, which costs microseconds: a state that a step has returned is on the replicas.
        leaves = jax.tree.leaves(state)
        last, arrays = self._last
        if len(leaves) == len(last) and all(a is b for a, b in zip(leaves, last, strict=True)):
            return arrays
        for name, leaf in zip(layout.names, leaves, strict=True):
            if isinstance(leaf, jax.Array) and leaf.is_deleted():
                raise ArgumentError(
                    f"A state that a step returned is consumed by the next one. Received: a state whose leaf {name} is "
                    "gone. Go on with what the last step returned; keep a copy of what is needed later: "
                    "jax.tree.map(jnp.copy, state)."
                )
        held = ProgramState(program, layout, layout.arrays(state))
        agreement.begin_run(self._replicas.runtime, "a state given to lockstep.training.Program", held, {})
        return held.take()


def _is_replica(view: Any, replicas: Replicas) -> bool:
    """Returns whether steps are written for one replica; raises `ArgumentError` for another view."""
    if view not in ("global", "replica"):
        raise ArgumentError(f'view is "global" or "replica". Received: {view!r}.')
    if view == "replica" and replicas.local_sgd is not None:
        raise UnsupportedError(
            "With local_steps each replica makes the step by itself, as one device would. Received: "
            'view="replica", for steps that say what replicas exchange. Leave view out, and exchange nothing.'
        )
    if view == "global" and replicas.explicit and replicas.local_sgd is None:
        raise UnsupportedError(
            "Options of the strategy that say how gradients travel, or which examples batch normalisation sees, have a "
            'meaning for steps that are written for one replica. Received: such options, and view="global", in which '
            'XLA divides the step. Write the step for a replica\'s share, with view="replica" and '
            "get_replica_context().average_gradients(gradients); or leave the options out."
        )
    return view == "replica"


def _is_placed(value: Any, replicas: Replicas) -> bool:
    return isinstance(value, jax.Array) and len(value.sharding.device_set) == replicas.count > 1
