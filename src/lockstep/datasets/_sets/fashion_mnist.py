"""Fashion-MNIST: MNIST's format, clothes instead of digits."""

from __future__ import annotations

import numpy as np

from lockstep.datasets._arrays import images_and_labels
from lockstep.datasets._data_set import DataSet, LoadedDataSet, Table
from lockstep.datasets._features import ClassLabel, FeaturesDict, Image
from lockstep.datasets._idx import parse_idx
from lockstep.datasets._keras_cache import PublishedFile
from lockstep.datasets._place import DataLocation, File
from lockstep.errors import InputError

_NAMES = [
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
]
_BASE = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
_SHA256 = {
    "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
}
_PUBLISHED = [PublishedFile(f"fashion-mnist/{name}", _BASE + name, sha256) for name, sha256 in _SHA256.items()]


def _load(location: DataLocation) -> LoadedDataSet:
    # The files have the names of MNIST's, so they count only in a directory with the name of this data set.
    files = location.files("fashion_mnist", _PUBLISHED, directly=False)
    train_images, train_labels, test_images, test_labels = files
    tables = {"train": _table(train_images, train_labels), "test": _table(test_images, test_labels)}
    return LoadedDataSet(tables, f"Fashion-MNIST from {train_images.path.parent}")


def _table(images: File, labels: File) -> Table:
    pixels = parse_idx(images.content, 3, str(images.path))
    if pixels.shape[1:] != (28, 28):
        raise InputError(
            f"The images of Fashion-MNIST must be 28 x 28. Received: {pixels.shape}, in {images.path}. Replace it with "
            "a fresh copy."
        )
    numbers = parse_idx(labels.content, 1, str(labels.path))
    return images_and_labels(pixels[..., np.newaxis], str(images.path.parent), len(_NAMES), label=numbers)


DATA_SET = DataSet(
    name="fashion_mnist",
    description="70,000 pictures of clothes in ten classes, from Zalando.",
    homepage="https://github.com/zalandoresearch/fashion-mnist",
    features=FeaturesDict({"image": Image((28, 28, 1)), "label": ClassLabel(names=_NAMES)}),
    supervised_keys=("image", "label"),
    sizes={"train": 60_000, "test": 10_000},
    load=_load,
)
