"""Data sets by name, found on this machine, downloaded, or a sample of them.

`load` returns them as `lockstep.data.Dataset`s, `load_mnist` returns MNIST as arrays. `LOCKSTEP_DATA_DIR` names a
directory to read them from. `LOCKSTEP_OFFLINE=1` forbids downloads.
"""

from __future__ import annotations

from lockstep.datasets._builder import DatasetBuilder as DatasetBuilder
from lockstep.datasets._builder import ReadConfig as ReadConfig
from lockstep.datasets._builder import as_numpy as as_numpy
from lockstep.datasets._builder import builder as builder
from lockstep.datasets._builder import load as load
from lockstep.datasets._data_set import names as names
from lockstep.datasets._download import disable_progress_bar as disable_progress_bar
from lockstep.datasets._download import enable_progress_bar as enable_progress_bar
from lockstep.datasets._info import ClassLabel as ClassLabel
from lockstep.datasets._info import DatasetInfo as DatasetInfo
from lockstep.datasets._info import FeaturesDict as FeaturesDict
from lockstep.datasets._info import Image as Image
from lockstep.datasets._info import SplitInfo as SplitInfo
from lockstep.datasets._info import Tensor as Tensor
from lockstep.datasets._info import Text as Text
from lockstep.datasets._info import Tokens as Tokens
from lockstep.datasets._mnist import Mnist as Mnist
from lockstep.datasets._mnist import load_mnist as load_mnist
from lockstep.datasets._split import ReadInstruction as ReadInstruction
from lockstep.datasets._split import Split as Split

__all__ = [
    "ClassLabel",
    "DatasetBuilder",
    "DatasetInfo",
    "FeaturesDict",
    "Image",
    "Mnist",
    "ReadConfig",
    "ReadInstruction",
    "Split",
    "SplitInfo",
    "Tensor",
    "Text",
    "Tokens",
    "as_numpy",
    "builder",
    "disable_progress_bar",
    "enable_progress_bar",
    "load",
    "load_mnist",
    "names",
]
