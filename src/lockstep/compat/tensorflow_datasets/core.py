"""The types of tensorflow_datasets that programs name (tfds.core)."""

from __future__ import annotations

from lockstep.compat.tensorflow_datasets._builder import DatasetBuilder as DatasetBuilder
from lockstep.datasets import DatasetInfo as DatasetInfo
from lockstep.datasets import ReadInstruction as ReadInstruction
from lockstep.datasets import SplitInfo as SplitInfo

__all__ = ["DatasetBuilder", "DatasetInfo", "ReadInstruction", "SplitInfo"]
