"""Functions of text, held as bytes in arrays of objects."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._dtypes import as_dtype, float32
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._ops.control import format_value
from lockstep.compat.tensorflow._tensor import HostTensor, as_host, to_text
from lockstep.compat.tensorflow._types import AxisLike, DTypeLike, SizeLike
from lockstep.errors import ArgumentError, InputError, UnsupportedError

__all__ = ["as_string", "format", "join", "length", "lower", "reduce_join", "regex_full_match", "regex_replace"]
__all__ += ["split", "strip", "substr", "to_hash_bucket", "to_hash_bucket_fast", "to_hash_bucket_strong", "to_number"]
__all__ += ["unsorted_segment_join", "upper"]


def to_bytes(value: Tensor) -> np.ndarray[Any, Any]:
    if isinstance(value, jax.Array):
        raise UnsupportedError("Text functions take text, which is kept on the host. Received an array of JAX.")
    texts = to_text(value)
    # Arrays of objects may hold anything.
    if any(not isinstance(e, bytes) for e in texts.ravel()):
        raise ArgumentError(f"Text functions take text. Received: {value!r}. Use tf.strings.as_string for numbers.")
    return texts


def map_text(function: Callable[[bytes], Any], value: Tensor, dtype: DTypeLike = object) -> HostTensor:
    texts = to_bytes(value)
    result = np.empty(texts.size, dtype)
    for index, element in enumerate(texts.ravel()):
        result[index] = function(element)
    return as_host(result.reshape(texts.shape))


def lower(input: Tensor, encoding: str = "", name: str | None = None) -> Tensor:
    """Returns text in lower case; only ASCII letters unless `encoding` is "utf-8". Source: tf.strings.lower."""
    return map_text((lambda b: b.decode().lower().encode()) if _is_utf8(encoding) else bytes.lower, input)


def upper(input: Tensor, encoding: str = "", name: str | None = None) -> Tensor:
    """Returns text in upper case; only ASCII letters unless `encoding` is "utf-8". Source: tf.strings.upper."""
    return map_text((lambda b: b.decode().upper().encode()) if _is_utf8(encoding) else bytes.upper, input)


def _is_utf8(encoding: str) -> bool:
    if encoding not in ("", "utf-8"):
        raise ArgumentError(f'encoding must be "" or "utf-8". Received: {encoding!r}.')
    return bool(encoding)


def strip(input: Tensor, name: str | None = None) -> Tensor:
    """Removes white space at both ends. Source: tf.strings.strip."""
    return map_text(bytes.strip, input)


def length(input: Tensor, unit: str = "BYTE", name: str | None = None) -> Tensor:
    """Counts bytes, or characters with `unit="UTF8_CHAR"`, as int32. Source: tf.strings.length."""
    return map_text((lambda b: len(b.decode())) if _is_char(unit) else len, input, np.int32)


def _is_char(unit: str) -> bool:
    if unit not in ("BYTE", "UTF8_CHAR"):
        raise ArgumentError(f'unit must be "BYTE" or "UTF8_CHAR". Received: {unit!r}.')
    return unit == "UTF8_CHAR"


def substr(input: Tensor, pos: Tensor, len: Tensor, unit: str = "BYTE", name: str | None = None) -> Tensor:
    """Takes `len` bytes or characters from `pos` on; a negative `pos` counts from the end.

    Source: tf.strings.substr.
    """
    chars = _is_char(unit)
    # TensorFlow lets pos and len be one for all, or one for each text.
    texts, starts, sizes = np.broadcast_arrays(to_bytes(input), np.asarray(pos), np.asarray(len))
    parts: list[bytes] = []
    for text, start, size in zip(texts.ravel(), starts.ravel(), sizes.ravel(), strict=True):
        whole = text.decode() if chars else text
        total = whole.__len__()  # `len` is TensorFlow's argument here.
        if not -total <= start <= total:
            raise ArgumentError(f"pos must lie in the text, of length {total}. Received: {start}.")
        # TensorFlow counts a negative position from the end.
        first = start + total if start < 0 else start
        part = whole[first : first + size]
        parts.append(part.encode() if chars else part)
    return as_host(to_text(parts).reshape(texts.shape))


def split(input: Tensor, sep: Tensor = None, maxsplit: int = -1, name: str | None = None) -> Tensor:
    """Splits a text into a tensor of its parts, at `sep` or by default at white space, which `""` means, too.

    Several texts give a ragged tensor.

    Source: tf.strings.split.
    """
    # An array of bytes objects, whatever was given.
    texts = to_bytes(input)
    # TensorFlow splits at white space for an empty separator, which bytes.split refuses.
    mark = None if sep is None else to_bytes(sep).item() or None
    parts = [t.split(mark, maxsplit) for t in texts.ravel()]
    if texts.ndim == 0:
        return as_host(to_text(parts[0]).reshape(-1))
    # Imported here: the module computes with this one.
    from lockstep.compat.tensorflow._composite_elements import RaggedTensor

    flat = as_host(to_text([p for row in parts for p in row]).reshape(-1))
    result = RaggedTensor.from_row_lengths(flat, [len(p) for p in parts])
    for size in reversed(texts.shape[1:]):
        result = RaggedTensor.from_uniform_row_length(result, size)
    return result


def join(inputs: Tensor, separator: Tensor = "", name: str | None = None) -> Tensor:
    """Joins the texts of several tensors, element by element. Source: tf.strings.join."""
    parts = np.broadcast_arrays(*(to_bytes(i) for i in inputs))
    mark = to_bytes(separator).item()
    rows = [mark.join(row) for row in zip(*(p.ravel() for p in parts), strict=True)]
    return as_host(to_text(rows).reshape(parts[0].shape))


def reduce_join(
    inputs: Tensor, axis: AxisLike = None, keepdims: bool = False, separator: Tensor = "", name: str | None = None
) -> Tensor:
    """Joins the texts along an axis, or all of them. Source: tf.strings.reduce_join."""
    texts, mark = to_bytes(inputs), to_bytes(separator).item()
    if axis is None:
        whole = to_text([mark.join(texts.ravel())])
        return as_host(whole.reshape((1,) * texts.ndim) if keepdims else whole.reshape(()))
    # The axis goes last, where rows are joined.
    moved = np.moveaxis(texts, dispatch.to_static(axis), -1)
    rows = to_text([mark.join(r) for r in moved.reshape(-1, moved.shape[-1])]).reshape(moved.shape[:-1])
    return as_host(np.expand_dims(rows, dispatch.to_static(axis)) if keepdims else rows)


def unsorted_segment_join(
    inputs: Tensor, segment_ids: Tensor, num_segments: SizeLike, separator: str = "", name: str | None = None
) -> Tensor:
    """Joins the texts of each segment, in their order; a segment without any is empty text.

    Args:
        inputs: Text.
        segment_ids: The segment of each text: integers in the first dimensions of `inputs`.
        num_segments: How many segments there are.
        separator: Text between two.
        name: Its name in a model_fn.

    Raises:
        ArgumentError: If a segment is not in [0, num_segments).

    Source: tf.strings.unsorted_segment_join.
    """
    texts, ids, count = to_bytes(inputs), np.asarray(segment_ids), dispatch.to_static(num_segments)
    if ids.size and not 0 <= ids.min() <= ids.max() < count:
        raise ArgumentError(f"Segments must be in [0, {count}). Received: {ids.min()} to {ids.max()}.")
    rest = texts.shape[ids.ndim :]
    rows, ids = texts.reshape(ids.size, -1), ids.reshape(-1)
    joined = [to_bytes(separator).item().join(column) for n in np.arange(count) for column in rows[ids == n].T]
    return as_host(to_text(joined).reshape(count, *rest))


def regex_replace(
    input: Tensor, pattern: Tensor, rewrite: Tensor, replace_global: bool = True, name: str | None = None
) -> Tensor:
    r"""Replaces what matches, all or the first; `\1` in `rewrite` is the first group.

    Source: tf.strings.regex_replace.
    """
    expression, new = _compile_pattern(pattern), to_bytes(rewrite).item()
    # TensorFlow's RE2 writes the whole match as \0, Python's re as \g<0>.
    new = re.sub(rb"\\0", rb"\\g<0>", new)
    return map_text(lambda b: expression.sub(new, b, count=0 if replace_global else 1), input)


def regex_full_match(input: Tensor, pattern: Tensor, name: str | None = None) -> Tensor:
    """Returns whether the whole text matches. Source: tf.strings.regex_full_match."""
    expression = _compile_pattern(pattern)
    return map_text(lambda b: expression.fullmatch(b) is not None, input, np.bool_)


def _compile_pattern(pattern: Tensor) -> re.Pattern[bytes]:
    expression = to_bytes(pattern).item()
    try:
        # Python's re has no POSIX classes.
        return re.compile(expression.replace(rb"[:punct:]", re.escape(b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")))
    except re.error as error:
        raise ArgumentError(
            f"The pattern must be a regular expression of Python's re. Received: {expression!r} ({error})."
        ) from error


def to_number(input: Tensor, out_type: DTypeLike = float32, name: str | None = None) -> Tensor:
    """Reads numbers: float32, float64, int32 or int64. Source: tf.strings.to_number.

    Raises:
        InputError: If a text is no such number.
    """
    kind = as_dtype(out_type)

    def parse(text: bytes) -> float:
        try:
            number = int(text) if kind.is_integer else float(text)
            if kind.is_integer and not kind.min <= number <= kind.max:
                raise ValueError
            return number
        except ValueError:
            raise InputError(f"The text must be a number of type {kind.name}. Received: {text!r}.") from None

    return map_text(parse, input, kind.dtype)


def as_string(
    input: Tensor,
    precision: int = -1,
    scientific: bool = False,
    shortest: bool = False,
    width: int = -1,
    fill: str = "",
    name: str | None = None,
) -> Tensor:
    """Writes numbers as text: floating-point ones with `precision` (6) digits. Source: tf.strings.as_string."""
    values = np.asarray(dispatch.pick(input)[1])
    if scientific and shortest:
        raise ArgumentError("as_string writes either scientific or shortest. Received both.")
    # %g is the shorter one of %e and %f.
    letter = "e" if scientific else "g" if shortest else "f"
    digits = f".{precision}" if precision >= 0 else ""
    pad = f"{fill}{width}" if width >= 0 else ""
    # printf's format, which TensorFlow uses, too.
    one = {"b": lambda v: ("true" if v else "false").rjust(max(width, 0)), "f": lambda v: f"%{pad}{digits}{letter}" % v}
    write = one.get(values.dtype.kind, lambda v: v if isinstance(v, bytes) else f"%{pad}d" % v)
    return as_host(to_text([write(v) for v in values.ravel().tolist()]).reshape(values.shape))


def format(
    template: str, inputs: Tensor = (), placeholder: str = "{}", summarize: int = 3, name: str | None = None
) -> Tensor:
    """Puts tensors, as tf.print shows them, where the placeholders are. Source: tf.strings.format."""
    values = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    first, *rest = template.split(placeholder)
    if len(rest) != len(values):
        raise ArgumentError(f"There must be one tensor per placeholder, {len(rest)}. Received: {len(values)}.")
    return as_host(first + "".join(format_value(v, summarize) + r for v, r in zip(values, rest, strict=True)))


def to_hash_bucket_fast(input: Tensor, num_buckets: SizeLike, name: str | None = None) -> Tensor:
    """Returns a number from 0 up to but without `num_buckets` for each text: the same always, but not TensorFlow's.

    Source: tf.strings.to_hash_bucket_fast.
    """
    return _hash_buckets(input, num_buckets, b"")


def to_hash_bucket(input: Tensor, num_buckets: SizeLike, name: str | None = None) -> Tensor:
    """Returns the numbers of `to_hash_bucket_fast`. Source: tf.strings.to_hash_bucket."""
    return _hash_buckets(input, num_buckets, b"")


def to_hash_bucket_strong(input: Tensor, num_buckets: SizeLike, key: Sequence[int], name: str | None = None) -> Tensor:
    """Returns numbers by a key of two integers.

    Source: tf.strings.to_hash_bucket_strong.
    """
    return _hash_buckets(input, num_buckets, b"".join((int(k) % 2**64).to_bytes(8, "little") for k in key))


def _hash_buckets(value: Tensor, num_buckets: SizeLike, key: bytes) -> Any:
    count = dispatch.to_static(num_buckets)
    if count < 1:
        raise ArgumentError(f"num_buckets must be at least 1. Received: {count}.")

    # Python has neither FarmHash nor SipHash. blake2b gives the same on every machine and in every process, which
    # hash() does not.
    def hash_text(text: bytes) -> int:
        return int.from_bytes(hashlib.blake2b(text, digest_size=8, key=key).digest(), "little") % count

    if named.is_text_of_model(value):
        return value.ids(
            lambda words: np.asarray(map_text(hash_text, words, np.int64)),
            dispatch.usable_dtype(dispatch.DEVICE, np.int64),
        )
    return map_text(hash_text, value, np.int64)


named.record_names(globals())
