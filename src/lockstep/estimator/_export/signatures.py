"""Signatures of an export.

Source: how tf.estimator.Estimator.export_saved_model names them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lockstep.data.internal import TEXT
from lockstep.estimator._export.feeds import Feed, Receiver
from lockstep.estimator._export.outputs import ExportOutput
from lockstep.saved_model import (
    CLASSIFY_METHOD_NAME,
    DEFAULT_SERVING_SIGNATURE_DEF_KEY,
    PREDICT_METHOD_NAME,
    REGRESS_METHOD_NAME,
    SERVING,
    SignatureFunction,
)

_log = logging.getLogger("lockstep")
# Variables, features (and labels) to what is exported, by name.
Call = Callable[..., Mapping[str, ExportOutput]]
_FRIENDLY = {
    CLASSIFY_METHOD_NAME: "Classify",
    REGRESS_METHOD_NAME: "Regress",
    PREDICT_METHOD_NAME: "Predict",
    "tensorflow/supervised/training": "Train",
    "tensorflow/supervised/eval": "Eval",
}


@dataclass(frozen=True)
class Plan:
    """The plan of one signature.

    Attributes:
        name: The signature's name.
        output: The name of its output.
        feed: The callers' inputs.
        kind: What it returns, as it was when the model_fn was looked at: its class and names count, not its values.
    """

    name: str
    output: str
    feed: Feed
    kind: ExportOutput

    @property
    def input_alias(self) -> str | None:
        """Returns the name that replaces the only input's own, or `None`."""
        is_one_text = [spec.dtype for spec in self.feed.inputs.values()] == [TEXT]
        return self.kind.input_name if is_one_text else None


def plans_of(export_outputs: Mapping[str, ExportOutput], receiver: Receiver) -> list[Plan]:
    """Returns the plans for a model's export outputs, and logs their names.

    They are called as the outputs are, and "ALTERNATIVE:OUTPUT" for the receiver's alternatives. Unlike TensorFlow's, a
    classification or regression may have other inputs than serialised examples.

    Args:
        export_outputs: `ExportOutput`s by name, one of them "serving_default".
        receiver: The traced receiver function.
    """
    plans = [Plan(name, name, receiver.feed, output) for name, output in export_outputs.items()]
    for alternative, feed in receiver.alternatives.items():
        plans += [Plan(f"{alternative}:{name}", name, feed, output) for name, output in export_outputs.items()]
    excluded = {f"{a}:{name}": why for a, why in receiver.excluded.items() for name in export_outputs}
    _report(plans, excluded)
    return plans


def signatures_of(
    export_outputs: Mapping[str, ExportOutput], receiver: Receiver, call: Call, tags: tuple[str, ...] = (SERVING,)
) -> dict[str, SignatureFunction]:
    """Returns the signatures for a model's export outputs, for `lockstep.saved_model.write`.

    Args:
        export_outputs: `ExportOutput`s by name, from a call of the model_fn; only their kinds and names are used.
        receiver: The traced receiver function.
        call: The model: a pure function of the variables by name, the features and, if the receiver has them, the
            labels, which returns the `ExportOutput`s by name.
        tags: Tags of the exported graph.
    """
    functions: dict[tuple[int, str, int], Any] = {}
    signatures: dict[str, SignatureFunction] = {}
    for plan in plans_of(export_outputs, receiver):
        # What has the same outputs of the same inputs is the same function, of which one program is made.
        key = (id(plan.feed), plan.input_alias or "", id(plan.kind))
        function = functions.setdefault(key, _function(plan, call))
        signatures[plan.name] = _signature(plan, function, tags)
    return signatures


def _signature(plan: Plan, function: Callable[..., Any], tags: tuple[str, ...]) -> SignatureFunction:
    new = plan.input_alias
    inputs = {new or name: spec for name, spec in plan.feed.inputs.items()}
    parse = {new or name: spec for name, spec in plan.feed.parse.items()}
    return SignatureFunction(function, inputs, parse, tags, plan.kind.method_name)


def _function(plan: Plan, call: Call) -> Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]:
    def function(variables: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
        named = inputs if plan.input_alias is None else dict(zip(plan.feed.inputs, inputs.values(), strict=True))
        return call(variables, *plan.feed.data(named))[plan.output].tensors()

    return function


def _report(plans: list[Plan], excluded: Mapping[str, str]) -> None:
    for method, friendly in _FRIENDLY.items():
        names = [plan.name for plan in plans if plan.kind.method_name == method]
        _log.info("Signatures INCLUDED in export for %s: %s", friendly, names or None)
    if excluded:
        _log.info("Signatures EXCLUDED from export because they cannot be be served via TensorFlow Serving APIs:")
    for name, why in excluded.items():
        _log.info("'%s' : %s", name, why)
    if not plans:
        _log.warning("Export includes no signatures!")
    elif all(plan.name != DEFAULT_SERVING_SIGNATURE_DEF_KEY for plan in plans) and _is_served(plans):
        _log.warning("Export includes no default signature!")


def _is_served(plans: list[Plan]) -> bool:
    return any(plan.kind.method_name.startswith("tensorflow/serving/") for plan in plans)
