"""Sequences of neighbouring texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._ops.strings import to_bytes
from lockstep.compat.tensorflow._ops.unicode import rows_of
from lockstep.compat.tensorflow._tensor import as_host, to_text
from lockstep.compat.tensorflow._types import SizeLike
from lockstep.errors import ArgumentError

__all__ = ["ngrams"]


def ngrams(
    data: Tensor,
    ngram_width: Any,
    separator: str = " ",
    pad_values: Any = None,
    padding_width: SizeLike = None,
    preserve_short_sequences: bool = False,
    name: str | None = None,
) -> Tensor:
    """Joins each `ngram_width` neighbouring texts of the last dimension.

    Args:
        data: Text of at least one dimension, or a ragged tensor of it.
        ngram_width: How many texts are joined; or several such numbers, whose results follow one another.
        separator: Text between two.
        pad_values: Text that stands before and after a sequence; a pair for different ones.
        padding_width: How often it stands there; default: one less than the width, so that each text is in
            `ngram_width` results.
        preserve_short_sequences: Whether a sequence that gives no result gives one of all its texts.
        name: Its name in a model_fn.

    Returns:
        A ragged tensor for a ragged one, else a tensor.

    Source: tf.strings.ngrams.
    """
    widths = dispatch.to_static(ngram_width)
    widths = [widths] if isinstance(widths, int) else list(widths)
    if min(widths) < 1:
        raise ArgumentError(f"Widths of n-grams must be at least 1. Received: {widths}.")
    if padding_width is not None and pad_values is None:
        raise ArgumentError("padding_width needs pad_values, which stand before and after a sequence.")
    left, right = _padding(pad_values)
    limit = None if padding_width is None else dispatch.to_static(padding_width)

    def join(row: Sequence[bytes]) -> list[bytes]:
        found: list[bytes] = []
        for width in widths:
            # Never more than what leaves one text in each result.
            count = 0 if pad_values is None else width - 1 if limit is None else min(limit, width - 1)
            whole = [*left * count, *row, *right * count]
            found += [mark.join(whole[i : i + width]) for i in range(len(whole) - width + 1)]
        if not found and row and preserve_short_sequences:
            width = min(widths)
            count = 0 if pad_values is None else width - 1 if limit is None else min(limit, width - 1)
            found = [mark.join([*left * count, *row, *right * count])]
        return found

    mark = to_bytes(separator).item()
    if type(data).__name__ == "RaggedTensor":
        if data.ragged_rank > 1:
            return data.with_values(ngrams(data.values, ngram_width, separator, pad_values, padding_width))
        rows = [to_text(join(row)).reshape(-1) for row in data.to_list()]
        return rows_of(rows, (len(rows),))
    texts = to_bytes(data)
    if not texts.ndim:
        raise ArgumentError("ngrams joins texts of a sequence: at least one dimension. Received one text.")
    joined = [join(row) for row in texts.reshape(-1, texts.shape[-1]).tolist()]
    count = len(joined[0]) if joined else 0
    return as_host(to_text([t for row in joined for t in row]).reshape(*texts.shape[:-1], count))


def _padding(pad_values: Any) -> tuple[list[bytes], list[bytes]]:
    if pad_values is None:
        return [], []
    pair = pad_values if isinstance(pad_values, (list, tuple)) else (pad_values, pad_values)
    left, right = (np.asarray(to_bytes(text)).item() for text in pair)
    return [left], [right]


named.record_names(globals())
