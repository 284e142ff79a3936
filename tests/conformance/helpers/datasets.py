"""`test_base.DatasetTestBase`: what tests of tf.data share."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lockstep.compat.tensorflow as tf
from tests.conformance.absent import AbsentError
from tests.conformance.helpers.case import TestCase
from tests.conformance.helpers.combinations import combine

_BOTH, _MODES = [1, 2], ["eager", "graph"]


def default_test_combinations() -> list[Any]:
    return combine(tf_api_version=_BOTH, mode=_MODES)


def eager_only_combinations() -> list[Any]:
    return combine(tf_api_version=_BOTH, mode="eager")


def graph_only_combinations() -> list[Any]:
    return combine(tf_api_version=_BOTH, mode="graph")


def v1_only_combinations() -> list[Any]:
    return combine(tf_api_version=1, mode=_MODES)


def v2_only_combinations() -> list[Any]:
    return combine(tf_api_version=2, mode=_MODES)


def v2_eager_only_combinations() -> list[Any]:
    return combine(tf_api_version=2, mode="eager")


def end_of_data() -> Exception:
    """Returns the error that TensorFlow's iterators end with."""
    try:
        return tf.errors.OutOfRangeError(None, None, "End of sequence")
    except TypeError:
        return tf.errors.OutOfRangeError("End of sequence")


def _is_sparse(value: Any) -> bool:
    return hasattr(value, "indices") and hasattr(value, "dense_shape")


