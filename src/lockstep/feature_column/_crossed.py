"""Columns of combinations of features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep.errors import ArgumentError
from lockstep.feature_column import _farmhash, _kinds
from lockstep.feature_column._columns import CategoricalColumn, Ids, missing
from lockstep.feature_column._features import Features, integers
from lockstep.feature_column._hashed import HashedCategoricalColumn, checked_buckets, variable_length
from lockstep.feature_column._host import FingerprintHalf
from lockstep.feature_column._weighted import WeightedCategoricalColumn
from lockstep.feature_column._wide import Wide

# TensorFlow's.
_HASH_KEY = 0xDECAFCAFFE


@dataclass(frozen=True)
class CrossedColumn(CategoricalColumn):
    """What `crossed_column` returns; see there."""

    keys: tuple[str | CategoricalColumn, ...]
    hash_bucket_size: int
    hash_key: int | None

    @property
    def name(self) -> str:
        return "_X_".join(sorted(leaf if isinstance(leaf, str) else leaf.name for leaf in self.leaves()))

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = {}
        for key in self.keys:
            spec |= variable_length(key, _kinds.TEXT) if isinstance(key, str) else key.parse_example_spec
        return spec

    @property
    def num_buckets(self) -> int:
        return self.hash_bucket_size

    def leaves(self) -> list[str | CategoricalColumn]:
        """What is combined; of a crossed column in `keys`, what it combines."""
        return [leaf for key in self.keys for leaf in (key.leaves() if isinstance(key, CrossedColumn) else [key])]

    def ids(self, features: Features) -> Ids:
        return features.once(self, lambda: self._crossed(features))

    def _crossed(self, features: Features) -> Ids:
        # TensorFlow takes columns before features, whatever their order in `keys` is; buckets depend on it.
        leaves = sorted(self.leaves(), key=lambda leaf: isinstance(leaf, str))
        parts = [
            _of_feature(features, leaf) if isinstance(leaf, str) else _of_column(features, leaf) for leaf in leaves
        ]
        key = _HASH_KEY if self.hash_key is None else self.hash_key
        found = _combined(parts, Wide.of(key % 2**64))
        size = math.prod(part.is_present.shape[1] for part in parts)
        buckets, present = found.value % self.hash_bucket_size, found.is_present
        return Ids(jnp.where(present, buckets, missing(buckets.dtype)).reshape(-1, size))


@dataclass(frozen=True)
class _Part:
    """What a leaf gives: some 64-bit values for each example.

    Attributes:
        value: (batch, n).
        is_present: Which of them there are: bool (batch, n).
    """

    value: Wide
    is_present: jax.Array


def _of_feature(features: Features, key: str) -> _Part:
    """A feature's values themselves; "" and -1 are values here, as in TensorFlow."""
    if features.is_text(key):
        value = Wide(*(features.codes(key, FingerprintHalf(is_upper), np.uint32) for is_upper in (True, False)))
    else:
        value = Wide.of_integers(integers(features, key))
    return _Part(value, jnp.ones(value.low.shape, bool))


def _of_column(features: Features, column: CategoricalColumn) -> _Part:
    found = column.ids(features)
    return _Part(Wide.of_integers(found.ids), found.is_present)


def _combined(parts: Sequence[_Part], value: Wide) -> _Part:
    """All combinations of one value of each part."""
    batch = parts[0].is_present.shape[0]
    present = jnp.ones((batch, 1), bool)
    value = Wide(jnp.full((batch, 1), value.high), jnp.full((batch, 1), value.low))
    for part in parts:
        before = Wide(value.high[:, :, None], value.low[:, :, None])
        added = Wide(part.value.high[:, None], part.value.low[:, None])
        joined = _farmhash.concatenated(before, added)
        value = Wide(joined.high.reshape(batch, -1), joined.low.reshape(batch, -1))
        present = (present[:, :, None] & part.is_present[:, None]).reshape(batch, -1)
    return _Part(value, present)


def crossed_column(
    keys: Sequence[str | CategoricalColumn], hash_bucket_size: int, hash_key: int | None = None
) -> CrossedColumn:
    """Describes the combinations of some features, in buckets by a hash function: the buckets that TensorFlow chooses.

    Where a feature has several values, there are all combinations.

    Args:
        keys: Names of features of text or integers, or columns of categories but hashed ones.
        hash_bucket_size: How many buckets.
        hash_key: A number that changes the hash function.

    Raises:
        ArgumentError: If an argument is wrong.

    Source: tf.feature_column.crossed_column.
    """
    count = checked_buckets("hash_bucket_size", hash_bucket_size, keys)
    given = () if isinstance(keys, str) else tuple(keys or ())
    if len(given) < 2:
        raise ArgumentError(f"crossed_column combines at least two features. Received: keys={keys!r}.")
    for key in given:
        _check_leaf(key)
    return CrossedColumn(given, count, _checked_hash_key(hash_key))


def _checked_hash_key(hash_key: Any) -> int | None:
    if hash_key is None:
        return None
    if not isinstance(hash_key, (int, np.integer)) or isinstance(hash_key, bool):
        raise ArgumentError(f"hash_key must be an integer. Received: {hash_key!r}.")
    return int(hash_key)


def _check_leaf(key: Any) -> None:
    if isinstance(key, HashedCategoricalColumn):
        raise ArgumentError(
            f"A crossed column hashes by itself. Received: {key.name!r} as a column in buckets by a hash function, "
            f"which would collide more often. Give the name of the feature instead: {key.key!r}."
        )
    if isinstance(key, WeightedCategoricalColumn) or not isinstance(key, (str, CategoricalColumn)):
        raise ArgumentError(
            f"keys holds names of features and columns of categories without weights. Received: {key!r}."
        )
