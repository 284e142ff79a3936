"""Examples of the reference: lockstep.data and lockstep.datasets."""

import os
import tempfile

import numpy as np

import lockstep as ls

folder = tempfile.mkdtemp()

# %% From arrays to global batches
dataset = ls.data.Dataset.from_tensor_slices({"x": np.arange(10.0), "y": np.arange(10) % 2})
dataset = dataset.shuffle(10, seed=0).batch(4).prefetch(ls.data.AUTOTUNE)
for batch in dataset:
    print(batch["x"], batch["y"])

# %% What an iterator remembers
iterator = iter(ls.data.Dataset.range(10).batch(3))
assert isinstance(iterator, ls.data.DatasetIterator)
next(iterator)
position = iterator.get_state()
second = next(iterator)
iterator.set_state(position)
np.testing.assert_array_equal(next(iterator), second)

# %% How many elements there are
assert ls.data.Dataset.range(3).repeat().cardinality() == ls.data.INFINITE_CARDINALITY
assert ls.data.Dataset.range(3).filter(lambda n: n > 1).cardinality() == ls.data.UNKNOWN_CARDINALITY

# %% What elements look like
spec = ls.data.Dataset.range(8).batch(2).element_spec
assert isinstance(spec, ls.data.TensorSpec)

# %% A generator with its specification
generated = ls.data.Dataset.from_generator(
    lambda: iter([1.0, 2.0]), output_signature=ls.data.TensorSpec(shape=(), dtype="float32")
)
assert list(generated) == [1.0, 2.0]

# %% Sharding by option
options = ls.data.Options()
options.experimental_distribute.auto_shard_policy = ls.data.AutoShardPolicy.DATA
dataset = ls.data.Dataset.range(8).batch(4).with_options(options)

# %% Records: written, and read again
path = f"{folder}/numbers.tfrecord"
with ls.data.TFRecordWriter(path) as writer:
    for number in range(3):
        writer.write(b"record %d" % number)
assert len(list(ls.data.TFRecordDataset([path]))) == 3

# %% Lines of text
with open(f"{folder}/lines.txt", "w") as file:
    file.write("first\nsecond\n")
assert list(ls.data.TextLineDataset([f"{folder}/lines.txt"])) == [b"first", b"second"]

# %% Columns of CSV
with open(f"{folder}/table.csv", "w") as file:
    file.write("1.5,2\n2.5,3\n")
rows = list(ls.data.CsvDataset([f"{folder}/table.csv"], record_defaults=[np.float32, np.int32]))
assert rows[1][1] == 3

# %% Batches of CSV files by the names in their header
with open(f"{folder}/named.csv", "w") as file:
    file.write("length,kind\n1.5,a\n2.5,b\n")
batches = ls.data.make_csv_dataset(f"{folder}/named.csv", 2, label_name="kind", num_epochs=1, shuffle=False)
features, kinds = next(iter(batches))
assert features["length"].tolist() == [1.5, 2.5]

# %% Records of one length
with open(f"{folder}/fixed.bin", "wb") as file:
    file.write(b"aabbcc")
assert list(ls.data.FixedLengthRecordDataset([f"{folder}/fixed.bin"], 2)) == [b"aa", b"bb", b"cc"]

# %% A data set by name
digits, info = ls.datasets.load("mnist", split="train[:100]", with_info=True, as_supervised=True)
image, label = next(iter(digits))
print(image.shape, label, info.features)

# %% All names of data sets
assert "mnist" in ls.datasets.names()

# %% MNIST as arrays
mnist = ls.datasets.load_mnist()
print(mnist.source, mnist.train_images.shape)

# %% A builder
builder = ls.datasets.builder("mnist")
print(builder.info.splits)

# %% A data set as numpy
for example in ls.datasets.as_numpy(ls.datasets.load("mnist", split="test[:2]")):
    print(example["image"].shape)

# %% Columnar files
import pyarrow
import pyarrow.parquet

pyarrow.parquet.write_table(pyarrow.table({"x": [1.0, 2.0], "y": [0, 1]}), f"{folder}/table.parquet")
rows = ls.data.ParquetDataset([f"{folder}/table.parquet"], columns=["x", "y"])
assert next(iter(rows))["x"] == 1.0

# %% Records with an index: any of them can be read first
from array_record.python.array_record_module import ArrayRecordWriter

writer = ArrayRecordWriter(f"{folder}/numbers.array_record", "group_size:1")
for number in range(3):
    writer.write(b"record %d" % number)
writer.close()
records = ls.data.ArrayRecordDataset([f"{folder}/numbers.array_record"])
assert next(iter(records.shuffle(3, seed=1).take(3).batch(3))).shape == (3,)

# %% Compressed records
options = ls.data.TFRecordOptions(compression_type="GZIP")
with ls.data.TFRecordWriter(f"{folder}/numbers.tfrecord.gz", options) as writer:
    writer.write(b"record")
assert list(ls.data.TFRecordDataset([f"{folder}/numbers.tfrecord.gz"], compression_type="GZIP")) == [b"record"]

# %% Pictures of one folder per class
from PIL import Image

