"""Refusals of sequence columns, which Keras 3 cannot take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from lockstep.errors import UnsupportedError


def _refusal(name: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise UnsupportedError(
            "Columns of sequences are for tf.keras' SequenceFeatures, which is not part of Keras 3. Received: a call "
            f"of {name}. {instead}"
        )

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"""Raises an error: sequence columns are not supported.

    Raises:
        UnsupportedError: Always.

    Source: tf.feature_column.{name}.
    """
    return refuse


# Refused by name rather than absent: a program that imports them learns what to use instead.
_EMBED = "Use keras.layers.Embedding and a recurrent layer of Keras on integers of shape (batch, steps)."

sequence_categorical_column_with_hash_bucket = _refusal("sequence_categorical_column_with_hash_bucket", _EMBED)
sequence_categorical_column_with_identity = _refusal("sequence_categorical_column_with_identity", _EMBED)
sequence_categorical_column_with_vocabulary_file = _refusal("sequence_categorical_column_with_vocabulary_file", _EMBED)
sequence_categorical_column_with_vocabulary_list = _refusal("sequence_categorical_column_with_vocabulary_list", _EMBED)
sequence_numeric_column = _refusal(
    "sequence_numeric_column", "Use a recurrent layer of Keras on numbers of shape (batch, steps, width)."
)
