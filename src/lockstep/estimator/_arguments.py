"""Checks of users' arguments, and calls of their functions with the arguments that these accept."""

from __future__ import annotations

import functools
import inspect
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from lockstep._types import PyTree
from lockstep.errors import ArgumentError
from lockstep.estimator._types import InputFn

if TYPE_CHECKING:
    from lockstep.estimator._run_config import RunConfig

_log = logging.getLogger("lockstep")
_T = TypeVar("_T")

_MODEL_FN_ARGUMENTS = ("features", "labels", "mode", "params", "config")
_MODEL_FN_EXAMPLE = "def model_fn(features, labels, mode, params, config)"


def check_instances(values: object, kind: type[_T], name: str, example: str) -> tuple[_T, ...]:
    """Returns `values`, an iterable or `None`, as a tuple; raises `ArgumentError` unless all are of a class."""
    if values is not None and not isinstance(values, Iterable):
        raise ArgumentError(f"{name} must be a list of {kind.__name__}. Received: {values!r}. Example: [{example}]")
    elements: tuple[Any, ...] = () if values is None else tuple(values)
    for value in elements:
        if not isinstance(value, kind):
            raise ArgumentError(
                f"{name} must be a list of {kind.__name__}. Received in it: {value!r}. Example: [{example}]"
            )
    return elements


def check_hooks(values: object, name: str = "hooks") -> tuple[Any, ...]:
    """Returns hooks as a tuple; raises `ArgumentError` unless all are `SessionRunHook`s."""
    # Imported late: hooks import modules that use these checks.
    from lockstep.estimator._hooks import SessionRunHook

    return check_instances(values, SessionRunHook, name, "tf.estimator.StopAtStepHook(num_steps=100)")


def check_listeners(values: object) -> tuple[Any, ...]:
    """Returns listeners as a tuple; raises `ArgumentError` unless all are `CheckpointSaverListener`s."""
    from lockstep.estimator._hooks import CheckpointSaverListener

    return check_instances(values, CheckpointSaverListener, "saving_listeners", "MyListener()")


def check_function(value: object, name: str) -> Callable[..., Any]:
    """Returns `value`; raises `ArgumentError` unless it can be called."""
    if not callable(value):
        raise ArgumentError(
            f"{name} must be a function. Received: {value!r}. Example: {name}=lambda: lockstep.data.Dataset.range(8)"
        )
    return value


def check_step_count(value: object, name: str) -> int | None:
    """Returns a number of steps, rounded up; raises `ArgumentError` unless it is above 0, or `None`."""
    if value is None:
        return None
    given: object = value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
    # `not 0 < ...` refuses NaN, too.
    if not isinstance(given, Real) or given is True or not 0 < float(given) < math.inf:
        raise ArgumentError(f"Must specify {name} > 0, or None. Received: {value!r}. Example: {name}=1000")
    # TensorFlow stops after the first step at or beyond it: 1000 / 32 are 32 steps.
    return int(given) if isinstance(given, Integral) else math.ceil(float(given))


def check_seconds(value: object, name: str) -> float:
    """Returns a time; raises `ArgumentError` unless it is a number of seconds from 0 up."""
    # `not ... >= 0` refuses NaN, too.
    if not isinstance(value, Real) or not float(value) >= 0:
        raise ArgumentError(f"Must specify {name} >= 0, in seconds. Received: {value!r}.")
    return int(value) if isinstance(value, Integral) else float(value)


def argument_names(function: Callable[..., Any], positional: bool = False) -> tuple[str, ...]:
    """Returns the names of a function's arguments that are not bound yet; `positional`: without keyword-only ones.

    Raises:
        ArgumentError: If it cannot be called, or has no signature.
    """
    return tuple(p.name for p in _parameters(function) if not positional or p.kind is not p.KEYWORD_ONLY)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    # inspect.signature keeps a partial's keywords as arguments with defaults, which would be passed again.
    if isinstance(function, functools.partial):
        parameters = _parameters(function.func)[len(function.args) :]
        return [p for p in parameters if p.name not in function.keywords]
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"It must be a function whose arguments Python can tell. Received: {function!r} ({error}). Wrap it in a "
            "function of your own."
        ) from None
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p for p in signature.parameters.values() if p.kind in named]


