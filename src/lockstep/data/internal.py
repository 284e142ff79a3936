"""Parts of `lockstep.data` for its sibling packages. Nothing here comes with a promise of stability."""

from __future__ import annotations

from lockstep.data import _blocks as pool
from lockstep.data import _dataset_base as inside
from lockstep.data._blocks import ArrayStore as ArrayStore
from lockstep.data._blocks import Block as Block
from lockstep.data._blocks import BlockStore as BlockStore
from lockstep.data._blocks import MappedStore as MappedStore
from lockstep.data._blocks import MixedStore as MixedStore
from lockstep.data._blocks import Store as Store
from lockstep.data._blocks import ZippedStore as ZippedStore
from lockstep.data._blocks import join_blocks as join_blocks
from lockstep.data._columns import Ragged as Ragged
from lockstep.data._composite import CompositeKind as CompositeKind
from lockstep.data._composite import register_composite as register_composite
from lockstep.data._dataset_base import plan_of as plan_of
from lockstep.data._example.features import FixedLenFeature as FixedLenFeature
from lockstep.data._example.features import VarLenFeature as VarLenFeature
from lockstep.data._feature_batches import make_batched_features_dataset as make_batched_features_dataset
from lockstep.data._files.tfrecord import masked_crc as masked_crc
from lockstep.data._files.tfrecord import open_tfrecord as open_tfrecord
from lockstep.data._image.decode import decode_jpeg as decode_jpeg
from lockstep.data._image.encode import encode_png as encode_png
from lockstep.data._iterator import DatasetIterator as DatasetIterator
from lockstep.data._iterator import ElementStream as ElementStream
from lockstep.data._iterator import Optional as Optional
from lockstep.data._iterator import PlanReader as PlanReader
from lockstep.data._iterator import describe_plan as describe_plan
from lockstep.data._iterator import elements_of as elements_of
from lockstep.data._iterator import open_at as open_at
from lockstep.data._keras_adapter import as_keras_batch as as_keras_batch
from lockstep.data._keras_adapter import check_finite as check_finite
from lockstep.data._options import OptionTypeError as OptionTypeError
from lockstep.data._options import set_option as set_option
from lockstep.data._peek import declared_sizes as declared_sizes
from lockstep.data._peek import example_of as example_of
from lockstep.data._peek import spec_if_known as spec_if_known
from lockstep.data._plan import Node as Node
from lockstep.data._plan import Run as Run
from lockstep.data._plan import walk as walk
from lockstep.data._sharding import file_count as file_count
from lockstep.data._sharding import shard_batches as shard_batches
from lockstep.data._sharding import shard_by_files as shard_by_files
from lockstep.data._sharding import shard_by_hint as shard_by_hint
from lockstep.data._sources import Arrays as Arrays
from lockstep.data._spec import TensorSpec as TensorSpec
from lockstep.data._spec import spec_of_leaf as spec_of_leaf
from lockstep.data._structure import TEXT as TEXT
from lockstep.data._tracing import NonDeterministicError as NonDeterministicError
from lockstep.data._tracing import VectorizedFunction as VectorizedFunction
from lockstep.data._transforms.batch import StackedStore as StackedStore
from lockstep.data._transforms.batch import batch_plan as batch_plan
from lockstep.data._transforms.cache import CachedElements as CachedElements
from lockstep.data._transforms.map import Map as Map

__all__ = [
    "ArrayStore",
    "Arrays",
    "Block",
    "BlockStore",
    "CachedElements",
    "CompositeKind",
    "ElementStream",
    "FixedLenFeature",
    "Map",
    "MappedStore",
    "MixedStore",
    "Node",
    "NonDeterministicError",
    "OptionTypeError",
    "Optional",
    "PlanReader",
    "Ragged",
    "Run",
    "StackedStore",
    "Store",
    "TEXT",
    "TensorSpec",
    "VarLenFeature",
    "VectorizedFunction",
    "ZippedStore",
    "as_keras_batch",
    "batch_plan",
    "check_finite",
    "declared_sizes",
    "decode_jpeg",
    "describe_plan",
    "elements_of",
    "encode_png",
    "example_of",
    "file_count",
    "inside",
    "join_blocks",
    "make_batched_features_dataset",
    "masked_crc",
    "open_at",
    "open_tfrecord",
    "plan_of",
    "pool",
    "register_composite",
    "set_option",
    "shard_batches",
    "shard_by_files",
    "shard_by_hint",
    "spec_if_known",
    "spec_of_leaf",
    "walk",
    "DatasetIterator",
]
