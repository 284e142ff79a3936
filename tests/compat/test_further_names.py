"""Names that few programs use do what TensorFlow 2.15.1 does."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import lockstep.compat.tensorflow as tf


@pytest.mark.parametrize(
    ("updates", "expected"),
    [
        (None, [[1.0, 2.0], [1.2, 1.8], [1.58, 1.62]]),
        (1, [[1.0, 2.0], [2.6363635, 0.36363637], [4.5702477, 0.06611571]]),
    ],
)
def test_moving_averages(updates: int | None, expected: Any) -> None:
    variable = tf.Variable([0.0, 0.0], name="v")
    averages = tf.train.ExponentialMovingAverage(0.9, updates)
    assert averages.average(variable) is None
    for values, average in zip(([1.0, 2.0], [3.0, 0.0], [5.0, 0.0]), expected, strict=True):
        variable.assign(values)
        averages.apply([variable])
        np.testing.assert_allclose(averages.average(variable).numpy(), average, rtol=1e-6)
    assert averages.average_name(variable) == "v/ExponentialMovingAverage"


def test_python_functions_as_decorators() -> None:
    @tf.py_function(Tout=tf.float32)
    def double(x: Any) -> Any:
        return x.numpy() * 2

    @tf.numpy_function(Tout=[tf.int64, tf.string])
    def pair(x: Any) -> Any:
        return x + 1, b"text"

    assert double(tf.constant(1.5)).numpy() == 3.0
    number, text = pair(np.int64(1))
    assert (number.numpy(), text.numpy()) == (2, b"text")


def test_map_fn_of_rows() -> None:
    rows = tf.ragged.constant([[1, 2], [3]])
    assert tf.map_fn(tf.reduce_sum, rows, fn_output_signature=tf.int32).numpy().tolist() == [3, 3]
    doubled = tf.map_fn(lambda row: row * 2, rows, fn_output_signature=tf.RaggedTensorSpec([None], tf.int32))
    assert doubled.to_list() == [[2, 4], [6]]
    counted = tf.map_fn(tf.range, tf.constant([2, 0, 3]), fn_output_signature=tf.RaggedTensorSpec([None], tf.int32))
    assert counted.to_list() == [[0, 1], [], [0, 1, 2]]
    with_bias = tf.map_fn(
        lambda pair: tf.reduce_sum(pair[0]) + pair[1], (rows, tf.constant([10, 20])), fn_output_signature=tf.int32
    )
    assert with_bias.numpy().tolist() == [13, 23]


def test_a_spec_of_a_tensor_is_none_of_a_ragged_one() -> None:
    assert isinstance(tf.TensorSpec([1]), tf.TypeSpec)
    assert not isinstance(tf.TensorSpec([1]), (tf.RaggedTensorSpec, tf.SparseTensorSpec))


def test_values_that_are_known() -> None:
    known: list[Any] = []
    jax.jit(lambda x: known.append(tf.get_static_value(x)))(1.0)
    assert known == [None]
    assert tf.get_static_value(tf.constant([1, 2])).tolist() == [1, 2]
    with tf.init_scope():
        assert tf.Variable(1.0).numpy() == 1.0


def test_summaries_on_a_condition(tmp_path: Path) -> None:
    writer = tf.summary.create_file_writer(str(tmp_path))
    assert not tf.summary.should_record_summaries()
    tf.summary.experimental.set_step(3)
    with writer.as_default():
        assert tf.summary.should_record_summaries()
        for step in range(4):
            with tf.summary.record_if(lambda step=step: step % 2 == 0):
                tf.summary.scalar(f"value{step}", 1.0)
        tf.summary.flush()
    with tf.summary.create_noop_writer().as_default():
        tf.summary.scalar("nothing", 1.0)
    tf.summary.experimental.set_step(None)
    events = [e for file in tmp_path.iterdir() for e in tf.compat.v1.train.summary_iterator(str(file))]
    written = {value.tag: event.step for event in events for value in event.summary.value}
    assert written == {"value0": 3, "value2": 3}


def test_a_trace_without_a_graph_is_told() -> None:
    with pytest.raises(Exception, match="No trace was started"):
        tf.summary.trace_export("trace")
    tf.summary.trace_on(graph=True)
    with pytest.warns(UserWarning, match="writes no graph"):
        tf.summary.trace_export("trace", step=0)


def test_settings(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "lockstep"):
        tf.debugging.set_log_device_placement(True)
        tf.config.threading.set_intra_op_parallelism_threads(2)
    assert "Operations run on" in caplog.text
    assert "as many threads as" in caplog.text
    assert tf.debugging.get_log_device_placement()
    assert tf.config.threading.get_intra_op_parallelism_threads() == 2
    tf.debugging.set_log_device_placement(False)
    tf.config.threading.set_intra_op_parallelism_threads(0)
    assert tf.compat.v1.__version__ == tf.__version__


def test_benchmarks_print(capsys: pytest.CaptureFixture[str]) -> None:
    class Speed(tf.test.Benchmark):
        def benchmark_sum(self) -> None:
            self.report_benchmark(iters=3, wall_time=0.5)

    Speed().benchmark_sum()
    assert capsys.readouterr().out == "Speed.benchmark_sum: iters=3, wall_time=0.5\n"
    assert tf.test.Benchmark.is_abstract() and not Speed.is_abstract()


def test_samplers() -> None:
    drawn, true, often = tf.random.log_uniform_candidate_sampler([[0], [5]], 1, 4, True, 8, seed=1)
    assert len(set(drawn.numpy().tolist())) == 4 and drawn.dtype == tf.int64
    assert true.shape == (2, 1) and often.shape == (4,)
    assert 0 < true.numpy()[1, 0] < true.numpy()[0, 0]
    found = tf.random.uniform_candidate_sampler([[0]], 1, 5, False, 10, seed=1)
    np.testing.assert_allclose(found.sampled_expected_count, [0.5] * 5, rtol=1e-6)
    counts = [0, 0, 4, 1]
    fixed = tf.random.fixed_unigram_candidate_sampler([[2]], 1, 400, False, 4, unigrams=counts, seed=3)
    shares = np.bincount(fixed.sampled_candidates.numpy(), minlength=4) / 400
    np.testing.assert_allclose(shares, [0, 0, 0.8, 0.2], atol=0.08)
    examples, places, least = tf.nn.compute_accidental_hits([[1], [3]], [3, 1, 3], 1)
    assert (examples.numpy().tolist(), places.numpy().tolist()) == ([0, 1, 1], [1, 0, 2])
    assert (least.numpy() == np.finfo(np.float32).min).all()


@pytest.mark.slow
def test_parts_of_images_at_random() -> None:
    boxes = tf.constant([[[0.1, 0.2, 0.6, 0.9]]])
    begin, size, box = tf.image.sample_distorted_bounding_box([40, 60, 3], boxes, seed=1, min_object_covered=0.3)
    (top, left, _), (height, width, _) = begin.numpy(), size.numpy()
    assert size.numpy()[2] == -1 and box.shape == (1, 1, 4)
    assert 0.05 * 2400 <= height * width <= 2400 and 0.7 < width / height < 1.4
    shared = max(min(24, top + height) - max(4, top), 0) * max(min(54, left + width) - max(12, left), 0)
    assert shared >= 0.3 * 20 * 42
    whole = tf.image.stateless_sample_distorted_bounding_box([4, 4, 3], boxes, [1, 2], min_object_covered=2.0)
    assert whole[1].numpy().tolist() == [4, 4, -1]


def test_parts_of_files() -> None:
    picture = np.arange(12 * 16 * 3, dtype=np.uint8).reshape(12, 16, 3)
    data = tf.io.encode_jpeg(picture)
    assert tf.io.is_jpeg(data).numpy() and not tf.io.is_jpeg(b"text").numpy()
    assert tf.io.extract_jpeg_shape(data).numpy().tolist() == [12, 16, 3]
    part = tf.io.decode_and_crop_jpeg(data, [2, 3, 4, 5])
    np.testing.assert_array_equal(part, tf.io.decode_jpeg(data).numpy()[2:6, 3:8])
    assert tf.image.adjust_jpeg_quality(picture, 50).dtype == tf.uint8
    with pytest.raises(tf.errors.DataLossError, match="JPEG file"):
        tf.io.extract_jpeg_shape(b"text")
