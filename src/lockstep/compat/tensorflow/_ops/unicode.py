"""Functions of text as characters: code points, and text in several encodings."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._ops.strings import map_text, to_bytes
from lockstep.compat.tensorflow._tensor import as_host, constant_array, to_text
from lockstep.errors import ArgumentError

__all__ = ["bytes_split", "unicode_decode", "unicode_decode_with_offsets", "unicode_encode", "unicode_split"]
__all__ += ["unicode_split_with_offsets", "unicode_transcode"]

# A character, and the byte of the text at which it begins.
_Character = tuple[int, int]
_OUTPUTS = ("UTF-8", "UTF-16-BE", "UTF-32-BE")
_ERRORS = ("strict", "replace", "ignore")


def unicode_decode(
    input: Tensor,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> Tensor:
    """Returns the code points of text, as int32, in one more dimension, of rows of different lengths.

    Args:
        input: Text of any shape.
        input_encoding: Its encoding: one of Python's, such as "UTF-8" or "latin-1".
        errors: What happens to bytes that are no text: "strict" raises an error, "replace" puts `replacement_char` into
            their place, and "ignore" leaves them out.
        replacement_char: A code point.
        replace_control_characters: Whether characters below 32 are treated as such bytes.
        name: Its name in a model_fn.

    Raises:
        ArgumentError: If an option is none of these, or `errors` is "strict" and a text is not of the encoding.

    Source: tf.strings.unicode_decode.
    """
    decode = _decoder(input_encoding, errors, replacement_char, replace_control_characters)
    return _in_rows(input, lambda text: np.array([point for point, _ in decode(text)], np.int32))


def unicode_decode_with_offsets(
    input: Tensor,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns code points as `unicode_decode`, and the byte at which each begins, as int64.

    Source: tf.strings.unicode_decode_with_offsets.
    """
    decode = _decoder(input_encoding, errors, replacement_char, replace_control_characters)
    points = _in_rows(input, lambda text: np.array([point for point, _ in decode(text)], np.int32))
    return points, _offsets(input, decode)


def unicode_split(
    input: Tensor,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    name: str | None = None,
) -> Tensor:
    """Splits text into its characters, each in the same encoding; arguments as of `unicode_decode`.

    Source: tf.strings.unicode_split.
    """
    decode = _decoder(input_encoding, errors, replacement_char)
    return _in_rows(input, lambda text: _encode(decode(text), input_encoding))


