"""Steps without an update, on one task: it computes each batch itself, with the rows that servers hold."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from typing import Any

import jax
import numpy as np
from keras.src import backend

from lockstep._engine.keras.ownership import Ownership
from lockstep._engine.keras.replica_step import is_seed
from lockstep._engine.keras.servers.held import seeds_of
from lockstep._engine.keras.servers.tables import Table
from lockstep._engine.keras.servers.ticket_program import Inputs, Method, TicketProgram
from lockstep._engine.keras.state import PREDICT, TEST, ModelState
from lockstep._engine.servers.batch_shares import seeds_for
from lockstep._engine.servers.host_program import HostProgram
from lockstep._engine.step.batches import DeviceBatch, Outputs
from lockstep._types import Array


class LocalProgram(HostProgram):
    """A model's `test_step` or `predict_step`, with rows of tables in windows.

    Args:
        model: Built.
        owned: Its record.
        method: The step.
    """

    def __init__(self, model: Any, owned: Ownership, method: Method) -> None:
        super().__init__(owned.replicas.runtime)
        self._model = model
        self._program = TicketProgram(model, owned.replicas, method)
        self._is_prediction = method == "predict_step"
        # Read once: nothing changes them meanwhile.
        self._trainable = [0 if isinstance(v, Table) else np.asarray(v) for v in model.trainable_variables]
        self._others = [np.asarray(v) for v in model.non_trainable_variables]
        self._seeds = seeds_of(model)
        self._zeros: list[Array] = [] if self._is_prediction else [np.asarray(v) for v in model.metrics_variables]
        self._metrics = self._zeros
        self._draws: list[np.ndarray] = []
        self._steps = 0

    def run(self, state: Any, placed: DeviceBatch) -> tuple[Outputs, Any]:
        """Runs one step."""
        program, batch = self._program, placed.data
        plan = program.plan(batch)
        trainable = list(self._trainable)
        for place, variable in enumerate(self._model.trainable_variables):
            if isinstance(variable, Table) and place not in plan.rows:
                trainable[place] = np.asarray(variable.value)
        inputs = self._inputs(trainable, plan.draws)
        needed = program.needed(plan, batch, inputs)
        for place, each in needed.items():
            rows = self._model.trainable_variables[place].rows(each.ids)
            trainable[place] = each.window(rows)
        results = program(plan, batch, needed, inputs)
        self._steps, self._draws = self._steps + 1, plan.draws
        if self._is_prediction:
            return Outputs(results["logs"], None, jax.device_get), state
        added = jax.device_get(results["metrics"])
        self._metrics = [total + new for total, new in zip(self._metrics, added, strict=True)]
        metrics, logs = self._metrics, results["logs"]
        return Outputs(None, None, lambda _: self._shown(metrics, logs)), state

    def _inputs(self, trainable: Sequence[Any], draws: list[np.ndarray]) -> Inputs:
        states = iter(seeds_for(self._seeds, draws, self._steps, 0, True))
        variables = zip(self._model.non_trainable_variables, self._others, strict=True)
        others = [next(states) if is_seed(v) else value for v, value in variables]
        return Inputs(trainable, others, {}, self._zeros)

    def _shown(self, metrics: Sequence[Array], logs: dict[str, Any]) -> dict[str, Any]:
        with backend.StatelessScope(state_mapping=list(zip(self._model.metrics_variables, metrics, strict=True))):
            results = self._model.get_metrics_result()
        return results if set(results) == set(logs) else jax.device_get(logs)

    def sync(self) -> None:
        """Assigns metrics and random states to the model's variables."""
        if not self._is_prediction:
            for variable, value in zip(self._model.metrics_variables, self._metrics, strict=True):
                variable.assign(value)
        if self._steps:
            states = seeds_for(self._seeds, self._draws, self._steps, 0, True)
            seeds = [v for v in self._model.non_trainable_variables if is_seed(v)]
            for variable, before, state in zip(seeds, self._seeds, states, strict=True):
                if not np.array_equal(before, state):
                    variable.assign(state)


class LocalState(ModelState):
    """A model's variables, which steps without an update leave where they are."""

    def __init__(self, model: Any, owned: Ownership, program: LocalProgram, is_prediction: bool) -> None:
        super().__init__(model, owned, program, PREDICT if is_prediction else TEST)
        self._forward = program

    @contextlib.contextmanager
    def attached(self) -> Generator[None]:
        """Encloses the steps."""
        yield

    def take(self) -> Any:
        """Returns nothing: the program has the values."""
        return ()

    def give(self, state: Any) -> None:
        """Takes nothing."""
        del state

    def sync(self) -> None:
        """Assigns metrics and random states to the model's variables."""
        self._forward.sync()

    @property
    def global_step(self) -> int | None:
        """Returns `None`: nothing is trained."""
        return None
