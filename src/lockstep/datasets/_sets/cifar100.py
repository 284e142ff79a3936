"""CIFAR-100."""

from __future__ import annotations

from lockstep.datasets._data_set import DataSet
from lockstep.datasets._features import ClassLabel, FeaturesDict, Image
from lockstep.datasets._keras_cache import PublishedFile
from lockstep.datasets._sets._cifar import Cifar

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
# The binary version; the one that Keras downloads is a pickle, which nothing here reads.
_CIFAR = Cifar(
    name="cifar100",
    archive=PublishedFile(
        name="cifar-100-binary.tar.gz",
        url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        patience=10,
    ),
    directory="cifar-100-binary",
    files={"train": ["train.bin"], "test": ["test.bin"]},
    labels={"coarse_label": 20, "label": 100},
)

DATA_SET = DataSet(
    name="cifar100",
    description="60,000 colour pictures of 32 x 32 pixels in a hundred classes, which form twenty groups.",
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    features=FeaturesDict(
        {
            "image": Image((32, 32, 3)),
            "label": ClassLabel(names=_FINE.split()),
            "coarse_label": ClassLabel(names=_COARSE.split()),
        }
    ),
    supervised_keys=("image", "label"),
    sizes={"train": 50_000, "test": 10_000},
    load=_CIFAR.load,
)
