"""Export of a checkpoint: its signatures, and receiver functions as functions of the callers' inputs.

Source: receiver functions and names of signatures as tf.estimator.Estimator.export_saved_model has them.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
from jax import export

from lockstep._types import PyTree
from lockstep.data.internal import TEXT, TensorSpec
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.estimator._core import EstimatorCore, restore
from lockstep.estimator._export.outputs import EvalOutput, ExportOutput, export_outputs_of
from lockstep.estimator._export.placeholders import Collecting, Feeding, ParsedText, running
from lockstep.estimator._export.receivers import (
    ServingInputReceiver,
    SupervisedInputReceiver,
    TensorServingInputReceiver,
)
from lockstep.estimator._mode_keys import ModeKeys
from lockstep.estimator._model_fn.function import Data, ModelFunction
from lockstep.estimator._model_fn.variables import Variables
from lockstep.estimator._weights import hold_checkpoint
from lockstep.saved_model import (
    CLASSIFY_METHOD_NAME,
    DEFAULT_SERVING_SIGNATURE_DEF_KEY,
    PREDICT_METHOD_NAME,
    REGRESS_METHOD_NAME,
    SERVING,
    SignatureFunction,
    write_version,
)
from lockstep.saved_model.internal import Range, trace_signature

_log = logging.getLogger("lockstep")
# TensorFlow's tags of the graphs of each mode.
_TAGS = {ModeKeys.PREDICT: (SERVING,), ModeKeys.EVAL: ("eval",)}
# Variables, features (and labels) to what is exported, by name.
Call = Callable[..., Mapping[str, ExportOutput]]
_FRIENDLY = {
    CLASSIFY_METHOD_NAME: "Classify",
    REGRESS_METHOD_NAME: "Regress",
    PREDICT_METHOD_NAME: "Predict",
    "tensorflow/supervised/training": "Train",
    "tensorflow/supervised/eval": "Eval",
}
# The size of open axes of a receiver function that JAX cannot trace with symbols. Not 1, at which shapes that differ
# broadcast; which other size makes no difference, as these features are only looked at.
_EXAMPLE_SIZE = 2
# Where the value of a source comes from: an input, and what in its examples; or `None` for examples of which callers
# give everything that is in them.
_Origin = tuple[str, str | None] | None


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
    # As TensorFlow's, a model that starts from other weights can be exported before it is trained.
    if path is None and not core.has_first_weights:
        raise ArgumentError(f"Couldn't find trained model at {core.model_dir}. Train first, or give checkpoint_path.")
    functions: dict[str, SignatureFunction] = {}
    variables: dict[str, Any] = {}
    # A training that goes on must not delete the checkpoint meanwhile.
    with contextlib.nullcontext() if path is None else hold_checkpoint(path):
        for mode, receiver_fn in receiver_fns.items():
            if mode not in _TAGS:
                raise UnsupportedError(
                    f"An export predicts or evaluates; it does not train. Received: mode {mode!r}. Continue training "
                    "from the checkpoints in model_dir, or start from them with WarmStartSettings."
                )
            exported = _Exported(core, mode, receiver_of(receiver_fn))
            restored = core.first_values_of(exported.variables) if path is None else restore(exported.variables, path)
            variables.update(restored)
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

        def look(variables: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
            self._outputs = self._call(variables, *receiver.feed.data(inputs))
            return next(iter(self._outputs.values())).tensors()

        # Traced once, abstractly, for the names of variables and outputs: only then are there values to restore.
        trace_signature(SignatureFunction(look, receiver.inputs, receiver.parse), {}, Range(2, 2))

    def signatures(self) -> dict[str, SignatureFunction]:
        """Returns the signatures, by name."""
        return signatures_of(self._outputs, self._receiver, self._call, _TAGS[self._mode])

    def _call(
        self, variables: dict[str, Any], features: PyTree, labels: PyTree | None = None
    ) -> dict[str, ExportOutput]:
        call = self._function(variables, Data(features, labels))
        self._function.finish(call)
        spec = call.spec
        if self._mode == ModeKeys.PREDICT:
            return export_outputs_of(spec.export_outputs, spec.predictions)
        return {self._mode: EvalOutput(spec.loss, spec.predictions, spec.eval_metric_ops)}


@dataclass(frozen=True)
class Feed:
    """A way to give a receiver function its inputs: their specs, and the features of serialized examples, by name."""

    inputs: dict[str, TensorSpec]
    parse: dict[str, Mapping[str, Any]]
    _function: Callable[[], Any]
    _origins: dict[int, _Origin]

    def features(self, inputs: Mapping[str, Any]) -> Any:
        """Computes the features of inputs, values by name; for serialized examples, a dict of their features."""
        return self._receive(inputs).features

    def data(self, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Computes (features,), or (features, labels) if the receiver function has labels."""
        received = self._receive(inputs)
        labels = (received.labels,) if isinstance(received, SupervisedInputReceiver) else ()
        return (received.features, *labels)

    def _receive(self, inputs: Mapping[str, Any]) -> Any:
        with running(Feeding({number: self._value(inputs, o) for number, o in self._origins.items()})):
            return self._function()

    def _value(self, inputs: Mapping[str, Any], origin: _Origin) -> Any:
        if origin is None:
            return ParsedText({})
        name, feature = origin
        if feature is not None:
            return inputs[name][feature]
        return ParsedText(inputs[name]) if name in self.parse else inputs[name]