def unicode_split_with_offsets(
    input: Tensor,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns characters as `unicode_split`, and the byte at which each begins, as int64.

    Source: tf.strings.unicode_split_with_offsets.
    """
    decode = _decoder(input_encoding, errors, replacement_char)
    return _in_rows(input, lambda text: _encode(decode(text), input_encoding)), _offsets(input, decode)


def unicode_encode(
    input: Tensor,
    output_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    name: str | None = None,
) -> Tensor:
    """Joins code points along the last dimension to text.

    Args:
        input: Integers of at least one dimension, or a ragged tensor of them.
        output_encoding: "UTF-8", "UTF-16-BE" or "UTF-32-BE".
        errors: What happens to numbers that are no code points, as of `unicode_decode`.
        replacement_char: A code point.
        name: Its name in a model_fn.

    Source: tf.strings.unicode_encode.
    """
    codec = _output(output_encoding)
    handle = _handler(errors, replacement_char)

    def join(points: Sequence[int]) -> bytes:
        known = [p if _is_character(p) else handle(f"{p} is no code point") for p in points]
        return "".join(chr(p) for p in known if p is not None).encode(codec)

    return _join_points(input, join)


def _join_points(points: Any, join: Callable[[Sequence[int]], bytes]) -> Any:
    if type(points).__name__ == "RaggedTensor":
        if points.rank > 2:
            return points.with_values(_join_points(points.values, join))
        return as_host(to_text([join(row) for row in points.to_list()]).reshape(-1))
    array = constant_array(points)
    if not array.ndim:
        raise ArgumentError("unicode_encode takes code points in at least one dimension. Received one number.")
    joined = [join(row) for row in array.reshape(-1, array.shape[-1]).tolist()]
    return as_host(to_text(joined).reshape(array.shape[:-1]))


def unicode_transcode(
    input: Tensor,
    input_encoding: str,
    output_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> Tensor:
    """Changes the encoding of text, to one that `unicode_encode` has; other arguments as of `unicode_decode`.

    Source: tf.strings.unicode_transcode.
    """
    decode = _decoder(input_encoding, errors, replacement_char, replace_control_characters)
    codec = _output(output_encoding)
    return map_text(lambda text: "".join(chr(point) for point, _ in decode(text)).encode(codec), input)


def bytes_split(input: Tensor, name: str | None = None) -> Tensor:
    """Splits text into its bytes, in one more dimension, of rows of different lengths.

    Source: tf.strings.bytes_split.
    """
    return _in_rows(input, lambda text: to_text([text[i : i + 1] for i in range(len(text))]).reshape(-1))


def _output(encoding: str) -> str:
    if encoding not in _OUTPUTS:
        raise ArgumentError(f"The output encoding must be one of {', '.join(_OUTPUTS)}. Received: {encoding!r}.")
    return encoding


def _is_character(point: int) -> bool:
    # Surrogates are halves of characters of UTF-16.
    return 0 <= point < 0x110000 and not 0xD800 <= point < 0xE000


def _handler(errors: str, replacement: int) -> Callable[[str], int | None]:
    """Returns what gives the code point for something that is none, or `None` to leave it out."""
    if errors not in _ERRORS:
        raise ArgumentError(f"errors must be one of {', '.join(_ERRORS)}. Received: {errors!r}.")
    if not _is_character(int(replacement)):
        raise ArgumentError(f"replacement_char must be a code point of Unicode. Received: {replacement!r}.")

    def handle(what: str) -> int | None:
        if errors == "strict":
            raise ArgumentError(f'With errors="strict" all text must be of its encoding. Received: {what}.')
        return int(replacement) if errors == "replace" else None

    return handle


def _decoder(
    encoding: str, errors: str, replacement: int, replace_controls: bool = False
) -> Callable[[bytes], list[_Character]]:
    try:
        codec = codecs.lookup(encoding).name
    except LookupError:
        raise ArgumentError(f"The encoding must be one that Python has. Received: {encoding!r}.") from None
    handle = _handler(errors, replacement)

    def decode(text: bytes) -> list[_Character]:
        found: list[tuple[int | None, int]] = []
        at = 0
        while at < len(text):
            try:
                good, bad = text[at:].decode(codec), 0
            except UnicodeDecodeError as error:
                # Up to the first bytes that are no text, of which one character stands for as many as could begin one.
                good, bad = text[at : at + error.start].decode(codec), error.end - error.start
            for character in good:
                is_control = replace_controls and ord(character) < 32
                found.append((handle("a control character") if is_control else ord(character), at))
                at += len(character.encode(codec))
            if bad:
                found.append((handle(repr(text[at : at + bad])), at))
                at += bad
        return [(point, offset) for point, offset in found if point is not None]

    return decode


def _encode(characters: list[_Character], encoding: str) -> np.ndarray[Any, Any]:
    return to_text([chr(point).encode(encoding, "replace") for point, _ in characters]).reshape(-1)


def _offsets(input: Tensor, decode: Callable[[bytes], list[_Character]]) -> Any:
    return _in_rows(input, lambda text: np.array([offset for _, offset in decode(text)], np.int64))


def _in_rows(input: Tensor, split: Callable[[bytes], np.ndarray[Any, Any]]) -> Any:
    """Returns what a function makes of each text, as a row: a tensor for one text, else a ragged one."""
    if type(input).__name__ == "RaggedTensor":
        return input.with_flat_values(_in_rows(input.flat_values, split))
    texts = to_bytes(input)
    rows = [split(text) for text in texts.ravel()]
    if texts.ndim == 0:
        return as_host(rows[0])
    return rows_of(rows, texts.shape)


def rows_of(rows: Sequence[np.ndarray[Any, Any]], shape: tuple[int, ...]) -> Any:
    """Returns arrays of one dimension as the rows of a ragged tensor, with the dimensions `shape` before."""
    # Imported here: the module computes with this one.
    from lockstep.compat.tensorflow._composite_elements import RaggedTensor

    flat = np.concatenate(rows) if rows else np.zeros(0, np.int32)
    result = RaggedTensor.from_row_lengths(dispatch.give_exact(dispatch.HOST, flat), [len(row) for row in rows])
    for size in reversed(shape[1:]):
        result = RaggedTensor.from_uniform_row_length(result, size)
    return result


named.record_names(globals())
