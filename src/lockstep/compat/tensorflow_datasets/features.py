"""Features of data sets' elements (tfds.features)."""

from __future__ import annotations

from lockstep.datasets import ClassLabel as ClassLabel
from lockstep.datasets import FeaturesDict as FeaturesDict
from lockstep.datasets import Image as Image
from lockstep.datasets import Tensor as Tensor
from lockstep.datasets import Text as Text

__all__ = ["ClassLabel", "FeaturesDict", "Image", "Tensor", "Text"]
