"""One call of `Estimator.train` in a job with parameter servers, on each of its tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from lockstep import checkpoint
from lockstep._engine.input import random_state, samples
from lockstep._engine.input.feed import Feed
from lockstep._engine.keras.servers.options import ServerOptions
from lockstep._engine.servers.call import Call
from lockstep._engine.servers.chief_call import ChiefCall
from lockstep._engine.servers.messages import Superseded
from lockstep._engine.servers.worker import work
from lockstep._engine.step.batches import Outputs
from lockstep._engine.step.replicas import Replicas
from lockstep._types import PyTree
from lockstep.checkpoint.internal import load_newest_by_rows
from lockstep.estimator._core import CompiledModelFn, EstimatorCore
from lockstep.estimator._hooks import CheckpointSaverHook, NanTensorHook, StopAtStepHook, next_call
from lockstep.estimator._input_fns.source import Input
from lockstep.estimator._servers.chief import ServedProgram, ServedVariables, SettledSignals
from lockstep.estimator._servers.client import TicketClient
from lockstep.estimator._servers.textless import TextlessProgram
from lockstep.estimator._session import AloneSignals, HookRunner, Session
from lockstep.estimator._training import Training, TrainRequest, source_of
from lockstep.estimator._types import Hook

_log = logging.getLogger("lockstep")
_ANY = 1 << 30


class ServersTraining(Training):
    """One call of `train` on the chief: its loop goes through all batches in order, whoever computes them.

    Args:
        core: The Estimator.
        request: The arguments of `train`.
        replicas: This process' first device.
        options: The servers.
        call: The call of all tasks.
        workers: How many tasks compute.
    """

    def __init__(
        self,
        core: EstimatorCore,
        request: TrainRequest,
        replicas: Replicas,
        options: ServerOptions,
        call: ChiefCall,
        workers: int,
    ) -> None:
        self._options = options
        # Calls the input_fn.
        super().__init__(core, request, replicas, is_distributed=False)
        self._call = call
        self._workers = workers

    def _train(self) -> int:
        while True:
            try:
                return super()._train()
            except Superseded as lost:
                # Servers hold the variables: without one of them all begin again from the last checkpoint.
                _log.warning("%s. Training goes back to the last checkpoint.", lost)
                self._restart()

    def _about(self) -> dict[str, Any]:
        return self._options.about()

    def _restart(self) -> None:
        super().__init__(self._core, self._request, self._replicas, is_distributed=False)

    def _make_input(self, is_distributed: bool) -> Input:
        return make_input(self._core, self._request, self._replicas, self._options.shares)

    def _program_of(self, compiled: CompiledModelFn) -> Any:
        # Two for each task: one that it computes, and one that it leases meanwhile.
        self._program = ServedProgram(compiled, self._call, self._options, 2 * self._workers)
        self._program.requested = sorted(compiled.requested)
        return self._program

    def _load_newest(self, strict: bool) -> checkpoint.Checkpoint | None:
        return load_newest_by_rows(self._core.model_dir, strict=strict)

    def _contents(
        self, compiled: CompiledModelFn, state: Any, prefix: str, step: int
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        # A save that is under way removes tables that no checkpoint names: those that servers write now must not be.
        self._flush()
        extra = self._program.save_tables(prefix, step)
        by_rows = self._program.tables_by_rows()
        return state.local(key for key in compiled.variables.checkpoint_keys() if key not in by_rows), extra

    def _new_values(self, compiled: CompiledModelFn) -> Any:
        # Not the large ones before they are asked for: servers make rows of tables when these are first used.
        return self._core.first_values_on_demand(compiled.variables)

    def _state_of(self, compiled: CompiledModelFn, program: Any, values: Any) -> Any:
        state = ServedVariables(compiled, values)
        program.serve(state, self._input.source.peek())
        return state

    def _make_signals(self) -> Any:
        self._signals = SettledSignals(self._program)
        return self._signals

    def _make_runner(self, hooks: Sequence[Any], session: Session) -> HookRunner:
        self._savers = [hook for hook in hooks if isinstance(hook, CheckpointSaverHook)]
        self._stops = [hook for hook in hooks if isinstance(hook, StopAtStepHook)]
        self._program.horizon = partial(self._horizon, session)
        # Not alone: what hooks decide waits for the tickets that are under way.
        return HookRunner(hooks, session, False, self._note)

    def _attach_feed(self, feed: Feed, steps: int | None) -> None:
        self._program.batches = steps
        # Asked for before the first step, while the position is that of the beginning.
        self._program.position = feed.position

    def _horizon(self, session: Session) -> int:
        """Returns how many tickets may be released: hooks that save or stop do so after the ticket that they name."""
        if self._signals.is_waiting:
            return self._program.outstanding
        ends = [next_call(hook, session.global_step) for hook in (*self._savers, *self._stops)]
        left = [end - session.global_step for end in ends if end is not None]
        # What a clock decides may come after any ticket, and then waits for those under way.
        left = [-(-n // session.increment) for n in left if n > 0]
        return max(1, min(left, default=_ANY))

    def _end_steps(self, state: Any, program: Any) -> None:
        self._program.end()


def make_input(core: EstimatorCore, request: TrainRequest, replicas: Replicas, shares: int = 1) -> Input:
    """Calls the input_fn, so many of whose batches are one; they stay on the host, for a task computes only some."""
    has_strategy = core.config.train_distribute is not None
    return Input(
        request.input_fn,
        "train",
        replicas,
        has_strategy,
        core.params,
        core.config,
        on_host=True,
        shares=shares,
    )


def train_on_chief(
    core: EstimatorCore,
    request: TrainRequest,
    replicas: Replicas,
    options: ServerOptions,
    call: ChiefCall,
    workers: int,
) -> None:
    """Trains on the chief, and ends the call for all tasks."""
    ServersTraining(core, request, replicas, options, call, workers).run()
    call.end()


def train_on_worker(
    core: EstimatorCore, request: TrainRequest, replicas: Replicas, options: ServerOptions, call: Call
) -> None:
    """Computes the batches that the chief leases to this task, until it ends the call.

    Hooks of the program are called around the tickets that this task computes, as around its steps in TensorFlow.
    """
    opened = call.opened()
    if opened is not None:
        spec, extra = opened
        random_state.restore(extra["random"])
        source = make_input(core, request, replicas, options.shares)
        compiled = core.compile("train", replicas, source)
        compiled.want(extra["requested"])
        hooks = [*request.hooks, NanTensorHook("loss"), *(compiled.spec.training_hooks or ())]
        hooks = [hook for hook in hooks if not isinstance(hook, CheckpointSaverHook)]
        compiled.begin(hooks)
        around = _WorkerHooks(compiled, hooks, extra["global_step"])
        client = TicketClient(call, compiled, spec, around.call)
        client.compares_data = samples.is_comparing()
        program = TextlessProgram(compiled)
        waiting = [source]

        def make_feed() -> Feed:
            made = waiting.pop() if waiting else make_input(core, request, replicas, options.shares)
            return Feed(source_of(compiled, made), program, replicas.runtime, None, at_most=True)

        work(call, client, make_feed)
        around.end()
    call.result()


class _WorkerHooks:
    """The program's hooks on a worker, around the tickets that it computes."""

    def __init__(self, compiled: CompiledModelFn, hooks: Sequence[Hook], global_step: int) -> None:
        state: Any = _NoVariables()
        self._session = Session(compiled, state, global_step, False, AloneSignals())
        self._runner = HookRunner(hooks, self._session, True, lambda outputs: None)
        self._runner.create()

    def call(self, global_step: int) -> Callable[[PyTree], None]:
        """Calls `before_run` of a step; returns what calls `after_run` with its outputs."""
        self._session.global_step = global_step
        self._runner.before(0, 1)

        def after(outputs: PyTree) -> None:
            self._runner.after(0, Outputs(None, None, lambda _: outputs))

        return after

    def end(self) -> None:
        """Calls `end` of the hooks."""
        self._runner.end()


class _NoVariables:
    """The state on a worker, whose hooks can fetch values of their steps alone."""

    def __contains__(self, key: str) -> bool:
        return False
