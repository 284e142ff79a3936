"""Exports of an Estimator's checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lockstep import checkpoint
from lockstep._types import PyTree
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.estimator import _restoring
from lockstep.estimator._export import EvalOutput, ExportOutput, Receiver, export_outputs_of, receiver_of, signatures_of
from lockstep.estimator._mode_keys import ModeKeys
from lockstep.estimator._model_fn.function import Data, ModelFunction
from lockstep.estimator._model_fn.variables import Variables
from lockstep.saved_model import SERVING, SignatureFunction, write_version
from lockstep.saved_model.internal import Range, trace_signature

if TYPE_CHECKING:
    from lockstep.estimator._core import EstimatorCore

_TAGS = {ModeKeys.PREDICT: (SERVING,), ModeKeys.EVAL: ("eval",)}


def export_checkpoint(
    core: EstimatorCore,
    base: str | os.PathLike[str],
    receiver_fns: Mapping[str, Callable[[], Any]],
    assets: Mapping[str, Any] | None,
    as_text: bool,
    checkpoint_path: str | None,
) -> bytes:
    """Exports a checkpoint to a new directory in `base`; see `Estimator.export_saved_model`."""
    path = checkpoint_path or core.latest_checkpoint()
    if path is None:
        raise ArgumentError(f"Couldn't find trained model at {core.model_dir}. Train first, or give checkpoint_path.")
    functions: dict[str, SignatureFunction] = {}
    variables: dict[str, Any] = {}
    # A training that goes on must not delete the checkpoint meanwhile.
    with checkpoint.pinned(path):
        for mode, receiver_fn in receiver_fns.items():
            exported = _Exported(core, _check_mode(mode), receiver_of(receiver_fn))
            variables.update(_restoring.restore(exported.variables, path))
            functions.update(exported.signatures())
    return os.fsencode(write_version(base, functions, variables, assets, as_text))


class _Exported:
    """A model_fn in one mode, traced for the inputs of a receiver function."""

    def __init__(self, core: EstimatorCore, mode: str, receiver: Receiver) -> None:
        self.variables = Variables(core.config.tf_random_seed)
        self._mode = mode
        self._receiver = receiver
        self._function = ModelFunction(core.call_model_fn, mode, self.variables, 1, frozenset())
        self._outputs: dict[str, ExportOutput] = {}
        trace_signature(SignatureFunction(self._learn, receiver.inputs, receiver.parse), {}, Range(2, 2))

    def signatures(self) -> dict[str, SignatureFunction]:
        """Returns the signatures, by name."""
        return signatures_of(self._outputs, self._receiver, self._call, _TAGS[self._mode])

    def _learn(self, variables: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
        self._outputs = self._call(variables, *self._receiver.feed.data(inputs))
        return next(iter(self._outputs.values())).tensors()

    def _call(
        self, variables: dict[str, Any], features: PyTree, labels: PyTree | None = None
    ) -> dict[str, ExportOutput]:
        call = self._function(variables, Data(features, labels))
        self._function.finish(call)
        spec = call.spec
        if self._mode == ModeKeys.PREDICT:
            return export_outputs_of(spec.export_outputs, spec.predictions)
        return {self._mode: EvalOutput(spec.loss, spec.predictions, spec.eval_metric_ops)}


def _check_mode(mode: str) -> str:
    if mode not in _TAGS:
        raise UnsupportedError(
            f"An export predicts or evaluates; it does not train. Received: mode {mode!r}. Continue training from the "
            "checkpoints in model_dir, or start from them with WarmStartSettings."
        )
    return mode
