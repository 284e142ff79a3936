"""`test.TestCase` and what belongs to it."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import threading
import unittest
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock as mock

import numpy as np
from absl.testing import absltest

import lockstep.compat.tensorflow as tf
from tests.conformance.absent import AbsentError

StubOutForTesting = mock
main = unittest.main
SkipTest = unittest.SkipTest


def to_numpy(value: Any) -> Any:
    """Returns host values of any structure of tensors, as `Session.run` gives them."""
    if value is None or isinstance(value, (str, bytes, bool, int, float, complex, np.generic)):
        return value
    if isinstance(value, tf.RaggedTensor):
        return value
    if isinstance(value, Mapping):
        items = {k: to_numpy(v) for k, v in value.items()}
        return items if type(value) is dict else _rebuilt(value, items)
    if isinstance(value, tuple):
        items = [to_numpy(v) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [to_numpy(v) for v in value]
    if callable(value) and not hasattr(value, "dtype"):
        return to_numpy(value())
    if hasattr(value, "numpy"):
        return value.numpy()
    return np.asarray(value) if hasattr(value, "dtype") else value


def _rebuilt(value: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    try:
        return type(value)(items)  # pyright: ignore[reportCallIssue]
    except TypeError:
        return items


class _Session:
    """What `self.cached_session()` gives: it evaluates at once."""

    graph = None

    def run(self, fetches: Any, feed_dict: Any = None, *args: Any, **kwargs: Any) -> Any:
        if feed_dict:
            raise AbsentError("graph", "Session.run(feed_dict=)")
        return to_numpy(fetches)

    def close(self) -> None:
        """Does nothing."""


class TestCase(absltest.TestCase):
    """tf.test.TestCase, with all values at hand."""

    def setUp(self) -> None:
        super().setUp()
        tf.random.set_seed(87654321)
        np.random.seed(87654321)
        self._directory: str | None = None
        self._threads: list[Any] = []

    def evaluate(self, tensors: Any) -> Any:
        return to_numpy(tensors)

    @contextlib.contextmanager
    def session(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        yield _Session()

    cached_session = test_session = session

    def get_temp_dir(self) -> str:
        if self._directory is None:
            self._directory = tempfile.mkdtemp(prefix="conformance")
        return self._directory

    def assertAllEqual(self, a: Any, b: Any, msg: Any = None) -> None:
        if isinstance(a, tf.RaggedTensor) or isinstance(b, tf.RaggedTensor):
            self.assertEqual(_lists(a), _lists(b), msg)
            return
        a, b = self._GetNdArray(a), self._GetNdArray(b)
        if a.dtype.kind in "SOU" or b.dtype.kind in "SOU":
            a, b = _bytes(a), _bytes(b)
        self.assertEqual(a.shape, b.shape, msg)
        np.testing.assert_array_equal(a, b, err_msg=str(msg or ""))

    def assertNotAllEqual(self, a: Any, b: Any, msg: Any = None) -> None:
        try:
            self.assertAllEqual(a, b)
        except AssertionError:
            return
        raise AssertionError(f"The two values are equal at all elements. {msg or ''}")

    def assertAllClose(self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: Any = None) -> None:
        if isinstance(a, Mapping) or isinstance(b, Mapping):
            self.assertIsInstance(a, Mapping)
            self.assertIsInstance(b, Mapping)
            self.assertCountEqual(a, b)
            for key in a:
                self.assertAllClose(a[key], b[key], rtol, atol, msg)
            return
        if hasattr(a, "_asdict"):
            a = a._asdict()
            b = b._asdict() if hasattr(b, "_asdict") else b
            return self.assertAllClose(a, b, rtol, atol, msg)
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
            try:
                x, y = self._GetNdArray(a), self._GetNdArray(b)
            except (ValueError, TypeError):
                x = y = None
            if x is None or x.dtype == object:
                self.assertLen(b, len(a), msg)
                for one, other in zip(a, b, strict=True):
                    self.assertAllClose(one, other, rtol, atol, msg)
                return
        x, y = self._GetNdArray(a), self._GetNdArray(b)
        self.assertEqual(x.shape, y.shape, msg)
        np.testing.assert_allclose(
            x.astype(np.result_type(x, np.float32)), y, rtol=rtol, atol=atol, err_msg=str(msg or "")
        )

    def assertAllCloseAccordingToType(
        self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, float_rtol: float = 1e-6,
        float_atol: float = 1e-6, half_rtol: float = 1e-3, half_atol: float = 1e-3,
        bfloat16_rtol: float = 1e-2, bfloat16_atol: float = 1e-2, msg: Any = None,
    ) -> None:  # fmt: skip
        names = {str(self._GetNdArray(a).dtype), str(self._GetNdArray(b).dtype)}
        if "float32" in names:
            rtol, atol = max(rtol, float_rtol), max(atol, float_atol)
        if "float16" in names:
            rtol, atol = max(rtol, half_rtol), max(atol, half_atol)
        if "bfloat16" in names:
            rtol, atol = max(rtol, bfloat16_rtol), max(atol, bfloat16_atol)
        self.assertAllClose(a, b, rtol, atol, msg)

    def assertNotAllClose(self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: Any = None) -> None:
        try:
            self.assertAllClose(a, b, rtol, atol)
        except AssertionError:
            return
        raise AssertionError(f"The two values are close at all elements. {msg or ''}")

    def assertNear(self, f1: Any, f2: Any, err: float, msg: Any = None) -> None:
        self.assertTrue(f1 == f2 or abs(f1 - f2) <= err, msg or f"{f1} != {f2} +/- {err}")

    def assertArrayNear(self, farray1: Any, farray2: Any, err: float, msg: Any = None) -> None:
        self.assertEqual(len(farray1), len(farray2))
        for one, other in zip(farray1, farray2, strict=True):
            self.assertNear(float(one), float(other), err, msg)

    assertNDArrayNear = assertArrayNear

    def assertShapeEqual(self, input_a: Any, input_b: Any, msg: Any = None) -> None:
        self.assertEqual(tuple(input_a.shape), tuple(input_b.shape), msg)

    def assertDTypeEqual(self, target: Any, expected_dtype: Any) -> None:
        self.assertEqual(tf.as_dtype(self._GetNdArray(target).dtype), tf.as_dtype(expected_dtype))

    def assertAllTrue(self, a: Any) -> None:
        self.assertTrue(np.all(self._GetNdArray(a)))

    def assertAllFalse(self, a: Any) -> None:
        self.assertFalse(np.any(self._GetNdArray(a)))

    def assertAllGreater(self, a: Any, comparison_target: Any) -> None:
        self.assertGreater(np.min(self._GetNdArray(a)), comparison_target)

    def assertAllGreaterEqual(self, a: Any, comparison_target: Any) -> None:
        self.assertGreaterEqual(np.min(self._GetNdArray(a)), comparison_target)

    def assertAllLess(self, a: Any, comparison_target: Any) -> None:
        self.assertLess(np.max(self._GetNdArray(a)), comparison_target)

    def assertAllLessEqual(self, a: Any, comparison_target: Any) -> None:
        self.assertLessEqual(np.max(self._GetNdArray(a)), comparison_target)

    def assertAllInSet(self, target: Any, expected_set: Any) -> None:
        self.assertEmpty(set(self._GetNdArray(target).ravel().tolist()) - set(expected_set))

    def assertAllInRange(self, target: Any, lower_bound: Any, upper_bound: Any, *args: Any) -> None:
        values = self._GetNdArray(target)
        self.assertTrue(np.all(values >= lower_bound) and np.all(values <= upper_bound))

    def assertItemsEqual(self, items1: Any, items2: Any, msg: Any = None) -> None:
        self.assertCountEqual(items1, items2, msg)

    def assertStartsWith(self, actual: Any, expected_start: Any, msg: Any = None) -> None:
        self.assertTrue(actual.startswith(expected_start), msg)

    def assertProtoEquals(self, *args: Any, **kwargs: Any) -> None:
        if hasattr(args[1], "SerializeToString") and not isinstance(args[0], str):
            self.assertEqual(args[0].SerializeToString(), args[1].SerializeToString())
            return
        raise AbsentError("internal", "messages of protobuf")

    assertProtoEqualsVersion = assertProtoEquals

    def assertDeviceEqual(self, *args: Any, **kwargs: Any) -> None:
        raise AbsentError("internal", "devices of operations")

    @contextlib.contextmanager
    def assertRaisesWithPredicateMatch(
        self, exception_type: type[BaseException], expected_err_re_or_predicate: Any
    ) -> Iterator[None]:
        with self.assertRaises(exception_type) as caught:
            yield
        words = expected_err_re_or_predicate
        found = words(caught.exception) if callable(words) else re.search(words, str(caught.exception))
        if not found:
            raise AssertionError(f"{words!r} does not match {str(caught.exception)!r}")

    def assertRaisesOpError(self, expected_err_re_or_predicate: Any) -> Any:
        return self.assertRaisesWithPredicateMatch(tf.errors.OpError, expected_err_re_or_predicate)

    def assertRaisesIncompatibleShapesError(self, exception_type: Any = None, *args: Any, **kwargs: Any) -> Any:
        return self.assertRaises(exception_type or tf.errors.InvalidArgumentError)

    def checkedThread(self, target: Callable[..., Any], args: Any = None, kwargs: Any = None) -> Any:
        return _CheckedThread(self, target, args, kwargs)

    def _GetNdArray(self, a: Any) -> Any:
        if isinstance(a, np.ndarray):
            return a
        if hasattr(a, "to_list"):
            a = a.to_list()
        return np.asarray(to_numpy(a))

    def _eval_tensor(self, tensor: Any) -> Any:
        return to_numpy(tensor)


class _CheckedThread:
    """Thread whose error fails the test that joins it."""

    def __init__(self, case: TestCase, target: Callable[..., Any], args: Any, kwargs: Any) -> None:
        self._error: BaseException | None = None

        def run() -> None:
            try:
                target(*(args or ()), **(kwargs or {}))
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error

    def is_alive(self) -> bool:
        return self._thread.is_alive()


def _lists(value: Any) -> Any:
    """Returns the rows of a ragged tensor, or of a list of arrays of any sizes, as lists."""
    if isinstance(value, tf.RaggedTensor):
        return value.to_list()
    return (
        [_lists(part) for part in value]
        if isinstance(value, (list, tuple))
        else to_numpy(value).tolist()
        if hasattr(value, "dtype")
        else value
    )


def _bytes(array: Any) -> Any:
    flat = [v.encode() if isinstance(v, str) else v for v in np.asarray(array).ravel().tolist()]
    result = np.empty(len(flat), object)
    result[:] = flat
    return result.reshape(np.shape(array))


TensorFlowTestCase = TestCase


def get_temp_dir() -> str:
    return tempfile.mkdtemp(prefix="conformance")


def GetTempDir() -> str:
    return get_temp_dir()


def test_src_dir_path(relative_path: str) -> str:
    return os.path.join(os.environ.get("TEST_SRCDIR", ""), relative_path)


def is_gpu_available(*args: Any, **kwargs: Any) -> bool:
    return False


def is_built_with_cuda() -> bool:
    return False


is_built_with_rocm = is_built_with_gpu_support = is_built_with_xla = is_built_with_cuda


def gpu_device_name() -> str:
    return ""


def create_local_cluster(*args: Any, **kwargs: Any) -> Any:
    raise AbsentError("graph", "servers of sessions")


# No test of TensorFlow's: its name begins like one.
test_src_dir_path.__test__ = False  # pyright: ignore[reportFunctionMemberAccess]
