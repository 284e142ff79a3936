"""tf.test: a test case with TensorFlow's comparisons."""

from __future__ import annotations

import inspect as _inspect
import tempfile as _tempfile
import unittest as _unittest
from importlib.util import find_spec as _find_spec
from typing import Any as _Any

import numpy as _np

from lockstep._nest import map_structure as _map_structure
from lockstep._types import Tensor as _Tensor
from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.errors import UnsupportedError as _UnsupportedError

__all__ = ["Benchmark", "TestCase", "get_temp_dir", "gpu_device_name", "is_built_with_cuda", "is_gpu_available", "main"]

main = _unittest.main


class TestCase(_unittest.TestCase):
    """unittest's, with comparisons of tensors. Source: tf.test.TestCase."""

    def assertAllClose(
        self, a: _Tensor, b: _Tensor, rtol: float = 1e-6, atol: float = 1e-6, msg: str | None = None
    ) -> None:
        """Fails unless elements are close."""
        _np.testing.assert_allclose(_np.asarray(a), _np.asarray(b), rtol=rtol, atol=atol, err_msg=msg or "")

    def assertAllEqual(self, a: _Tensor, b: _Tensor, msg: str | None = None) -> None:
        """Fails unless elements are equal."""
        _np.testing.assert_array_equal(_np.asarray(a), _np.asarray(b), err_msg=msg or "")

    def assertShapeEqual(self, input_a: _Any, input_b: _Any, msg: str | None = None) -> None:
        """Fails unless shapes are equal."""
        self.assertEqual(tuple(input_a.shape), tuple(input_b.shape), msg)

    def get_temp_dir(self) -> str:
        """Returns a new directory, removed after the test."""
        directory = _tempfile.TemporaryDirectory()
        # TensorFlow keeps the directory until the process ends; here no test leaves files behind.
        self.addCleanup(directory.cleanup)
        return directory.name


class Benchmark:
    """Measures what its methods measure, and prints it; each begins with `benchmark`. Source: tf.test.Benchmark."""

    @classmethod
    def is_abstract(cls) -> bool:
        """Returns whether this is a class to derive from."""
        return cls is Benchmark

    def report_benchmark(
        self,
        iters: int | None = None,
        cpu_time: float | None = None,
        wall_time: float | None = None,
        throughput: float | None = None,
        extras: _Any = None,
        name: str | None = None,
        metrics: _Any = None,
    ) -> None:
        """Prints a line with what was measured, under the method's name unless there is another."""
        # The method that calls is named in TensorFlow's reports, too.
        caller = _inspect.stack()[1].function
        values = {"iters": iters, "cpu_time": cpu_time, "wall_time": wall_time, "throughput": throughput}
        values.update({"extras": extras, "metrics": metrics})
        shown = ", ".join(f"{key}={value!r}" for key, value in values.items() if value is not None)
        print(f"{type(self).__name__}.{name or caller}: {shown}")

    def evaluate(self, tensors: _Any) -> _Any:
        """Returns numpy's arrays of tensors."""
        return _map_structure(_np.asarray, tensors)

    def run_op_benchmark(self, sess: _Any, op_or_tensor: _Any, **_: _Any) -> _Any:
        """Says what to use: a session is what it measures."""
        raise _UnsupportedError("There are no sessions. Call the function between two calls of time.perf_counter().")


def get_temp_dir() -> str:
    """Returns a new directory. Source: tf.test.get_temp_dir."""
    return _tempfile.mkdtemp()


def is_built_with_cuda() -> bool:
    """Returns whether JAX has a plugin for CUDA. Source: tf.test.is_built_with_cuda."""
    # Asking JAX for its devices would start it, and TensorFlow's function does not.
    return any(_find_spec(p) is not None for p in ("jax_cuda12_plugin", "jax_cuda13_plugin"))


def is_gpu_available() -> bool:
    """Returns whether there is a GPU that JAX can use. Source: tf.test.is_gpu_available."""
    from lockstep.compat.tensorflow.config import list_physical_devices

    return bool(list_physical_devices("GPU"))


def gpu_device_name() -> str:
    """Returns "/device:GPU:0" if there is one, else "". Source: tf.test.gpu_device_name."""
    return "/device:GPU:0" if is_gpu_available() else ""


__getattr__ = _getter(__name__)
