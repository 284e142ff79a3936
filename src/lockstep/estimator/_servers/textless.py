"""A program whose batches of a model_fn stay on the host, with integers in place of text."""

from __future__ import annotations

from typing import Any

from lockstep._engine.servers.host_program import HostProgram
from lockstep.estimator._core import CompiledModelFn
from lockstep.estimator._model_fn.function import Batches, Data
from lockstep.estimator._model_fn.program import textless


class TextlessProgram(HostProgram):
    """Hands batches of a model_fn on as they are on the host, with integers in place of text.

    Args:
        compiled: The model_fn.
    """

    def __init__(self, compiled: CompiledModelFn) -> None:
        super().__init__(compiled.replicas.runtime)
        self._compiled = compiled

    def prepare(self, batch: Data | Batches) -> Any:
        """Returns a batch as arrays."""
        return super().prepare(textless(batch, self._compiled.first_call.scope.recorded.needs))
