"""Calls with text and sets, each with what TensorFlow 2.15.1 gives for it in text_expected.json.

The file needs no TensorFlow; whoever has it writes the expected values again by running
`python -m tests.compat.text_cases` there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.compat.composite_cases import plain

EXPECTED = Path(__file__).with_name("text_expected.json")


def cases(tf: Any) -> dict[str, Callable[[], Any]]:
    """Returns the calls, of TensorFlow or of this package."""
    s, sets, ragged = tf.strings, tf.sets, tf.ragged.constant
    broken = b"a\xff\xe4\xbd\xe5\xa5\xbdb\xf0\x9f\x98"
    controls = b"a\nb\x7f\xc2\x85"
    matrix = [["héllo", "x"], ["日本", ""]]
    dense, other = [[1, 2, 2, 5], [1, 1, 1, 1]], [[2, 5, 7], [3, 4, 4]]
    return {
        "decode": lambda: s.unicode_decode(broken, "UTF-8"),
        "decode_with_offsets": lambda: s.unicode_decode_with_offsets(broken, "UTF-8"),
        "decode_ignore": lambda: s.unicode_decode(broken, "UTF-8", errors="ignore"),
        "decode_replacement": lambda: s.unicode_decode(broken, "UTF-8", replacement_char=32),
        "decode_controls": lambda: s.unicode_decode(controls, "UTF-8", replace_control_characters=True),
        "decode_controls_ignore": lambda: s.unicode_decode(controls, "UTF-8", "ignore", 65533, True),
        "decode_latin": lambda: s.unicode_decode(b"\xe9", "ISO-8859-1"),
        "decode_japanese": lambda: s.unicode_decode("日".encode("shift_jis"), "SHIFT-JIS"),
        "decode_ragged": lambda: s.unicode_decode(ragged([["aé"], [], ["b", "日"]]), "UTF-8"),
        "decode_utf16": lambda: s.unicode_decode_with_offsets("aé😀".encode("utf-16-be"), "UTF-16-BE"),
        "split": lambda: s.unicode_split(matrix, "UTF-8"),
        "split_one": lambda: s.unicode_split("héllo", "UTF-8"),
        "split_broken": lambda: s.unicode_split(b"a\xffb", "UTF-8"),
        "split_with_offsets": lambda: s.unicode_split_with_offsets(["héllo", "日本"], "UTF-8"),
        "encode": lambda: s.unicode_encode([[72, 20320], [88, 99]], "UTF-8"),
        "encode_utf32": lambda: s.unicode_encode([72, 99], "UTF-32-BE"),
        "encode_ragged": lambda: s.unicode_encode(ragged([[72, 20320], [88]]), "UTF-8"),
        "encode_rows": lambda: s.unicode_encode(ragged([[[72, 20320], [88]], [], [[99]]]), "UTF-8"),
        "encode_no_characters": lambda: s.unicode_encode([72, 0x110000, 0xD800], "UTF-8"),
        "encode_ignore": lambda: s.unicode_encode([72, 0x110000], "UTF-8", errors="ignore"),
        "transcode_ignore": lambda: s.unicode_transcode(b"a\xff", "UTF-8", "UTF-8", errors="ignore"),
        "transcode_replacement": lambda: s.unicode_transcode(b"a\xff", "UTF-8", "UTF-8", replacement_char=33),
        "transcode_controls": lambda: s.unicode_transcode("a\x1fé", "UTF-8", "UTF-8", "replace", 33, True),
        "transcode_latin": lambda: s.unicode_transcode(b"\xe9", "latin1", "UTF-8"),
        "bytes": lambda: s.bytes_split(["abc", ""]),
        "bytes_ragged": lambda: s.bytes_split(ragged([["ab"], []])),
        "ngrams": lambda: s.ngrams(["a", "b", "c"], 2),
        "ngrams_widths": lambda: s.ngrams(["a", "b", "c"], (1, 3), "|", pad_values=("<", ">")),
        "ngrams_short": lambda: s.ngrams([["a", "b"]], 3, preserve_short_sequences=True),
        "ngrams_short_padded": lambda: s.ngrams(
            ["a"], 5, pad_values="p", padding_width=1, preserve_short_sequences=True
        ),
        "ngrams_ragged": lambda: s.ngrams(ragged([["a", "b", "c"], ["d"], []]), 2),
        "ngrams_padded": lambda: s.ngrams(["a", "b"], 5, pad_values="p"),
        "ngrams_padding_width": lambda: s.ngrams(["a", "b", "c"], 3, pad_values="p", padding_width=1),
        "segment_join": lambda: s.unsorted_segment_join(["a", "b", "c"], [1, 0, 1], 3, "-"),
        "segment_join_rows": lambda: s.unsorted_segment_join([["a", "x"], ["b", "y"], ["c", "z"]], [1, 0, 1], 2, "-"),
        "intersection": lambda: sets.intersection([[1, 2, 2, 5]], [[2, 5, 7, 9]]),
        "intersection_groups": lambda: sets.intersection([[[1, 2], [3, 4]]], [[[1], [5]]]),
        "difference": lambda: sets.difference(dense, other),
        "difference_back": lambda: sets.difference(dense, other, aminusb=False),
        "union_text": lambda: sets.union([["a", "b"]], tf.sparse.from_dense([["c", "a", ""]])),
        "union_sparse": lambda: sets.union(
            tf.sparse.from_dense([[0, 3], [1, 0]]), tf.sparse.from_dense([[3, 4], [0, 0]])
        ),
        "set_size": lambda: sets.size(tf.sparse.from_dense([[1, 1, 2], [0, 0, 3]])),
    }


def written(tf: Any, value: Any) -> Any:
    """Returns a value, or several, as what json can hold."""
    if isinstance(value, (tuple, list)):
        return [written(tf, part) for part in value]
    return plain(tf, value)


if __name__ == "__main__":
    import tensorflow

    found = {name: written(tensorflow, case()) for name, case in cases(tensorflow).items()}
    EXPECTED.write_text(json.dumps(found, separators=(",", ":")) + "\n")
