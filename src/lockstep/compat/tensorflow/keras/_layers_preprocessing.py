"""`tf.keras.layers.experimental.preprocessing`: layers that have since become plain ones."""

from __future__ import annotations

from keras.layers import CategoryEncoding as CategoryEncoding
from keras.layers import CenterCrop as CenterCrop
from keras.layers import Discretization as Discretization
from keras.layers import HashedCrossing as HashedCrossing
from keras.layers import Hashing as Hashing
from keras.layers import IntegerLookup as IntegerLookup
from keras.layers import Normalization as Normalization
from keras.layers import RandomContrast as RandomContrast
from keras.layers import RandomCrop as RandomCrop
from keras.layers import RandomFlip as RandomFlip
from keras.layers import RandomRotation as RandomRotation
from keras.layers import RandomTranslation as RandomTranslation
from keras.layers import RandomZoom as RandomZoom
from keras.layers import Rescaling as Rescaling
from keras.layers import Resizing as Resizing
from keras.layers import StringLookup as StringLookup
from keras.layers import TextVectorization as TextVectorization

__all__ = [
    "CategoryEncoding",
    "CenterCrop",
    "Discretization",
    "HashedCrossing",
    "Hashing",
    "IntegerLookup",
    "Normalization",
    "RandomContrast",
    "RandomCrop",
    "RandomFlip",
    "RandomRotation",
    "RandomTranslation",
    "RandomZoom",
    "Rescaling",
    "Resizing",
    "StringLookup",
    "TextVectorization",
]
