from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import pytest

from lockstep.errors import ArgumentError
from lockstep.estimator._arguments import (
    argument_names,
    call_input_fn,
    call_model_fn,
    check_model_fn,
)


class Model:
    def method(self, features: Any, labels: Any, mode: str) -> Any:
        return (features, labels, mode)

    def __call__(self, features: Any, mode: str) -> Any:
        return (features, mode)

    @staticmethod
    def of_class(features: Any, config: Any) -> Any:
        return (features, config)


def whole(features: Any, labels: Any, mode: Any, params: Any, config: Any) -> Any:
    return {"features": features, "labels": labels, "mode": mode, "params": params, "config": config}


def with_more(first: Any, features: Any, labels: Any, mode: Any = None, *, width: int = 3) -> Any:
    return (first, features, labels, mode, width)


@functools.wraps(whole)
def wrapped(*args: Any, **kwargs: Any) -> Any:
    return whole(*args, **kwargs)


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (whole, ("features", "labels", "mode", "params", "config")),
        (Model().method, ("features", "labels", "mode")),
        (Model.method, ("self", "features", "labels", "mode")),
        (Model(), ("features", "mode")),
        (Model.of_class, ("features", "config")),
        (functools.partial(with_more, 1), ("features", "labels", "mode", "width")),
        (functools.partial(with_more, 1, mode="x"), ("features", "labels", "width")),
        (functools.partial(functools.partial(with_more, 1), 2), ("labels", "mode", "width")),
        (lambda features, *args, **kwargs: features, ("features",)),
        (wrapped, ("features", "labels", "mode", "params", "config")),
    ],
)
def test_names_of_arguments(function: Callable[..., Any], names: tuple[str, ...]) -> None:
    assert argument_names(function) == names


@pytest.mark.parametrize("function", [whole, Model().method, Model(), functools.partial(with_more, 1), wrapped])
def test_model_fns_that_are_right(function: Callable[..., Any]) -> None:
    check_model_fn(function, {} if "params" in argument_names(function) else None)


@pytest.mark.parametrize(
    ("function", "params", "rule"),
    [
        (3, None, "must be a function"),
        (lambda labels, mode: None, None, "must include features argument.*arguments labels, mode"),
        (lambda: None, None, "no arguments"),
        (lambda features, labels: None, {}, "must include params argument.*params={}"),
        (lambda features, labels, weights, size: None, None, "arguments weights, size.*functools.partial"),
        (with_more, None, "arguments first"),
    ],
)
def test_model_fns_that_are_wrong(function: Any, params: Any, rule: str) -> None:
    with pytest.raises(ArgumentError, match=f"(?s){rule}"):
        check_model_fn(function, params)


def test_params_that_nobody_passes_are_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "lockstep"):
        check_model_fn(whole, None)
    assert "includes params argument, but params are not passed to Estimator." in caplog.text


def test_a_model_fn_gets_what_it_takes() -> None:
    assert call_model_fn(whole, 1, 2, "train", {"a": 3}, "config") == whole(1, 2, "train", {"a": 3}, "config")
    assert call_model_fn(Model().method, 1, 2, "eval") == (1, 2, "eval")
    assert call_model_fn(Model(), 1, None, "infer", {}, None) == (1, "infer")
    assert call_model_fn(functools.partial(with_more, 0, width=5), 1, None, "x") == (0, 1, None, "x", 5)
    assert call_model_fn(Model.of_class, 1, None, "train", {"a": 1}, "config") == (1, "config")
    with pytest.raises(ArgumentError, match="does not take labels"):
        call_model_fn(Model(), 1, 2, "train")


def test_an_input_fn_gets_what_it_takes() -> None:
    def input_fn(mode: Any, params: Any, config: Any, input_context: Any = "nothing") -> Any:
        return (mode, params, config, input_context)

    assert call_input_fn(input_fn, "train", {"a": 1}, 2, 3) == ("train", {"a": 1}, 2, 3)
    assert call_input_fn(input_fn, "train") == ("train", None, None, "nothing")
    assert call_input_fn(lambda input_context: input_context, "train") is None
    assert call_input_fn(lambda: 5, "train", {}, 1, 2) == 5
    assert call_input_fn(functools.partial(input_fn, "own"), "train", 1, 2, 3) == ("own", 1, 2, 3)
    with pytest.raises(ArgumentError, match="input_fn must be a function"):
        call_input_fn([1, 2], "train")


def test_arguments_that_python_cannot_tell() -> None:
    with pytest.raises(ArgumentError, match="Wrap it in a function"):
        argument_names(dict)