def check_model_fn(model_fn: object, params: Mapping[str, Any] | None) -> None:
    """Checks the arguments of a model_fn: `features`, and any of `labels`, `mode`, `params` and `config`.

    Raises:
        ArgumentError: If it cannot be called, lacks `features` or needed `params`, or has other arguments.

    Source: _verify_model_fn_args of tf.estimator.Estimator.
    """
    if not callable(model_fn):
        raise ArgumentError(f"model_fn must be a function. Received: {model_fn!r}. Example: {_MODEL_FN_EXAMPLE}")
    names = argument_names(model_fn)
    if "features" not in names:
        raise ArgumentError(
            f"model_fn must include features argument. Received: {model_fn!r} with {_describe(names)}. Example: "
            f"{_MODEL_FN_EXAMPLE}"
        )
    if params is not None and "params" not in names:
        raise ArgumentError(
            f"model_fn must include params argument if params are passed to Estimator. Received: {model_fn!r} with "
            f"{_describe(names)}, and params={params!r}. Add the argument, or leave params out."
        )
    # Keyword-only arguments with other names have defaults, or fail at the call with Python's own message.
    unknown = [n for n in argument_names(model_fn, positional=True) if n not in (*_MODEL_FN_ARGUMENTS, "self")]
    if unknown:
        raise ArgumentError(
            f"model_fn may have the arguments {', '.join(_MODEL_FN_ARGUMENTS)}. Received: {model_fn!r} with "
            f"{_describe(unknown)}. Pass other values in params, or bind them with functools.partial."
        )
    if params is None and "params" in names:
        _log.warning(
            "Estimator's model_fn (%s) includes params argument, but params are not passed to Estimator.", model_fn
        )


def _describe(names: Sequence[str]) -> str:
    return f"arguments {', '.join(names)}" if names else "no arguments"


def call_model_fn(
    model_fn: Callable[..., Any],
    features: PyTree,
    labels: PyTree,
    mode: str,
    params: Mapping[str, Any] | None = None,
    config: RunConfig | None = None,
) -> Any:
    """Calls a model_fn with the arguments that it accepts.

    Raises:
        ArgumentError: There are labels, and it takes none.
    """
    names = argument_names(model_fn)
    if labels is not None and "labels" not in names:
        raise ArgumentError(
            f"model_fn does not take labels, but input_fn returns labels. Received: {model_fn!r} with "
            f"{_describe(names)}. Add the argument, or return features alone."
        )
    optional = {"labels": labels, "mode": mode, "params": params, "config": config}
    return model_fn(features=features, **{name: value for name, value in optional.items() if name in names})


def call_input_fn(
    input_fn: InputFn,
    mode: str,
    params: Mapping[str, Any] | None = None,
    config: RunConfig | None = None,
    input_context: object | None = None,
) -> Any:
    """Calls an input_fn with those of `mode`, `params`, `config` and `input_context` that it accepts.

    Raises:
        ArgumentError: If it cannot be called.
    """
    if not callable(input_fn):
        raise ArgumentError(
            f"input_fn must be a function. Received: {input_fn!r}. Example: "
            "lambda: lockstep.data.Dataset.from_tensor_slices((features, labels)).batch(32)"
        )
    parameters = {p.name: p for p in _parameters(input_fn)}
    optional: dict[str, Any] = {"mode": mode, "params": params, "config": config}
    # Without a strategy there is no context: the function's own default counts, and None only where it has none.
    context = parameters.get("input_context")
    if input_context is not None or (context is not None and context.default is context.empty):
        optional["input_context"] = input_context
    return input_fn(**{name: value for name, value in optional.items() if name in parameters})
