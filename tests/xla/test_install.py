"""Installing, and the setting that switches everything off."""

from __future__ import annotations

import threading
from typing import Any

import jax
import numpy as np
import pytest
from jax.interpreters import mlir

from lockstep._xla import install as module
from lockstep._xla.install import install
from lockstep._xla.registered import registered
from lockstep._xla.rules import table
from lockstep._xla.setting import VARIABLE, enabled
from lockstep.errors import ArgumentError


def test_installing_again_changes_nothing() -> None:
    install()
    before = {primitive: registered(primitive) for primitive in table()}
    threads = [threading.Thread(target=install) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert {primitive: registered(primitive) for primitive in table()} == before


@pytest.mark.parametrize("value,expected", [(None, True), ("", True), ("1", True), ("0", False)])
def test_the_setting(monkeypatch: pytest.MonkeyPatch, value: str | None, expected: bool) -> None:
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    assert enabled() is expected


@pytest.mark.parametrize("value", ["off", "true", "2", " 1"])
def test_any_other_setting_is_an_error(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(ArgumentError, match="must be 1") as caught:
        install()
    assert repr(value) in str(caught.value)


def test_switched_off_nothing_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_installed", set())
    monkeypatch.setenv(VARIABLE, "0")
    registrations: list[Any] = []
    monkeypatch.setattr(mlir, "register_lowering", lambda *args, **kwargs: registrations.append(args))
    install()
    assert not registrations
    monkeypatch.setenv(VARIABLE, "1")
    install()
    assert registrations


def test_a_jax_that_hides_its_rules_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_installed", set())
    monkeypatch.delattr(mlir, "_lowerings")
    registrations: list[Any] = []
    monkeypatch.setattr(mlir, "register_lowering", lambda *args, **kwargs: registrations.append(args))
    install()
    assert not registrations


def test_rules_look_at_shapes_only() -> None:
    """The processes of a cluster must compile the same program."""
    aval = jax.core.ShapedArray((2, 4, 4, 3), np.dtype("float32"))
    params = {"select_prim": jax.lax.ge_p, "window_dimensions": (1, 2, 2, 1), "window_strides": (1, 2, 2, 1)}
    source = jax.core.ShapedArray((2, 2, 2, 3), np.dtype("float32"))
    (rule,) = table()[jax.lax.select_and_scatter_add_p]
    compute = rule(source, aval, padding=((0, 0),) * 4, **params)
    assert compute is not None
    assert jax.eval_shape(compute, source, aval).shape == aval.shape
