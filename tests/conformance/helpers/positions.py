"""`checkpoint_test_base.CheckpointTestBase`: iterators that are saved, and restored where they were."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import lockstep.compat.tensorflow as tf
from tests.conformance.absent import AbsentError
from tests.conformance.helpers.case import TestCase
from tests.conformance.helpers.combinations import NamedObject, combine

_WAYS = ("unused_iterator", "fully_used_iterator", "exhausted_iterator", "multiple_breaks", "reset_restored_iterator")


def _way(name: str) -> Callable[..., None]:
    def verify(
        obj: Any, ds_fn: Any, num_outputs: int, sparse_tensors: bool = False, assert_items_equal: bool = False
    ) -> None:
        getattr(obj, name)(ds_fn, num_outputs, sparse_tensors=sparse_tensors, assert_items_equal=assert_items_equal)

    return verify


def default_test_combinations() -> list[Any]:
    return combine(verify_fn=[NamedObject(f"verify_{w}", _way(f"verify_{w}")) for w in _WAYS])


class CheckpointTestBase(TestCase):
    """Base of tests that interrupt an iterator and compare with one that was not."""

    def verify_unused_iterator(self, ds_fn: Any, num_outputs: int, **kwargs: Any) -> None:
        self.verify_run_with_breaks(ds_fn, [0], num_outputs, **kwargs)

    def verify_fully_used_iterator(self, ds_fn: Any, num_outputs: int, **kwargs: Any) -> None:
        self.verify_run_with_breaks(ds_fn, [num_outputs], num_outputs, **kwargs)

    def verify_exhausted_iterator(self, ds_fn: Any, num_outputs: int, **kwargs: Any) -> None:
        kwargs.pop("sparse_tensors", None)
        kwargs.pop("assert_items_equal", None)
        self.gen_outputs(ds_fn, [], num_outputs, verify_exhausted=True)
        self.assertEmpty(self.gen_outputs(ds_fn, [], 0, ckpt_saved=True, verify_exhausted=True))

    def verify_multiple_breaks(self, ds_fn: Any, num_outputs: int, num_breaks: int = 10, **kwargs: Any) -> None:
        self.verify_run_with_breaks(ds_fn, self.gen_break_points(num_outputs, num_breaks), num_outputs, **kwargs)

    def verify_reset_restored_iterator(
        self, ds_fn: Any, num_outputs: int, break_point: int | None = None, sparse_tensors: bool = False,
        verify_exhausted: bool = True, assert_items_equal: bool = False,
    ) -> None:  # fmt: skip
        at = break_point if break_point else num_outputs // 2
        expected = self.gen_outputs(ds_fn, [], num_outputs, verify_exhausted=verify_exhausted)
        self.gen_outputs(ds_fn, [], at, verify_exhausted=False)
        actual = self.gen_outputs(ds_fn, [], num_outputs, verify_exhausted=verify_exhausted)
        self.match(expected, actual, assert_items_equal)

    def verify_error_on_save(self, ds_fn: Any, num_outputs: int, error: Any, **kwargs: Any) -> None:
        iterator = iter(ds_fn())
        for _ in range(num_outputs // 2):
            next(iterator)
        with self.assertRaises(error):
            tf.train.Checkpoint(iterator=iterator).save(self._ckpt_path())

    def verify_run_with_breaks(
        self, ds_fn: Any, break_points: Sequence[int], num_outputs: int, sparse_tensors: bool = False,
        verify_exhausted: bool = True, assert_items_equal: bool = False,
    ) -> None:  # fmt: skip
        expected = self.gen_outputs(ds_fn, [], num_outputs, verify_exhausted=verify_exhausted)
        actual = self.gen_outputs(ds_fn, break_points, num_outputs, verify_exhausted=verify_exhausted)
        self.match(expected, actual, assert_items_equal)

    def gen_outputs(
        self, ds_fn: Any, break_points: Sequence[int], num_outputs: int, ckpt_saved: bool = False,
        sparse_tensors: bool = False, verify_exhausted: bool = True, save_checkpoint_at_end: bool = True,
    ) -> list[Any]:  # fmt: skip
        outputs: list[Any] = []
        points = [*break_points, num_outputs]
        for i, point in enumerate(points):
            iterator = iter(ds_fn())
            checkpoint = tf.train.Checkpoint(iterator=iterator)
            if ckpt_saved:
                checkpoint.restore(tf.train.latest_checkpoint(self.get_temp_dir()))
            start = 0 if i == 0 else points[i - 1]
            for _ in range(point - start):
                outputs.append(self.evaluate(next(iterator)))
            if i == len(points) - 1 and verify_exhausted:
                with self.assertRaises(StopIteration):
                    next(iterator)
            if i < len(points) - 1 or save_checkpoint_at_end:
                checkpoint.save(self._ckpt_path())
                ckpt_saved = True
        return outputs

    def match(self, expected: Any, actual: Any, assert_items_equal: bool = False) -> None:
        if isinstance(expected, dict):
            self.assertCountEqual(expected, actual)
            for key in expected:
                self.match(expected[key], actual[key])
        elif isinstance(expected, (list, tuple)) and not hasattr(expected, "dense_shape"):
            self.assertEqual(len(expected), len(actual))
            if assert_items_equal:
                expected, actual = sorted(expected, key=repr), sorted(actual, key=repr)
            for one, other in zip(expected, actual, strict=True):
                self.match(one, other)
        elif hasattr(expected, "dense_shape"):
            for part in ("indices", "values", "dense_shape"):
                np.testing.assert_array_equal(getattr(expected, part), getattr(actual, part))
        else:
            self.assertAllEqual(expected, actual)

    def does_not_match(self, expected: Any, actual: Any) -> None:
        with self.assertRaises(AssertionError):
            self.match(expected, actual)

    def gen_break_points(self, num_outputs: int, num_samples: int = 10) -> Any:
        return np.unique(np.linspace(0, num_outputs, num_samples, dtype=int))

    def _build_graph(self, *args: Any, **kwargs: Any) -> Any:
        raise AbsentError("graph", "graphs of datasets")

    def _ckpt_path(self) -> str:
        return str(Path(self.get_temp_dir()) / "iterator")

    def _latest_ckpt(self) -> Any:
        return tf.train.latest_checkpoint(self.get_temp_dir())
