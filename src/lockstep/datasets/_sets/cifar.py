"""CIFAR-10 and CIFAR-100, in their binary version; the one that Keras downloads is a pickle, which nothing here reads.

A record is one byte for each label, then 32 x 32 bytes of red, of green and of blue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from lockstep.datasets._data_set import DataSet, LoadedDataSet, Table
from lockstep.datasets._download import PublishedFile
from lockstep.datasets._info import ClassLabel, FeaturesDict, Image
from lockstep.datasets._location import DataLocation, find, find_directory, read, read_members
from lockstep.errors import InputError

_PIXELS = 3 * 32 * 32
_TEN = "airplane automobile bird cat deer dog frog horse ship truck"
_FINE = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""
_COARSE = """
aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices household_furniture
insects large_carnivores large_man-made_outdoor_things large_natural_outdoor_scenes large_omnivores_and_herbivores
medium_mammals non-insect_invertebrates people reptiles small_mammals trees vehicles_1 vehicles_2
"""


@dataclass(frozen=True)
class Cifar:
    """CIFAR-10 or CIFAR-100.

    Attributes:
        name: The name of the data set.
        sha256: The checksum of the archive.
        files: The files of each split.
        labels: The names of the labels, in the order of their bytes, and the classes of each.
        directory: The directory in the archive.
    """

    name: str
    description: str
    sha256: str
    directory: str
    files: Mapping[str, Sequence[str]]
    labels: Mapping[str, Sequence[str]]

    def data_set(self) -> DataSet:
        """Returns the description by which it is loaded."""
        # tensorflow_datasets lists the fine label first.
        labels = {name: ClassLabel(names=names) for name, names in reversed([*self.labels.items()])}
        return DataSet(
            name=self.name,
            description=self.description,
            homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
            features=FeaturesDict({"image": Image((32, 32, 3)), **labels}),
            supervised_keys=("image", "label"),
            sizes={"train": 50_000, "test": 10_000},
            load=self.load,
        )

    def load(self, location: DataLocation) -> LoadedDataSet:
        """Loads the data set from the archive or, in the user's own directory, from its unpacked files."""
        names = [name for group in self.files.values() for name in group]
        root = location.root
        unpacked = None if root is None else find_directory(root, self.name, [self.directory])
        if unpacked is not None:
            paths = find(unpacked, self.directory, names, location.setting)
            contents, source = {path.name: read(path) for path in paths}, str(unpacked)
        else:
            archive_name = self.name.replace("cifar", "cifar-") + "-binary.tar.gz"
            published = PublishedFile(
                archive_name, f"https://www.cs.toronto.edu/~kriz/{archive_name}", self.sha256, patience=10
            )
            (archive,) = location.files(self.name, [published])
            source = str(archive.path)
            members = read_members(archive.content, lambda name: PurePosixPath(name).name in names, source)
            # By name alone: a directory in the archive may be called otherwise.
            contents = {PurePosixPath(name).name: content for name, content in members.items()}
        tables = {split: self._table(contents, group, source) for split, group in self.files.items()}
        return LoadedDataSet(tables, f"{self.name} from {source}")

    def _table(self, contents: Mapping[str, bytes], names: Sequence[str], source: str) -> Table:
        records = np.concatenate([self._records(contents, name, source) for name in names])
        columns: dict[str, NDArray[np.int64]] = {}
        for i, (label, classes) in enumerate(self.labels.items()):
            columns[label] = numbers = records[:, i].astype(np.int64)
            if numbers.max() >= len(classes):
                record = int(np.argmax(numbers >= len(classes)))
                raise InputError(
                    f"Each {label} must be from 0 to {len(classes) - 1}. Received: {numbers[record]} in record "
                    f"{record}, in {source}. Replace it with a fresh copy."
                )
        # Stored plane by plane; Keras and tensorflow_datasets have channels last.
        pixels = records[:, len(columns) :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        # Contiguous: each batch would otherwise gather strided bytes.
        return Table({"image": np.ascontiguousarray(pixels), **columns})

    def _records(self, contents: Mapping[str, bytes], name: str, source: str) -> NDArray[np.uint8]:
        if name not in contents:
            raise InputError(f"{source} must hold {name}. Received: {', '.join(contents) or 'nothing of the kind'}.")
        length = len(self.labels) + _PIXELS
        if len(contents[name]) % length or not contents[name]:
            raise InputError(
                f"{name} in {source} must hold records of {length} bytes, at least one. Received: "
                f"{len(contents[name])} bytes. Replace it with a fresh copy."
            )
        return np.frombuffer(contents[name], np.uint8).reshape(-1, length)


DATA_SETS = [
    Cifar(
        name="cifar10",
        description="60,000 colour pictures of 32 x 32 pixels in ten classes.",
        sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        directory="cifar-10-batches-bin",
        files={"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]},
        labels={"label": _TEN.split()},
    ).data_set(),
    Cifar(
        name="cifar100",
        description="60,000 colour pictures of 32 x 32 pixels in a hundred classes, which form twenty groups.",
        sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        directory="cifar-100-binary",
        files={"train": ["train.bin"], "test": ["test.bin"]},
        labels={"coarse_label": _COARSE.split(), "label": _FINE.split()},
    ).data_set(),
]