class DatasetTestBase(TestCase):
    """Base of tests of datasets, whose elements are compared as numpy arrays."""

    def assert_op_cancelled(self, op: Any) -> None:
        with self.assertRaises(tf.errors.CancelledError):
            self.evaluate(op)

    def assertValuesEqual(self, expected: Any, actual: Any) -> None:
        if isinstance(expected, dict):
            self.assertCountEqual(expected, actual)
            for key in expected:
                self.assertValuesEqual(expected[key], actual[key])
        elif _is_sparse(expected):
            for part in ("indices", "values", "dense_shape"):
                self.assertAllEqual(getattr(expected, part), getattr(actual, part))
        else:
            self.assertAllEqual(expected, actual)

    def getNext(self, dataset: Any, requires_initialization: bool = False, shared_name: Any = None) -> Any:
        iterator = iter(dataset)

        def get_next() -> Any:
            try:
                return next(iterator)
            except StopIteration:
                # Not from the StopIteration: it may be the same class.
                pass
            raise end_of_data()

        return get_next

    def getDatasetOutput(self, dataset: Any, requires_initialization: bool = False) -> list[Any]:
        return self.getIteratorOutput(self.getNext(dataset))

    def getIteratorOutput(self, get_next: Callable[[], Any]) -> list[Any]:
        results: list[Any] = []
        while True:
            try:
                results.append(self.evaluate(get_next()))
            except (tf.errors.OutOfRangeError, StopIteration):
                return results

    def _compareOutputToExpected(self, result_values: Any, expected_values: Any, assert_items_equal: bool) -> None:
        if assert_items_equal:
            self.assertCountEqual(_plain(result_values), _plain(expected_values))
            return
        for result, expected in zip(result_values, expected_values, strict=False):
            self._compare(expected, result)

    def _compare(self, expected: Any, result: Any) -> None:
        if isinstance(expected, dict):
            self.assertCountEqual(expected, result)
            for key in expected:
                self._compare(expected[key], result[key])
        elif isinstance(expected, tuple) and not _is_sparse(expected):
            self.assertIsInstance(result, tuple)
            self.assertEqual(len(result), len(expected))
            for one, other in zip(expected, result, strict=True):
                self._compare(one, other)
        else:
            self.assertValuesEqual(expected, result)

    def assertDatasetProduces(
        self, dataset: Any, expected_output: Any = None, expected_shapes: Any = None, expected_error: Any = None,
        requires_initialization: bool = False, num_test_iterations: int = 1, assert_items_equal: bool = False,
        expected_error_iter: int = 1,
    ) -> None:  # fmt: skip
        if expected_error:
            with self.assertRaisesWithPredicateMatch(expected_error[0], expected_error[1]):
                get_next = self.getNext(dataset)
                for _ in range(expected_error_iter):
                    self.evaluate(get_next())
            return
        if expected_shapes:
            self.assertEqual(expected_shapes, tf.compat.v1.data.get_output_shapes(dataset))
        for _ in range(num_test_iterations):
            get_next = self.getNext(dataset)
            result: list[Any] = []
            for _ in range(len(expected_output)):
                try:
                    result.append(self.evaluate(get_next()))
                except (tf.errors.OutOfRangeError, StopIteration):
                    raise AssertionError(
                        f"Dataset ended early, with {len(result)} elements of {len(expected_output)}: {result}"
                    ) from None
            self._compareOutputToExpected(result, expected_output, assert_items_equal)
            for _ in range(2):
                with self.assertRaises((tf.errors.OutOfRangeError, StopIteration)):
                    self.evaluate(get_next())

    def assertDatasetsEqual(self, dataset1: Any, dataset2: Any) -> None:
        self.assertEqual(dataset1.element_spec, dataset2.element_spec)
        one, other = self.getDatasetOutput(dataset1), self.getDatasetOutput(dataset2)
        self.assertEqual(len(one), len(other))
        for a, b in zip(one, other, strict=True):
            self._compare(a, b)

    def assertDatasetsRaiseSameError(
        self, dataset1: Any, dataset2: Any, exception_class: Any, replacements: Any = None
    ) -> None:
        with self.assertRaises(exception_class) as caught:
            self.evaluate(self.getNext(dataset1)())
        message = str(caught.exception)
        for old, new, count in replacements or ():
            message = message.replace(old, new, count)
        with self.assertRaisesRegex(exception_class, re.escape(message)):
            self.evaluate(self.getNext(dataset2)())

    def structuredDataset(self, dataset_structure: Any, shape: Any = None, dtype: Any = tf.int64) -> Any:
        if dataset_structure is None:
            return tf.data.Dataset.from_tensors(tf.zeros(shape or [], dtype=dtype))
        return tf.data.Dataset.zip(tuple(self.structuredDataset(s, shape, dtype) for s in dataset_structure))

    def structuredElement(self, element_structure: Any, shape: Any = None, dtype: Any = tf.int64) -> Any:
        if element_structure is None:
            return tf.zeros(shape or [], dtype=dtype)
        return tuple(self.structuredElement(s, shape, dtype) for s in element_structure)

    def verifyRandomAccess(self, dataset: Any, expected: Sequence[Any]) -> None:
        self.verifyRandomAccessInfiniteCardinality(dataset, expected)
        with self.assertRaises((tf.errors.OutOfRangeError, StopIteration)):
            self.evaluate(tf.data.experimental.at(dataset, index=len(expected)))

    def verifyRandomAccessInfiniteCardinality(self, dataset: Any, expected: Sequence[Any]) -> None:
        indices = list(range(len(expected))) * 2
        random.shuffle(indices)
        for i in [*indices, *range(len(expected))]:
            self.assertAllEqual(expected[i], self.evaluate(tf.data.experimental.at(dataset, i)))

    def textFileInitializer(self, vals: Any) -> Any:
        file = Path(self.get_temp_dir()) / "text_file_initializer"
        file.write_text("\n".join(str(v) for v in vals) + "\n")
        index = tf.lookup.TextFileIndex
        return tf.lookup.TextFileInitializer(str(file), tf.int64, index.LINE_NUMBER, tf.int64, index.WHOLE_LINE)

    def keyValueTensorInitializer(self, vals: Any) -> Any:
        return tf.lookup.KeyValueTensorInitializer(tf.range(len(vals), dtype=tf.int64), tf.constant(vals))

    def datasetInitializer(self, vals: Any) -> Any:
        pairs = tf.data.Dataset.zip((tf.data.Dataset.range(len(vals)), tf.data.Dataset.from_tensor_slices(vals)))
        return tf.data.experimental.DatasetInitializer(pairs)

    def lookupTableInitializer(self, init_source: str, vals: Any) -> Any:
        makers = {
            "textfile": self.textFileInitializer,
            "keyvaluetensor": self.keyValueTensorInitializer,
            "dataset": self.datasetInitializer,
        }
        return makers[init_source](vals)

    def graphRoundTrip(self, dataset: Any, allow_stateful: bool = False) -> Any:
        raise AbsentError("graph", "graphs of datasets")

    def checkDeterminism(self, dataset_fn: Any, expect_determinism: bool, expected_elements: Any) -> None:
        actual = self.getDatasetOutput(dataset_fn(100 if expect_determinism else 10))
        if expect_determinism:
            self.assertAllEqual(expected_elements, actual)
        else:
            # An order that is always the same is one of those that are allowed.
            self.assertCountEqual(expected_elements, actual)

    def configureDevicesForMultiDeviceTest(self, num_devices: int) -> list[str]:
        return [f"/device:CPU:{i}" for i in range(num_devices)]


def _plain(values: Any) -> list[Any]:
    return [v.tolist() if hasattr(v, "tolist") else v for v in values]