@dataclass(frozen=True)
class Receiver:
    """A receiver function, traced: its inputs, and alternative ones by name.

    Attributes:
        excluded: Reasons why further alternatives are unusable, by name.
    """

    feed: Feed
    alternatives: dict[str, Feed] = field(default_factory=dict[str, Feed])
    excluded: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def inputs(self) -> dict[str, TensorSpec]:
        """Returns the specs of the inputs, by name."""
        return self.feed.inputs

    @property
    def parse(self) -> dict[str, Mapping[str, Any]]:
        """Returns the parsed features of inputs that are serialized examples, by name."""
        return self.feed.parse

    def features(self, inputs: Mapping[str, Any]) -> Any:
        """Computes the features of inputs; see `Feed`."""
        return self.feed.features(inputs)


def receiver_of(receiver_fn: Callable[[], Any]) -> Receiver:
    """Runs a receiver function once to collect its inputs.

    Raises:
        ArgumentError: If it is no function, or returns no receiver, or needs inputs that callers cannot give.
    """
    if not callable(receiver_fn):
        raise ArgumentError(
            "A model is exported with a serving_input_receiver_fn, a function without arguments. Received: "
            f"{receiver_fn!r}. Make one with build_raw_serving_input_receiver_fn or "
            "build_parsing_serving_input_receiver_fn."
        )
    try:
        # Symbols where sizes are open: the features of a batch of any size are traced at once.
        collecting, received = _trace_receiver(receiver_fn, _symbols())
    except Exception:
        # What depends on a size in Python cannot be traced so; an error of the function itself is raised again here.
        collecting, received = _trace_receiver(receiver_fn, lambda axis: _EXAMPLE_SIZE)
    feed = _feed(receiver_fn, collecting, received.receiver_tensors)
    receiver = Receiver(feed)
    for name, tensors in (getattr(received, "receiver_tensors_alternatives", None) or {}).items():
        try:
            receiver.alternatives[name] = _feed(receiver_fn, collecting, tensors)
        except ArgumentError as error:
            receiver.excluded[name] = str(error)
    return receiver


def _trace_receiver(function: Callable[[], Any], size: Callable[[int], Any]) -> tuple[Collecting, Any]:
    """Runs a receiver function to collect its inputs; `size` returns the size of an open axis."""
    collecting = Collecting(size)
    returned: list[Any] = []

    def run() -> None:
        with running(collecting):
            returned.append(function())

    jax.eval_shape(run)
    received = returned[0]
    if not isinstance(received, (ServingInputReceiver, TensorServingInputReceiver, SupervisedInputReceiver)):
        raise ArgumentError(
            "A receiver function returns a ServingInputReceiver, TensorServingInputReceiver or "
            "SupervisedInputReceiver. "
            f"Received: {type(received).__name__}. Return one, of features and placeholders."
        )
    return collecting, received


def _symbols() -> Callable[[int], Any]:
    """Returns a function that makes symbolic sizes: "batch" for each first axis, as examples are counted alike."""
    scope = export.SymbolicScope()
    count = iter(range(10**6))
    symbol: Callable[[str], Any] = lambda name: export.symbolic_shape(name, scope=scope)[0]  # noqa: E731
    return lambda axis: symbol(f"size{next(count)}" if axis else "batch")


