"""Loops of a user's own follow one device's trajectory on several devices; processes: test_program_restarts."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import lockstep as ls
from tests.training import programs

TOLERANCE = 3e-5
# 8 of 30 divide into four and leave 6, which do not; 3 are fewer than there are replicas.
CASES: list[tuple[Any, int]] = [("global", 8), ("global", 3), ("replica", 8)]

Results = dict[str, np.ndarray]


class _OneDevice(dict[tuple[str, int], Results]):
    """What one device computes."""

    def __missing__(self, key: tuple[str, int]) -> Results:
        self[key] = programs.fitted(ls.distribute.OneDeviceStrategy("/cpu:0"), key[1], key[0])
        return self[key]


@pytest.fixture(scope="module")
def one_device() -> _OneDevice:
    return _OneDevice()


def check(found: Results, expected: Results) -> None:
    assert found.keys() <= expected.keys()
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], rtol=0, atol=TOLERANCE, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(("view", "batch"), CASES)
def test_devices(view: Any, batch: int, one_device: _OneDevice) -> None:
    check(programs.fitted(ls.distribute.MirroredStrategy(), batch, view), one_device[view, batch])


@pytest.mark.slow
def test_a_loop_around_single_steps(one_device: _OneDevice) -> None:
    check(programs.looped(ls.distribute.MirroredStrategy()), one_device["global", 8])


@pytest.mark.slow
@programs.compiled_quickly()
def test_it_is_what_a_loop_of_plain_jax_computes(one_device: _OneDevice) -> None:
    after, losses, data = programs.state(), [], programs.dataset()
    static = {k: after.pop(k) for k in ("activation", "name", "rate")}

    @jax.jit
    def plain(state: Any, batch: Any) -> Any:
        after, logs = programs.step({**state, **static}, batch)
        return {k: v for k, v in after.items() if k not in static}, logs

    for _ in range(2):
        for batch in data:
            after, logs = plain(after, batch)
        losses.append(float(logs["loss"]))
    check({**programs.arrays(after), "losses": np.asarray(losses)}, one_device["global", 8])
