"""tf.data of the compatibility package: tensors in map functions and in loops."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
import lockstep.data
from lockstep.errors import DataNotFoundError, InputError


def _values(dataset) -> list:
    return [e.numpy().tolist() if e.numpy().ndim else e.numpy().item() for e in dataset]


def test_elements_have_numpy() -> None:
    dataset = tf.data.Dataset.from_tensor_slices({"x": np.arange(3), "name": ["a", "b", "c"]})
    first = next(iter(dataset))
    assert first["x"].numpy() == 0
    assert first["name"].numpy() == b"a"
    assert isinstance(first["x"], tf.Tensor)
    assert isinstance(dataset.batch(2), tf.data.Dataset)
    assert dataset.cardinality().numpy() == len(dataset) == 3


def test_map_functions_are_vectorised_where_jax_can_trace() -> None:
    def scale(image, label):
        image = tf.cast(image, tf.float32)
        image /= 255
        return image, tf.one_hot(label, 3)

    images = np.arange(24, dtype=np.uint8).reshape(6, 4)
    dataset = tf.data.Dataset.from_tensor_slices((images, np.arange(6) % 3)).map(scale)
    (image, label), *_ = list(dataset)
    assert image.dtype == tf.float32
    np.testing.assert_allclose(image.numpy(), images[0] / np.float32(255), rtol=1e-6)
    assert label.numpy().tolist() == [1.0, 0.0, 0.0]
    assert dataset.element_spec[1].shape == (3,)


def test_map_functions_may_call_numpy_and_text() -> None:
    names = tf.data.Dataset.from_tensor_slices(["dog/1", "cat/22"])
    labels = names.map(lambda n: tf.strings.split(n, "/")[0] == ["cat", "dog"])
    assert [v.numpy().tolist() for v in labels] == [[False, True], [True, False]]
    lengths = names.map(lambda n: len(n.numpy()))
    assert _values(lengths) == [5, 6]
    plain = names.map(lambda n: tf.py_function(lambda t: t.numpy()[-1:], [n], tf.string))
    assert [v.numpy() for v in plain] == [b"1", b"2"]


def test_random_numbers_differ_between_elements_and_repeat_with_the_seed() -> None:
    def jitter(x):
        return tf.cast(x, tf.float32) + tf.random.uniform([])

    def run() -> list:
        tf.random.set_seed(1)
        return _values(tf.data.Dataset.range(20).map(jitter, num_parallel_calls=tf.data.AUTOTUNE))

    first = run()
    assert len({round(v % 1, 6) for v in first}) == 20
    assert run() == first


def test_side_effects_of_map_functions_are_kept_in_order() -> None:
    seen: list[int] = []

    def note(x):
        seen.append(int(x.numpy()))
        return x

    assert _values(tf.data.Dataset.range(5).map(note)) == seen == [0, 1, 2, 3, 4]


def test_variables_count_elements() -> None:
    count = tf.Variable(0)

    def number(x):
        count.assign_add(1)
        return count.numpy()

    assert _values(tf.data.Dataset.range(3).map(number)) == [1, 2, 3]


def test_nothing_of_this_package_reaches_lockstep() -> None:
    dataset = tf.data.Dataset.range(3).map(lambda x: tf.identity(x) * 2)
    assert all(type(e) in (np.ndarray, np.int32, np.int64) for e in dataset.as_numpy_iterator())
    assert type(next(iter(lockstep.data.Dataset.range(1)))) is np.int64


def test_filter_flat_map_interleave_reduce() -> None:
    numbers = tf.data.Dataset.range(6)
    assert _values(numbers.filter(lambda x: tf.equal(x % 2, 0))) == [0, 2, 4]
    assert _values(numbers.take(2).flat_map(lambda x: tf.data.Dataset.from_tensors(x).repeat(2))) == [0, 0, 1, 1]
    assert int(numbers.reduce(np.int64(0), lambda total, x: total + x).numpy()) == 15


def test_older_names() -> None:
    numbers = tf.data.Dataset.range(6)
    assert tf.data.experimental.cardinality(numbers).numpy() == 6
    batches = numbers.apply(tf.data.experimental.map_and_batch(lambda x: x + 1, 4))
    assert _values(batches) == [[1, 2, 3, 4], [5, 6]]
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    assert len(numbers.with_options(options)) == 6


@pytest.mark.slow
def test_fit_takes_these_datasets() -> None:
    random.seed(0)
    x = np.linspace(-1, 1, 64, dtype=np.float32)[:, None]
    dataset = tf.data.Dataset.from_tensor_slices((x, 3 * x)).shuffle(64).batch(16)
    with tf.distribute.MirroredStrategy().scope():
        strategic = _line()
    for model in (_line(), strategic):
        losses = model.fit(dataset, epochs=3, verbose=0).history["loss"]
        assert losses[-1] < losses[0]


def _line():
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss=lambda y, p: tf.reduce_mean(tf.square(y - p)))
    return model


def test_files(tmp_path: Path) -> None:
    path = tf.io.gfile.join(tmp_path, "sub", "a.txt")
    tf.io.write_file(path, "1,2.5,x\n,3,y")
    assert tf.io.gfile.exists(path)
    assert tf.io.read_file(tf.constant(path)).numpy().startswith(b"1,2.5")
    with tf.io.gfile.GFile(path) as file:
        lines = file.read().splitlines()
    number, real, name = tf.io.decode_csv(lines, [[7], tf.float32, ""])
    assert number.numpy().tolist() == [1, 7]
    assert real.numpy().tolist() == [2.5, 3.0]
    assert name.numpy().tolist() == [b"x", b"y"]
    with pytest.raises(InputError, match="must have 2 fields"):
        tf.io.decode_csv(lines, [[7], [1.0]])
    tf.io.write_file(path, "")
    assert tf.io.read_file(path).numpy() == b""
    with pytest.raises(DataNotFoundError, match=r"b\.txt"):
        tf.io.read_file(str(tmp_path / "b.txt"))
    assert tf.io.matching_files(str(tmp_path / "*" / "*.txt")).numpy().tolist() == [path.encode()]
    assert tf.io.decode_raw(b"\1\0\2\0", tf.int16).numpy().tolist() == [1, 2]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no files without a size")
def test_a_file_that_does_not_know_its_size() -> None:
    assert b"VmRSS" in tf.io.read_file("/proc/self/status").numpy()


def test_images(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (8, 10, 3), np.uint8)
    path = str(tmp_path / "a.png")
    tf.io.write_file(path, tf.io.encode_png(tf.constant(image)))
    dataset = tf.data.Dataset.from_tensor_slices([path]).map(lambda p: tf.io.decode_png(tf.io.read_file(p), channels=3))
    assert np.array_equal(next(iter(dataset)).numpy(), image)
    smaller = next(iter(dataset.map(lambda i: tf.image.resize(i, [4, 5]) / 255.0)))
    assert smaller.shape.as_list() == [4, 5, 3]
    assert smaller.dtype == tf.float32
    flipped = next(iter(dataset.map(lambda i: tf.image.random_flip_left_right(tf.image.random_crop(i, [6, 6, 3])))))
    assert flipped.shape == (6, 6, 3)


def test_tables(tmp_path: Path) -> None:
    keys = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2], tf.string, tf.int64)
    table = tf.lookup.StaticHashTable(keys, default_value=-1)
    assert table.lookup(tf.constant([["a", "x"]])).numpy().tolist() == [[1, -1]]
    words = tf.data.Dataset.from_tensor_slices(["b", "a"]).map(table.lookup)
    assert _values(words) == [2, 1]
    (tmp_path / "words").write_text("cat\ndog\n")
    index = tf.lookup.TextFileIndex
    lines = tf.lookup.TextFileInitializer(
        str(tmp_path / "words"), tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER
    )
    vocabulary = tf.lookup.StaticVocabularyTable(lines, 2)
    assert vocabulary.lookup(["dog", "cat"]).numpy().tolist() == [1, 0]
    assert vocabulary["bird"].numpy() in (2, 3)


def test_records(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for number in range(3):
            features = {
                "x": tf.train.Feature(float_list=tf.train.FloatList(value=[number, 0.5])),
                "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[number])),
                "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"n%d" % number])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    spec = {
        "x": tf.io.FixedLenFeature([2], tf.float32),
        "y": tf.io.FixedLenFeature([], tf.int64),
        "name": tf.io.FixedLenFeature([], tf.string),
    }
    records = tf.data.TFRecordDataset([path]).map(lambda r: tf.io.parse_single_example(r, spec))
    assert isinstance(records, tf.data.Dataset)
    assert [e["name"].numpy() for e in records] == [b"n0", b"n1", b"n2"]
    scaled = records.map(lambda e: (tf.cast(e["x"], tf.float32) * 2, tf.cast(e["y"], tf.int32))).batch(3)
    x, y = next(iter(scaled))
    assert x.numpy().tolist() == [[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]]
    assert y.numpy().tolist() == [0, 1, 2]


def test_lines(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,4\n")
    lines = tf.data.TextLineDataset(str(tmp_path / "a.csv")).skip(1)
    pairs = lines.map(lambda line: tf.stack(tf.io.decode_csv(line, [0.0, 0.0])))
    assert _values(pairs) == [[1.0, 2.0], [3.0, 4.0]]


def test_resize_with_pad() -> None:
    image = np.full((4, 8, 1), 7, np.float32)
    padded = tf.image.resize_with_pad(image, 6, 6).numpy()[..., 0]
    assert padded.shape == (6, 6)
    assert padded[[0, 5]].sum() == 0
    assert padded.sum() == 7 * 3 * 6


def test_sizes_of_batches_are_told_as_by_tensorflow() -> None:
    batches = tf.data.Dataset.range(8).batch(4)
    assert batches.element_spec == tf.TensorSpec([None], tf.int64)
    assert batches.map(lambda x: x * 2).element_spec.shape.as_list() == [None]
    assert batches.batch(2).element_spec.shape.as_list() == [None, None]
    assert tf.data.Dataset.range(8).batch(4, drop_remainder=True).element_spec.shape.as_list() == [4]
    windows = tf.data.Dataset.range(9).window(3).flat_map(lambda w: w.batch(3))
    assert windows.element_spec.shape.as_list() == [None]
    # What is compiled for is not what is told.
    assert lockstep.data.Dataset.range(8).batch(4).element_spec.shape == (4,)
