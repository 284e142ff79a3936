"""`eager.context`, `tf2` and others that say which mode and version runs: here all is eager, and version 2."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import lockstep.compat.tensorflow as tf
from tests.conformance.absent import Absent, AbsentError


def executing_eagerly() -> bool:
    return bool(tf.executing_eagerly())


executing_eagerly_outside_functions = executing_eagerly


@contextlib.contextmanager
def eager_mode() -> Iterator[None]:
    yield


def graph_mode() -> Any:
    raise AbsentError("graph", "graph mode")


@contextlib.contextmanager
def execution_mode(mode: Any) -> Iterator[None]:
    yield


def num_gpus() -> int:
    return 0


def async_wait() -> None:
    """Does nothing: values are waited for where they are read."""


def enabled() -> bool:
    return True


def enable_v2_behavior() -> None:
    """Does nothing: it is what runs."""


def toggle_test_mode(test_mode: bool) -> None:
    """Does nothing: it is TensorFlow's own."""


def forward_compatible(*args: Any) -> bool:
    return True


@contextlib.contextmanager
def forward_compatibility_horizon(*args: Any) -> Iterator[None]:
    yield


def set_global_seed(seed: int) -> None:
    tf.random.set_seed(seed)


SYNC, ASYNC = 0, 1
LogicalDeviceConfiguration = tf.config.LogicalDeviceConfiguration


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return Absent("internal", f"tensorflow.python.eager.context.{name}")
