"""MNIST and Fashion-MNIST."""

from __future__ import annotations

import numpy as np

from lockstep.datasets._data_set import DataSet, LoadedDataSet, Table
from lockstep.datasets._download import PublishedFile
from lockstep.datasets._info import ClassLabel, FeaturesDict, Image
from lockstep.datasets._location import DataLocation, File
from lockstep.datasets._mnist import is_sample, load_from, parse_idx
from lockstep.errors import InputError

_CLOTHES = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
_BASE = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
_SHA256 = {
    "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
}
FASHION = [PublishedFile(f"fashion-mnist/{name}", _BASE + name, sha256) for name, sha256 in _SHA256.items()]


def _load_mnist(location: DataLocation) -> LoadedDataSet:
    mnist = load_from(location)
    splits = {"train": (mnist.train_images, mnist.train_labels), "test": (mnist.test_images, mnist.test_labels)}
    tables = {
        split: Table({"image": images[..., np.newaxis], "label": labels.astype(np.int64)})
        for split, (images, labels) in splits.items()
    }
    return LoadedDataSet(tables, mnist.source, substitute=is_sample(mnist))


def _load_fashion_mnist(location: DataLocation) -> LoadedDataSet:
    # The files have the names of MNIST's, so they count only in a directory with the name of this data set.
    train_images, train_labels, *test = location.files("fashion_mnist", FASHION, directly=False)
    tables = {"train": _fashion_table(train_images, train_labels), "test": _fashion_table(*test)}
    return LoadedDataSet(tables, f"Fashion-MNIST from {train_images.path.parent}")


def _fashion_table(images: File, labels: File) -> Table:
    pixels = parse_idx(images.content, 3, str(images.path))
    if pixels.shape[1:] != (28, 28):
        raise InputError(
            f"The images of Fashion-MNIST must be 28 x 28. Received: {pixels.shape}, in {images.path}. Replace it with "
            "a fresh copy."
        )
    numbers, source = parse_idx(labels.content, 1, str(labels.path)), images.path.parent
    if numbers.shape != (len(pixels),) or not len(pixels):
        raise InputError(
            f"There must be one label for each image, and at least one image. Received: {len(pixels)} images and "
            f"label {numbers.dtype}{numbers.shape}, in {source}. Use files that belong together."
        )
    # A label out of range would otherwise be a loss of nan, many steps later.
    if numbers.max() >= len(_CLOTHES):
        raise InputError(
            f"Each label must be from 0 to {len(_CLOTHES) - 1}. Received: {numbers.max()}, in {source}. Replace the "
            "file with a fresh copy."
        )
    # int64, tensorflow_datasets' type of a ClassLabel.
    return Table({"image": pixels[..., np.newaxis], "label": numbers.astype(np.int64)})


DATA_SETS = [
    DataSet(
        name="mnist",
        description="70,000 handwritten digits, from 0 (paper) to 255 (ink).",
        homepage="http://yann.lecun.com/exdb/mnist/",
        features=FeaturesDict({"image": Image((28, 28, 1)), "label": ClassLabel(10)}),
        supervised_keys=("image", "label"),
        sizes={"train": 60_000, "test": 10_000},
        load=_load_mnist,
    ),
    DataSet(
        name="fashion_mnist",
        description="70,000 pictures of clothes in ten classes, from Zalando.",
        homepage="https://github.com/zalandoresearch/fashion-mnist",
        features=FeaturesDict({"image": Image((28, 28, 1)), "label": ClassLabel(names=_CLOTHES)}),
        supervised_keys=("image", "label"),
        sizes={"train": 60_000, "test": 10_000},
        load=_load_fashion_mnist,
    ),
]
