"""Receiver functions as functions of the inputs that callers give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
from jax import export

from lockstep._types import Tensor
from lockstep.data.internal import TensorSpec
from lockstep.errors import ArgumentError
from lockstep.estimator._export.placeholders import Collecting, Feeding, ParsedText, Source, running
from lockstep.estimator._export.receivers import (
    ServingInputReceiver,
    SupervisedInputReceiver,
    TensorServingInputReceiver,
)

# Any number that is more than one does.
_SOME = 2
# Where the value of a source comes from: an input, and what in its examples; or `None` for examples of which callers
# give everything that is in them.
_Origin = tuple[str, str | None] | None


@dataclass(frozen=True)
class Feed:
    """A way to give a receiver function its inputs.

    Attributes:
        inputs: Specs of the callers' inputs, by name.
        parse: Features of inputs that are serialized examples, by name.
    """

    inputs: dict[str, TensorSpec]
    parse: dict[str, Mapping[str, Any]]
    _function: Callable[[], Any]
    _origins: dict[int, _Origin]

    def features(self, inputs: Mapping[str, Any]) -> Any:
        """Computes the features of inputs; inside of a trace these may be traced, outside they are arrays.

        Args:
            inputs: Values by name; for serialized examples, a dict of their features.
        """
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
    """A receiver function, traced: its inputs, features and labels.

    Attributes:
        feed: The callers' inputs.
        alternatives: Alternative inputs, by name.
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

    Args:
        receiver_fn: A serving_input_receiver_fn, or a receiver function for training or evaluation.

    Raises:
        ArgumentError: If it is no function, or returns no receiver, or needs inputs that callers cannot
            give.
        Exception: The function's own exceptions.
    """
    if not callable(receiver_fn):
        raise ArgumentError(
            "A model is exported with a serving_input_receiver_fn, a function without arguments. Received: "
            f"{receiver_fn!r}. Make one with build_raw_serving_input_receiver_fn or "
            "build_parsing_serving_input_receiver_fn."
        )
    collecting, received = _collect(receiver_fn)
    feed = _feed(receiver_fn, collecting, received.receiver_tensors)
    receiver = Receiver(feed)
    for name, tensors in (getattr(received, "receiver_tensors_alternatives", None) or {}).items():
        try:
            receiver.alternatives[name] = _feed(receiver_fn, collecting, tensors)
        except ArgumentError as error:
            receiver.excluded[name] = str(error)
    return receiver


def _collect(function: Callable[[], Any]) -> tuple[Collecting, Any]:
    """Runs a receiver function, with symbolic sizes where they are open, or else with example sizes."""
    try:
        return _run(function, _symbols())
    except Exception:
        return _run(function, lambda axis: _SOME)


def _run(function: Callable[[], Any], size: Callable[[int], Any]) -> tuple[Collecting, Any]:
    collecting = Collecting(size)
    found: list[Any] = []

    def run() -> None:
        with running(collecting):
            found.append(function())

    jax.eval_shape(run)
    return collecting, _check_receiver(found[0])


def _check_receiver(received: object) -> Any:
    kinds = (ServingInputReceiver, TensorServingInputReceiver, SupervisedInputReceiver)
    if not isinstance(received, kinds):
        raise ArgumentError(
            "A receiver function returns a ServingInputReceiver, TensorServingInputReceiver or "
            "SupervisedInputReceiver. "
            f"Received: {type(received).__name__}. Return one, of features and placeholders."
        )
    return received


def _symbols() -> Callable[[int], Any]:
    scope = export.SymbolicScope()
    count = iter(range(10**6))
    symbol: Callable[[str], Any] = lambda name: export.symbolic_shape(name, scope=scope)[0]  # noqa: E731
    return lambda axis: symbol(f"size{next(count)}" if axis else "batch")


def _feed(function: Callable[[], Any], collected: Collecting, tensors: Mapping[str, Any]) -> Feed:
    numbers = {name: _number(name, tensor, collected.sources) for name, tensor in tensors.items()}
    parse = {name: collected.specs[number] for name, number in numbers.items() if number in collected.specs}
    origins: dict[int, _Origin] = {number: (name, None) for name, number in numbers.items()}
    names = {number: name for name, number in numbers.items()}
    for number, source in enumerate(collected.sources):
        if source.examples in names and number not in origins:
            origins[number] = (names[source.examples], source.name)
    _check_all_given(collected, origins)
    inputs = {name: collected.sources[number].spec for name, number in numbers.items()}
    return Feed(inputs, parse, function, origins)


def _number(name: str, tensor: Tensor, sources: list[Source]) -> int:
    number = next((i for i, source in enumerate(sources) if source.value is tensor), None)
    if number is None:
        raise ArgumentError(
            f"Receiver tensors are placeholders, or what was parsed of one. Received for {name!r}: a tensor that the "
            "receiver function computed. Return the placeholder that it was computed from."
        )
    return number


def _check_all_given(collected: Collecting, origins: dict[int, _Origin]) -> None:
    """Checks that the value of each source is known; examples need none if callers give everything in them."""
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
