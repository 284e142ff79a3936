"""Updates of Estimators as servers compute them, traced in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lockstep._engine.keras.servers.tables import TablePolicy
from lockstep.estimator._model_fn.program import textless
from lockstep.estimator._model_fn.variables import FirstValues, Variables
from lockstep.estimator._servers.tables import TableOptions
from lockstep.estimator._servers.training import make_input
from lockstep.estimator._servers.update import ServedUpdate, served_update
from lockstep.estimator._training import TrainRequest


def trace_update(
    made: Any, read: Callable[[], Any], lazy: bool = False
) -> tuple[ServedUpdate, Variables, TableOptions]:
    """Traces the training step of an Estimator with tables by rows, for the first batch of an input function."""
    core = made._core
    core.is_table = TablePolicy().is_table
    replicas = core.first_device_replicas()
    source = make_input(core, TrainRequest(read), replicas)
    compiled = core.compile("train", replicas, source)
    variables = compiled.variables
    data = textless(source.source.peek(), compiled.first_call.scope.recorded.needs)
    options = TableOptions(TablePolicy(), lazy, variables.partitions)
    parts = compiled.training_parts()
    return served_update(parts, variables.entries, FirstValues(variables.entries), data, options), variables, options
