"""Signatures of user functions, and calls with the arguments that they accept."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lockstep._types import PyTree
from lockstep.errors import ArgumentError
from lockstep.estimator._types import InputFn

if TYPE_CHECKING:
    from lockstep.estimator._run_config import RunConfig

_log = logging.getLogger("lockstep")

_MODEL_FN_ARGUMENTS = ("features", "labels", "mode", "params", "config")
_MODEL_FN_EXAMPLE = "def model_fn(features, labels, mode, params, config)"


def argument_names(function: Callable[..., Any], positional: bool = False) -> tuple[str, ...]:
    """Returns the names of a function's arguments, without those that are bound already.

    Args:
        function: A function, a bound method, a functools.partial, or an object that can be called.
        positional: Whether to leave out keyword-only arguments.

    Raises:
        ArgumentError: If it cannot be called, or has no signature.
    """
    return tuple(p.name for p in _parameters(function) if not positional or p.kind is not p.KEYWORD_ONLY)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    # inspect.signature keeps a partial's keywords as arguments with defaults, which would be passed again.
    if isinstance(function, functools.partial):
        parameters = _parameters(function.func)[len(function.args) :]
        return [p for p in parameters if p.name not in function.keywords]
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p for p in _signature(function).parameters.values() if p.kind in named]


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"It must be a function whose arguments Python can tell. Received: {function!r} ({error}). Wrap it in a "
            "function of your own."
        ) from None


def check_model_fn(model_fn: object, params: Mapping[str, Any] | None) -> None:
    """Checks the arguments of a model_fn: `features`, and any of `labels`, `mode`, `params` and `config`.

    Args:
        model_fn: The function.
        params: The `params` argument, or `None`.

    Raises:
        ArgumentError: If it cannot be called, lacks `features` or needed `params`, or has other arguments.
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


def call_model_fn_arguments(
    model_fn: Callable[..., Any], params: Mapping[str, Any] | None, config: RunConfig
) -> dict[str, Any]:
    """Returns which of `params` and `config` a model_fn takes, by name."""
    return _accepted(model_fn, {"params": params, "config": config})


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
    return model_fn(features=features, **_accepted(model_fn, optional))


def accepts_input_context(input_fn: Callable[..., Any]) -> bool:
    """Returns whether an input_fn has an argument `input_context`."""
    return "input_context" in argument_names(input_fn)


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
    optional: dict[str, Any] = {"mode": mode, "params": params, "config": config}
    if input_context is not None or _demands_input_context(input_fn):
        optional["input_context"] = input_context
    return input_fn(**_accepted(input_fn, optional))


def _demands_input_context(input_fn: Callable[..., Any]) -> bool:
    return any(p.name == "input_context" and p.default is p.empty for p in _parameters(input_fn))


def _accepted(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    names = argument_names(function)
    return {name: value for name, value in arguments.items() if name in names}