for name in ("cats", "dogs"):
    os.makedirs(f"{folder}/pictures/{name}", exist_ok=True)
    Image.new("RGB", (8, 8)).save(f"{folder}/pictures/{name}/1.png")
pictures = ls.data.image_dataset_from_directory(f"{folder}/pictures", image_size=(4, 4), batch_size=2)
images, labels = next(iter(pictures))
assert images.shape == (2, 4, 4, 3) and pictures.class_names == ["cats", "dogs"]

# %% Text files of one folder per class
for name, text in (("bad", "no"), ("good", "yes")):
    os.makedirs(f"{folder}/reviews/{name}", exist_ok=True)
    with open(f"{folder}/reviews/{name}/1.txt", "w") as file:
        file.write(text)
reviews = ls.data.text_dataset_from_directory(f"{folder}/reviews", batch_size=2, shuffle=False)
texts, labels = next(iter(reviews))
assert texts.tolist() == [b"no", b"yes"] and labels.tolist() == [0, 1]

# %% Windows over a series, with the value that follows each
series = np.arange(10.0)
windows = ls.data.timeseries_dataset_from_array(series, series[3:], sequence_length=3, batch_size=2)
window, following = next(iter(windows))
assert window.tolist() == [[0, 1, 2], [1, 2, 3]] and following.tolist() == [3, 4]

# %% numpy in a map function that is otherwise compiled
squares = ls.data.Dataset.range(3).map(lambda n: ls.data.numpy_function(np.square, [n], "int64"))
assert list(squares) == [0, 1, 4]

# %% Any Python in a map function
words = ls.data.Dataset.range(2).map(lambda n: ls.data.py_function(lambda v: str(v).encode(), [n], "string"))
assert list(words) == [b"0", b"1"]

# %% Windows: elements that are datasets
windows = ls.data.Dataset.range(6).window(3)
assert isinstance(windows.element_spec, ls.data.DatasetSpec)
assert [int(sum(window)) for window in windows] == [3, 12]

# %% A pipeline of files, of which each worker reads its own: the strategy puts numbers in place of the hints
options = ls.data.Options()
options.experimental_distribute = ls.data.DistributeOptions(ls.data.AutoShardPolicy.HINT)
lines = ls.data.Dataset.from_tensor_slices([f"{folder}/lines.txt", f"{folder}/lines.txt"])
lines = lines.shard(ls.data.SHARD_HINT, ls.data.SHARD_HINT).flat_map(ls.data.TextLineDataset).with_options(options)

# %% How many threads a pipeline may take
options = ls.data.Options()
options.threading = ls.data.ThreadingOptions(private_threadpool_size=2)
dataset = ls.data.Dataset.range(8).map(lambda n: n + 1, num_parallel_calls=ls.data.AUTOTUNE).with_options(options)


# %% The part of an input function's worker
def input_fn(context: ls.data.InputContext):
    dataset = ls.data.Dataset.range(8).shard(context.num_input_pipelines, context.input_pipeline_id)
    return dataset.batch(context.get_per_replica_batch_size(4))


assert len(list(input_fn(ls.data.InputContext(num_input_pipelines=2, input_pipeline_id=0)))) == 1

# %% What a data set is
info = ls.datasets.builder("mnist").info
assert isinstance(info, ls.datasets.DatasetInfo)
assert isinstance(info.splits["train"], ls.datasets.SplitInfo)
assert isinstance(info.features, ls.datasets.FeaturesDict)
print(info.name, info.splits["train"].num_examples, info.features["label"].names)

# %% Numbers and names of classes
label = ls.datasets.ClassLabel(names=["cat", "dog"])
assert label.str2int("dog") == 1 and label.int2str(0) == "cat"

# %% What features are
features = ls.datasets.FeaturesDict(
    {
        "image": ls.datasets.Image(shape=(28, 28, 1)),
        "vector": ls.datasets.Tensor(shape=(3,), dtype="float32"),
        "title": ls.datasets.Text(),
        "tokens": ls.datasets.Tokens(["the", "cat"]),
    }
)
print(features.shape, features.dtype)

# %% Parts of a split
first = ls.datasets.ReadInstruction("train", to=10, unit="%")
rest = ls.datasets.ReadInstruction("train", from_=10, unit="%")
count = ls.datasets.load("mnist", split=first).cardinality() + ls.datasets.load("mnist", split=rest).cardinality()
assert count == ls.datasets.load("mnist", split=ls.datasets.Split.TRAIN).cardinality()

# %% Files in another order in each run, or in the same
config = ls.datasets.ReadConfig(shuffle_seed=1)
shuffled = ls.datasets.load("mnist", split="train[:10]", shuffle_files=True, read_config=config)

# %% A builder, step by step
builder = ls.datasets.builder("mnist")
assert isinstance(builder, ls.datasets.DatasetBuilder)
builder.download_and_prepare()
digits = builder.as_dataset(split="test", as_supervised=True)

# %% All of MNIST in memory
mnist = ls.datasets.load_mnist()
assert isinstance(mnist, ls.datasets.Mnist)
print(mnist.test_images.shape, mnist.test_labels.shape)

# %% No bars while data are read
ls.datasets.disable_progress_bar()
ls.datasets.enable_progress_bar()
