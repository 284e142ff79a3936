"""`test_util`: decorators that choose graphs, versions and devices. Here all runs eagerly, on version 2."""

from __future__ import annotations

import contextlib
import functools
import inspect
import unittest
from collections.abc import Callable, Iterator
from typing import Any

from tests.conformance.absent import AbsentError
from tests.conformance.helpers.case import *  # noqa: F403
from tests.conformance.helpers.case import TestCase as TestCase


def _same(decorated: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Returns what is decorated: with arguments, a decorator that does."""
    if callable(decorated) and not args and not kwargs:
        return decorated
    return lambda function: function


def _failing(kind: str, reason: str) -> Callable[..., Any]:
    def decorate(decorated: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not callable(decorated):
            return decorate
        if isinstance(decorated, type):
            for name, value in list(vars(decorated).items()):
                if name.startswith("test") and inspect.isfunction(value):
                    setattr(decorated, name, decorate(value))
            return decorated

        @functools.wraps(decorated)
        def run(self: Any, *args: Any, **kwargs: Any) -> None:
            # Many compute the same without a graph.
            try:
                decorated(self, *args, **kwargs)
            except unittest.SkipTest:
                raise
            except Exception as error:
                raise AbsentError(kind, reason) from error

        return run

    return decorate


def _skipping(reason: str) -> Callable[..., Any]:
    return lambda decorated=None, *args, **kwargs: (
        unittest.skip(reason)(decorated) if callable(decorated) else unittest.skip(reason)
    )


run_in_graph_and_eager_modes = run_all_in_graph_and_eager_modes = run_all_in_native_and_block_format = _same
run_v2_only = with_control_flow_v2 = enable_control_flow_v2 = enable_output_all_intermediates = _same
with_eager_op_as_function = disable_tfrt = disable_mlir_bridge = enable_eager_op_as_function = _same
disable_xla = run_all_without_tensor_float_32 = run_without_tensor_float_32 = run_with_forward_compatibility = _same
assert_no_new_tensors = assert_no_new_pyobjects_executing_eagerly = assert_no_garbage_created = _same
also_run_as_tf_function = build_as_function_and_v1_graph = skip_if = disable_asan = disable_tsan = _same
run_in_async_and_sync_mode = xla_allow_fallback = enable_mlir_bridge = no_xla_auto_jit = disable_cudnn_autotune = _same
run_v1_only = _same
run_gpu_only = run_gpu_or_tpu = run_cuda_only = _skipping("needs a GPU")
run_deprecated_v1 = deprecated_graph_mode_only = run_in_deprecated_graph_mode = _failing("graph", "graph mode")
run_v1_graph = deprecated_graph_mode_only


@contextlib.contextmanager
def deterministic_ops() -> Iterator[None]:
    yield


force_cpu = force_gpu = use_gpu = device = contextlib.nullcontext


@contextlib.contextmanager
def skip_if_error(case: Any, error_type: Any, messages: Any = None) -> Iterator[None]:
    try:
        yield
    except error_type as error:
        case.skipTest(str(error))


def is_xla_enabled() -> bool:
    return False


def IsMklEnabled() -> bool:
    return False


def set_logical_devices_to_at_least(*args: Any) -> None:
    """Does nothing: the process has enough devices."""


def reset_logical_devices(*args: Any) -> None:
    """Does nothing: the process has enough devices."""
