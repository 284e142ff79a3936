"""tf.compat.v1.random: tf.random, with TensorFlow 1's names."""

from __future__ import annotations

from typing import Any as _Any

from lockstep._types import Tensor as _Tensor
from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow import random as _random
from lockstep.compat.tensorflow._types import DTypeLike as _DTypeLike
from lockstep.compat.tensorflow._types import Seed as _Seed

__all__ = ["multinomial", "set_random_seed"]

set_random_seed = _random.set_seed


def multinomial(
    logits: _Tensor,
    num_samples: int,
    seed: _Seed = None,
    name: str | None = None,
    output_dtype: _DTypeLike = None,
) -> _Any:
    """Draws classes by unnormalised log-probabilities, as tf.random.categorical. Source: tf.compat.v1.multinomial."""
    return _random.categorical(logits, num_samples, dtype=output_dtype, seed=seed, name=name)


_other = _missing.getter(__name__)


def __getattr__(name: str) -> _Any:
    """Returns a name of tf.random."""
    return getattr(_random, name) if name in _random.__all__ else _other(name)