def _feed(function: Callable[[], Any], collected: Collecting, tensors: Mapping[str, Any]) -> Feed:
    """Returns the way to give a receiver function its inputs where callers give `tensors`."""
    numbers: dict[str, int] = {}
    for name, tensor in tensors.items():
        number = next((i for i, source in enumerate(collected.sources) if source.value is tensor), None)
        if number is None:
            raise ArgumentError(
                f"Receiver tensors are placeholders, or what was parsed of one. Received for {name!r}: a tensor that "
                "the receiver function computed. Return the placeholder that it was computed from."
            )
        numbers[name] = number
    parse = {name: collected.specs[number] for name, number in numbers.items() if number in collected.specs}
    origins: dict[int, _Origin] = {number: (name, None) for name, number in numbers.items()}
    names = {number: name for name, number in numbers.items()}
    for number, source in enumerate(collected.sources):
        if source.examples in names and number not in origins:
            origins[number] = (names[source.examples], source.name)
    # The value of each source must be known; examples need none if callers give everything in them.
    for number, source in enumerate(collected.sources):
        if number in origins:
            continue
        inside = [i for i, other in enumerate(collected.sources) if other.examples == number]
        missing = next((collected.sources[i] for i in inside if i not in origins), None) if inside else source
        if missing is not None:
            raise ArgumentError(
                "Callers must give each placeholder of a receiver function, or everything that was parsed of it. "
                f"Received: {missing.name or missing.spec.name or missing.spec}, which is not among the receiver "
                "tensors. Add it."
            )
        origins[number] = None
    inputs = {name: collected.sources[number].spec for name, number in numbers.items()}
    return Feed(inputs, parse, function, origins)


@dataclass(frozen=True)
class Plan:
    """The plan of one signature: its name, the name of its output, and the callers' inputs.

    `kind` is the output as it was when the model_fn was looked at: its class and names count, not its values.
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


def _plans_of(export_outputs: Mapping[str, ExportOutput], receiver: Receiver) -> list[Plan]:
    """Returns the plans for a model's export outputs, and logs their names."""
    # TensorFlow's names: those of the outputs, and "ALTERNATIVE:OUTPUT" for the receiver's alternatives. Unlike there,
    # a classification or regression may have other inputs than serialized examples.
    plans = [Plan(name, name, receiver.feed, output) for name, output in export_outputs.items()]
    for alternative, feed in receiver.alternatives.items():
        plans += [Plan(f"{alternative}:{name}", name, feed, output) for name, output in export_outputs.items()]
    excluded = {f"{a}:{name}": why for a, why in receiver.excluded.items() for name in export_outputs}
    for method, friendly in _FRIENDLY.items():
        names = [plan.name for plan in plans if plan.kind.method_name == method]
        _log.info("Signatures INCLUDED in export for %s: %s", friendly, names or None)
    if excluded:
        _log.info("Signatures EXCLUDED from export because they cannot be be served via TensorFlow Serving APIs:")
    for name, why in excluded.items():
        _log.info("'%s' : %s", name, why)
    is_served = any(plan.kind.method_name.startswith("tensorflow/serving/") for plan in plans)
    if not plans:
        _log.warning("Export includes no signatures!")
    elif is_served and all(plan.name != DEFAULT_SERVING_SIGNATURE_DEF_KEY for plan in plans):
        _log.warning("Export includes no default signature!")
    return plans


def signatures_of(
    export_outputs: Mapping[str, ExportOutput], receiver: Receiver, call: Call, tags: tuple[str, ...] = (SERVING,)
) -> dict[str, SignatureFunction]:
    """Returns the signatures for a model's export outputs, of which only kinds and names are used.

    `call` is the model: a pure function of the variables by name, the features and, if the receiver has them, the
    labels, which returns the `ExportOutput`s by name.
    """
    functions: dict[tuple[int, str, int], Any] = {}
    signatures: dict[str, SignatureFunction] = {}
    for plan in _plans_of(export_outputs, receiver):
        # Signatures with the same outputs of the same inputs share a function, of which one program is compiled: a
        # model's only output is also "serving_default".
        key = (id(plan.feed), plan.input_alias or "", id(plan.kind))
        function = functions.setdefault(key, _function(plan, call))
        alias = plan.input_alias
        inputs = {alias or name: spec for name, spec in plan.feed.inputs.items()}
        parse = {alias or name: spec for name, spec in plan.feed.parse.items()}
        signatures[plan.name] = SignatureFunction(function, inputs, parse, tags, plan.kind.method_name)
    return signatures


def _function(plan: Plan, call: Call) -> Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]:
    def function(variables: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
        named = inputs if plan.input_alias is None else dict(zip(plan.feed.inputs, inputs.values(), strict=True))
        return call(variables, *plan.feed.data(named))[plan.output].tensors()

    return function
