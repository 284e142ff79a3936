"""Crossed columns: hashed combinations of features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep.errors import ArgumentError
from lockstep.estimator.feature_column import _features, _fingerprints
from lockstep.estimator.feature_column._categorical import (
    HashedCategoricalColumn,
    WeightedCategoricalColumn,
    check_bucket_count,
    variable_length,
)
from lockstep.estimator.feature_column._columns import CategoricalColumn, Ids, missing
from lockstep.estimator.feature_column._features import Features
from lockstep.estimator.feature_column._fingerprints import Wide
from lockstep.estimator.feature_column._host import FingerprintHalf


@dataclass(frozen=True)
class CrossedColumn(CategoricalColumn):
    """Column of `crossed_column`."""

    keys: tuple[str | CategoricalColumn, ...]
    hash_bucket_size: int
    hash_key: int | None

    @property
    def name(self) -> str:
        # Sorted, unlike the buckets: TensorFlow's name does not depend on the order of keys.
        return "_X_".join(sorted(leaf if isinstance(leaf, str) else leaf.name for leaf in self.leaves()))

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = {}
        for key in self.keys:
            spec |= variable_length(key, _features.TEXT) if isinstance(key, str) else key.parse_example_spec
        return spec

    @property
    def num_buckets(self) -> int:
        return self.hash_bucket_size

    def leaves(self) -> list[str | CategoricalColumn]:
        """Returns the features and columns that are crossed; nested crossed columns are flattened."""
        # TensorFlow flattens, too: a cross of a cross has the buckets of one cross of all.
        return [leaf for key in self.keys for leaf in (key.leaves() if isinstance(key, CrossedColumn) else [key])]

    def ids(self, features: Features) -> Ids:
        return features.cached(self, lambda: self._cross(features))

    def _cross(self, features: Features) -> Ids:
        # TensorFlow takes columns before features, whatever their order in `keys` is; buckets depend on it.
        leaves = sorted(self.leaves(), key=lambda leaf: isinstance(leaf, str))
        parts = [_input_of(features, leaf) for leaf in leaves]
        # TensorFlow's default key: buckets of saved models depend on it. A negative key is taken as two's complement.
        key = 0xDECAFCAFFE if self.hash_key is None else self.hash_key
        crossed = _combine(parts, Wide.of(key % 2**64))
        size = math.prod(part.is_present.shape[1] for part in parts)
        buckets, present = crossed.value % self.hash_bucket_size, crossed.is_present
        return Ids(jnp.where(present, buckets, missing(buckets.dtype)).reshape(-1, size))


@dataclass(frozen=True)
class _CrossInput:
    """The 64-bit values (batch, n) of a crossed feature or column; `is_present` is False for padding."""

    value: Wide
    is_present: jax.Array


def _input_of(features: Features, leaf: str | CategoricalColumn) -> _CrossInput:
    if not isinstance(leaf, str):
        # The categories, not the feature: a bucketized column crosses its buckets.
        categories = leaf.ids(features)
        return _CrossInput(Wide.of_integers(categories.ids), categories.is_present)
    if features.is_text(leaf):
        # Two calls, since devices get 32 bits at a time.
        value = Wide(*(features.codes(leaf, FingerprintHalf(is_upper), np.uint32) for is_upper in (True, False)))
    else:
        value = Wide.of_integers(_whole(features, leaf))
    # "" and -1 are values of a feature of its own here, as in TensorFlow.
    return _CrossInput(value, jnp.ones(value.low.shape, bool))


def _whole(features: Features, leaf: str) -> jax.Array:
    """Returns a feature as integers: of floats the whole part, which TensorFlow crosses."""
    numbers = features.numbers(leaf)
    return numbers.astype(jnp.int32) if jnp.issubdtype(numbers.dtype, jnp.floating) else features.integers(leaf)


def _combine(parts: Sequence[_CrossInput], value: Wide) -> _CrossInput:
    """Hashes all combinations of one value of each part."""
    # (batch, before, 1) with (batch, 1, n): the last part varies fastest, in TensorFlow's order of combinations.
    batch = parts[0].is_present.shape[0]
    present = jnp.ones((batch, 1), bool)
    # The hash key is the first operand of the chain of FingerprintCat64.
    value = Wide(jnp.full((batch, 1), value.high), jnp.full((batch, 1), value.low))
    for part in parts:
        before = Wide(value.high[:, :, None], value.low[:, :, None])
        added = Wide(part.value.high[:, None], part.value.low[:, None])
        hashed = _fingerprints.concatenate(before, added)
        value = Wide(hashed.high.reshape(batch, -1), hashed.low.reshape(batch, -1))
        present = (present[:, :, None] & part.is_present[:, None]).reshape(batch, -1)
    return _CrossInput(value, present)


def crossed_column(
    keys: Sequence[str | CategoricalColumn], hash_bucket_size: int, hash_key: int | None = None
) -> CrossedColumn:
    """Describes hashed combinations of features, in TensorFlow's buckets.

    Features of several values give all combinations of them.

    Args:
        keys: Names of features of text or numbers, of which the whole part counts, or categorical columns other than hashed ones.
        hash_bucket_size: Number of buckets.
        hash_key: The key of the hash function; `None` for TensorFlow's default.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.feature_column.crossed_column.
    """
    count = check_bucket_count("hash_bucket_size", hash_bucket_size, keys)
    leaves = () if isinstance(keys, str) else tuple(keys or ())
    if len(leaves) < 2:
        raise ArgumentError(f"crossed_column combines at least two features. Received: keys={keys!r}.")
    for key in list[Any](leaves):
        if isinstance(key, HashedCategoricalColumn):
            raise ArgumentError(
                f"A crossed column hashes by itself. Received: {key.name!r} as a column in buckets by a hash function, "
                f"which would collide more often. Give the name of the feature instead: {key.key!r}."
            )
        if isinstance(key, WeightedCategoricalColumn) or not isinstance(key, (str, CategoricalColumn)):
            raise ArgumentError(
                f"keys holds names of features and columns of categories without weights. Received: {key!r}."
            )
    return CrossedColumn(leaves, count, _check_hash_key(hash_key))


def _check_hash_key(hash_key: object) -> int | None:
    if hash_key is None:
        return None
    if not isinstance(hash_key, (int, np.integer)) or isinstance(hash_key, bool):
        raise ArgumentError(f"hash_key must be an integer. Received: {hash_key!r}.")
    return int(hash_key)
