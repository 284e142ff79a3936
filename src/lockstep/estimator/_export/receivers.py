"""Input receivers for serving, training and evaluation, and functions that build them.

Source: tf.estimator.export.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from lockstep._text import Text
from lockstep._types import PyTree, Tensor
from lockstep.data.internal import TensorSpec, spec_of_leaf
from lockstep.errors import ArgumentError
from lockstep.estimator._export.placeholders import ParsedText, Placeholder, parse_example, placeholder
from lockstep.saved_model.internal import parsing as _parsing

# TensorFlow's names for a single tensor without one.
_SINGLE = {
    "feature": "feature",
    "label": "label",
    "receiver_tensor": "input",
    "receiver_tensors_alternative": "input",
}


class _Serving(NamedTuple):
    features: Any
    receiver_tensors: dict[str, Any]
    receiver_tensors_alternatives: dict[str, dict[str, Any]] | None


class _Supervised(NamedTuple):
    features: Any
    labels: Any
    receiver_tensors: dict[str, Any]


class ServingInputReceiver(_Serving):
    """The result of a serving_input_receiver_fn: inputs, and features computed from them.

    Args:
        features: A tensor, or a dict of tensors; a single one reaches the model_fn as `{"feature": tensor}`.
        receiver_tensors: The callers' inputs: a placeholder, or a dict of placeholders; a single one is named "input".
        receiver_tensors_alternatives: Other inputs from which the same features can be computed, by name; each makes
            further signatures, "NAME:SIGNATURE".

    Raises:
        ArgumentError: If something is no tensor, or has no name.

    Source: tf.estimator.export.ServingInputReceiver.
    """

    __slots__ = ()

    def __new__(
        cls, features: PyTree, receiver_tensors: PyTree, receiver_tensors_alternatives: Mapping[str, Any] | None = None
    ) -> ServingInputReceiver:
        """Checks the arguments."""
        return super().__new__(
            cls,
            _to_dict(features, "feature", allows_integers=True),
            _to_dict(receiver_tensors, "receiver_tensor"),
            _alternatives(receiver_tensors_alternatives),
        )


class TensorServingInputReceiver(_Serving):
    """The result of a serving_input_receiver_fn for a model whose features are one tensor, not a dict.

    Args:
        features: The tensor.
        receiver_tensors: See `ServingInputReceiver`.
        receiver_tensors_alternatives: See `ServingInputReceiver`.

    Raises:
        ArgumentError: If something is no tensor, or has no name.

    Source: tf.estimator.export.TensorServingInputReceiver.
    """

    __slots__ = ()

    def __new__(
        cls, features: PyTree, receiver_tensors: PyTree, receiver_tensors_alternatives: Mapping[str, Any] | None = None
    ) -> TensorServingInputReceiver:
        """Checks the arguments."""
        # As they are: the model_fn expects one tensor. TensorFlow wraps and unwraps it.
        _check_tensor(features, "feature", "feature")
        return super().__new__(
            cls,
            features,
            _to_dict(receiver_tensors, "receiver_tensor"),
            _alternatives(receiver_tensors_alternatives),
        )


class SupervisedInputReceiver(_Supervised):
    """The result of a receiver function for training or evaluation: inputs, features and labels.

    Args:
        features: A tensor, or a dict of tensors; they reach the model_fn as they are.
        labels: The labels, likewise.
        receiver_tensors: The callers' inputs: a placeholder, or a dict of placeholders; a single one is named "input".

    Raises:
        ArgumentError: If something is no tensor, or has no name.

    Source: tf.estimator.export.SupervisedInputReceiver.
    """

    __slots__ = ()

    def __new__(cls, features: PyTree, labels: PyTree, receiver_tensors: PyTree) -> SupervisedInputReceiver:
        """Checks the arguments."""
        _to_dict(features, "feature", allows_integers=True)
        _to_dict(labels, "label", allows_integers=True)
        return super().__new__(cls, features, labels, _to_dict(receiver_tensors, "receiver_tensor"))


class UnsupervisedInputReceiver(ServingInputReceiver):
    """The result of a receiver function for training or evaluation without labels.

    Args:
        features: See `ServingInputReceiver`.
        receiver_tensors: See `ServingInputReceiver`.

    Source: tf.estimator.export's UnsupervisedInputReceiver.
    """

    __slots__ = ()

    def __new__(cls, features: PyTree, receiver_tensors: PyTree) -> UnsupervisedInputReceiver:
        """Checks the arguments."""
        return super().__new__(cls, features, receiver_tensors)  # pyright: ignore[reportReturnType]


ReceiverFunction = Callable[[], Any]


def build_raw_serving_input_receiver_fn(
    features: Mapping[str, Any], default_batch_size: int | None = None
) -> ReceiverFunction:
    """Returns a serving_input_receiver_fn for callers who give the features themselves.

    Args:
        features: Arrays, specs or placeholders with the features' shapes, by name; the first size is left open.
        default_batch_size: The number of examples in each call; `None` for any.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.estimator.export.build_raw_serving_input_receiver_fn.
    """
    specs = _raw_specs(features, "features", default_batch_size)

    def serving_input_receiver_fn() -> ServingInputReceiver:
        receiver_tensors = _placeholders(specs)
        return ServingInputReceiver(receiver_tensors, receiver_tensors)

    return serving_input_receiver_fn


def build_parsing_serving_input_receiver_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> ReceiverFunction:
    """Returns a serving_input_receiver_fn for callers who give serialized examples, as an input "examples".

    What is of different length in each example becomes an array: behind shorter rows stand "" (text), -1 (integers) or
    0, which the columns of lockstep.estimator.feature_column take for no value.

    Args:
        feature_spec: The features of examples: `FixedLenFeature`, `VarLenFeature` and so on, by name.
        default_batch_size: The number of examples in each call; `None` for any.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.estimator.export.build_parsing_serving_input_receiver_fn.
    """
    if not isinstance(feature_spec, Mapping) or not feature_spec:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"feature_spec describes what examples hold, by name. Received: {feature_spec!r}.")
    _parsing.as_json(feature_spec)
    _check_batch_size(default_batch_size)

    def serving_input_receiver_fn() -> ServingInputReceiver:
        examples = placeholder("string", [default_batch_size], "input_example_tensor")
        return ServingInputReceiver(parse_example(examples, feature_spec), {"examples": examples})

    return serving_input_receiver_fn


def build_raw_supervised_input_receiver_fn(
    features: PyTree, labels: PyTree, default_batch_size: int | None = None
) -> ReceiverFunction:
    """Returns a receiver function for training or evaluation whose inputs are features and labels themselves.

    Args:
        features: Something that looks like the features, or a dict of such.
        labels: The labels, likewise.
        default_batch_size: The number of examples in each call; `None` for any.

    Raises:
        ArgumentError: If features and labels have a name in common, or an argument is wrong.

    Source: tf.estimator.experimental.build_raw_supervised_input_receiver_fn.
    """
    named = [
        given if isinstance(given, Mapping) else {name: given}
        for given, name in ((features, "input"), (labels, "label"))
    ]
    both = sorted(set(named[0]) & set(named[1]))
    if both:
        raise ArgumentError(f"Features and labels must have distinct keys. Found overlapping keys: {both}. Rename one.")
    feature_specs = _raw_specs(named[0], "features", default_batch_size)
    label_specs = _raw_specs(named[1], "labels", default_batch_size)

    def supervised_input_receiver_fn() -> SupervisedInputReceiver:
        inputs = [_placeholders(feature_specs), _placeholders(label_specs)]
        # As a dict or as a single one, as their specs were given: so they reach the model_fn.
        given = [
            named if isinstance(specs, Mapping) else next(iter(named.values()))
            for specs, named in zip((features, labels), inputs, strict=True)
        ]
        return SupervisedInputReceiver(given[0], given[1], {**inputs[0], **inputs[1]})

    return supervised_input_receiver_fn


def _placeholders(specs: Mapping[str, TensorSpec]) -> dict[str, Any]:
    return {name: placeholder(spec.dtype, spec.shape, name) for name, spec in specs.items()}


def _raw_specs(given: PyTree, what: str, default_batch_size: int | None) -> dict[str, TensorSpec]:
    _check_batch_size(default_batch_size)
    if not isinstance(given, Mapping) or not given:
        raise ArgumentError(f"{what} are a dict of arrays or specifications, by name. Received: {given!r}.")
    specs: dict[str, TensorSpec] = {}
    for name, value in given.items():
        if isinstance(value, Text):
            specs[name] = TensorSpec((default_batch_size, *value.shape[1:]), "string")
            continue
        if not hasattr(value, "shape") or not hasattr(value, "dtype"):
            raise ArgumentError(
                f"{what} {name!r} is an array, or a specification with a shape and a dtype. Received: {value!r}. "
                "Example: tf.compat.v1.placeholder(tf.float32, [None, 4])"
            )
        # An array stands for its shape and dtype; its values are not used.
        spec = TensorSpec(value.shape, value.dtype) if isinstance(value, TensorSpec) else spec_of_leaf(value)
        # The first size of an example's array is its batch's, and says nothing of those to come.
        shape = None if spec.shape is None else (default_batch_size, *spec.shape[1:])
        specs[name] = TensorSpec(shape, spec.dtype)
    return specs


def _check_batch_size(size: object) -> None:
    if size is not None and (type(size) is not int or size < 1):
        raise ArgumentError(f"default_batch_size is a number of examples, or None for any. Received: {size!r}.")


def _alternatives(given: PyTree) -> dict[str, dict[str, Any]] | None:
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise ArgumentError(f"receiver_tensors_alternatives must be a dict: {given!r}. Give each alternative a name.")
    return {name: _to_dict(tensors, "receiver_tensors_alternative") for name, tensors in given.items()}


def _to_dict(tensors: PyTree, what: str, allows_integers: bool = False) -> dict[Any, Any]:
    """Wraps a single tensor in a dict."""
    if tensors is None:
        raise ArgumentError(f"{what}s must be defined. Received: None.")
    named = tensors if isinstance(tensors, Mapping) else {_SINGLE[what]: tensors}
    for name, tensor in named.items():
        if not isinstance(name, (str, int) if allows_integers else str) or isinstance(name, bool):
            raise ArgumentError(
                f"{what} keys must be strings{' or ints' if allows_integers else ''}: {name!r}. Rename it, as in "
                f"{{{str(name)!r}: ...}}."
            )
        _check_tensor(tensor, f"{what} {name}", what)
    return dict(named)


def _check_tensor(tensor: Tensor, where: str, what: str) -> None:
    if tensor is None:
        raise ArgumentError(f"{what}s must be defined. Received: None.")
    if isinstance(tensor, ParsedText) and what in ("feature", "label"):
        raise ArgumentError(
            f"{where} may be one of the tensors in serialised examples. Received: the examples, which were parsed, too."
        )
    if not (isinstance(tensor, (jax.Array, np.ndarray, Text, ParsedText, Placeholder)) or hasattr(tensor, "to_dense")):
        raise ArgumentError(
            f"{where} must be a Tensor, SparseTensor, or RaggedTensor. Received: {tensor!r}, a "
            f"{type(tensor).__name__}. Make it of a tf.compat.v1.placeholder, or an array."
        )
