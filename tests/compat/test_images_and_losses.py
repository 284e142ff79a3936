"""Images, signals, and losses by drawn classes are what TensorFlow 2.15.1 gives: on the host, and compiled."""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from tests.compat import image_cases, sampling_cases, signal_cases
from tests.compat.test_operations import check, hidden

MODULES = (image_cases, sampling_cases, signal_cases)
CASES = {name: case for module in MODULES for name, case in module.CASES.items()}
FOUND: dict[str, Any] = {n: v for module in MODULES for n, v in json.loads(module.EXPECTED.read_text()).items()}
VALUES_DECIDE = {name for module in MODULES for name in module.VALUES_DECIDE}


def test_every_case_has_an_expected_value() -> None:
    assert set(CASES) == set(FOUND)


@pytest.mark.parametrize("name", CASES)
def test_on_the_host(name: str) -> None:
    check(CASES[name](tf, tf.constant), FOUND[name])


# Each is compiled for this test alone, which takes long.
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(CASES) - VALUES_DECIDE))
def test_compiled(name: str) -> None:
    def run(zero: Any) -> Any:
        """Every input depends on an argument, so that JAX knows none of them."""
        return CASES[name](tf, lambda v, **_: hidden(np.asarray(tf.constant(v)), zero))

    check(jax.jit(run)(0), FOUND[name])
