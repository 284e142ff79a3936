"""Calls with ragged and sparse tensors, each with what TensorFlow 2.15.1 gives for it in composite_expected.json.

The file needs no TensorFlow; whoever has it writes the expected values again by running
`python -m tests.compat.composite_cases` there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

EXPECTED = Path(__file__).with_name("composite_expected.json")


def cases(tf: Any) -> dict[str, Callable[[], Any]]:
    """Returns the calls, of TensorFlow or of this package."""
    ragged, sparse = tf.RaggedTensor, tf.SparseTensor
    r = tf.ragged.constant([[3, 1, 4], [], [5, 9]])
    q = tf.ragged.constant([[[1, 2], [3]], [], [[4, 5, 6]]])
    f = tf.ragged.constant([[1.5, -2.0], [0.25]])
    words = tf.ragged.constant([["a", "b"], ["c"]])
    s = sparse([[0, 1], [1, 0], [1, 2]], [1.0, 2.0, 3.0], [2, 4])
    u = sparse([[1, 2], [0, 1]], [3, 1], [2, 4])
    w = sparse([[0, 0], [1, 1]], [10.0, 20.0], [2, 4])
    slices = tf.IndexedSlices(tf.ones([2, 3]), [0, 2], [4, 3])
    array = tf.TensorArray
    return {
        "to_tensor": lambda: r.to_tensor(-1),
        "to_tensor_nested": lambda: q.to_tensor(),
        "to_tensor_shape": lambda: r.to_tensor(shape=[None, 2]),
        "bounding_shape": lambda: q.bounding_shape(),
        "row_lengths": lambda: q.row_lengths(axis=2),
        "value_rowids": lambda: r.value_rowids(),
        "rows": lambda: r[1:],
        "columns": lambda: r[:, -1:],
        "row_of_row": lambda: q[0, 1],
        "newaxis": lambda: r[..., tf.newaxis],
        "add": lambda: r + 1,
        "multiply": lambda: r * r,
        "broadcast": lambda: r + tf.constant([[10], [20], [30]]),
        "equal": lambda: r == 3,
        "reduce_sum_1": lambda: tf.reduce_sum(r, 1),
        "reduce_sum_0": lambda: tf.reduce_sum(r, axis=0),
        "reduce_sum_all": lambda: tf.reduce_sum(r),
        "reduce_sum_keep": lambda: tf.reduce_sum(r, 1, keepdims=True),
        "reduce_sum_inner": lambda: tf.reduce_sum(q, axis=2),
        "reduce_sum_middle": lambda: tf.reduce_sum(q, axis=1),
        "reduce_mean": lambda: tf.reduce_mean(f, axis=1),
        "reduce_max": lambda: tf.reduce_max(r, axis=1),
        "reduce_any": lambda: tf.reduce_any(r > 3, axis=1),
        "concat_1": lambda: tf.concat([r, [[1], [2], [3]]], axis=1),
        "concat_0": lambda: tf.concat([r, r], axis=0),
        "stack": lambda: tf.stack([r, r]),
        "ragged_stack": lambda: tf.ragged.stack([[1, 2], [3]]),
        "cast": lambda: tf.cast(r, tf.float32),
        "upper": lambda: tf.strings.upper(words),
        "reduce_join": lambda: tf.strings.reduce_join(words, axis=-1, separator=" "),
        "split": lambda: tf.strings.split(["a b", "c"]),
        "to_sparse": lambda: r.to_sparse(),
        "from_padding": lambda: ragged.from_tensor([[1, 2, 0], [3, 0, 0]], padding=0),
        "from_lengths": lambda: ragged.from_tensor([[1, 2, 0], [3, 0, 0]], lengths=[1, 2]),
        "from_starts": lambda: ragged.from_row_starts([1, 2, 3], [0, 2]),
        "from_limits": lambda: ragged.from_row_limits([1, 2, 3], [2, 3]),
        "from_rowids": lambda: ragged.from_value_rowids([1, 2, 3], [0, 2, 2], 4),
        "from_sparse": lambda: ragged.from_sparse(sparse([[0, 0], [0, 1], [2, 0]], [1, 2, 3], [3, 2])),
        "range": lambda: tf.ragged.range([3, 5, 2]),
        "gather": lambda: tf.gather(r, [2, 0]),
        "expand_dims": lambda: tf.expand_dims(r, -1),
        "reverse": lambda: tf.reverse(r, [1]),
        "tile": lambda: tf.tile(r, [1, 2]),
        "where": lambda: tf.where(r > 3),
        "where_3": lambda: tf.where(r > 3, r, -r),
        "softmax": lambda: tf.nn.softmax(f),
        "embedding": lambda: tf.nn.embedding_lookup(tf.eye(10), r),
        "boolean_mask": lambda: tf.ragged.boolean_mask([[1, 2], [3, 4]], [[True, False], [True, True]]),
        "merge_01": lambda: q.merge_dims(0, 1),
        "merge_12": lambda: q.merge_dims(1, 2),
        "map_flat_values": lambda: tf.ragged.map_flat_values(tf.add, r, 1),
        "ones_like": lambda: tf.ones_like(r),
        "to_dense": lambda: tf.sparse.to_dense(s, -1.0),
        "reorder": lambda: tf.sparse.reorder(u),
        "from_dense": lambda: tf.sparse.from_dense([[0, 1], [2, 0]]),
        "from_dense_text": lambda: tf.sparse.from_dense(["", "a"]),
        "slice": lambda: tf.sparse.slice(s, [0, 1], [2, 2]),
        "sparse_concat": lambda: tf.sparse.concat(1, [s, s]),
        "matmul": lambda: tf.sparse.sparse_dense_matmul(s, tf.ones([4, 2])),
        "matmul_adjoint": lambda: tf.sparse.sparse_dense_matmul(s, tf.ones([2, 2]), adjoint_a=True),
        "matmul_dense_first": lambda: tf.sparse.sparse_dense_matmul(tf.ones([3, 2]), s),
        "to_indicator": lambda: tf.sparse.to_indicator(tf.sparse.reorder(u), 5),
        "sparse_expand_dims": lambda: tf.sparse.expand_dims(s, 0),
        "sparse_sum": lambda: tf.sparse.reduce_sum(s, axis=0, keepdims=True),
        "sparse_max": lambda: tf.sparse.reduce_max(s, axis=0),
        "reset_shape": lambda: tf.sparse.reset_shape(s),
        "sparse_reshape": lambda: tf.sparse.reshape(s, [4, -1]),
        "transpose": lambda: tf.sparse.transpose(s),
        "sparse_add": lambda: tf.sparse.add(s, w),
        "sparse_add_dense": lambda: tf.sparse.add(s, tf.ones([2, 4])),
        "maximum": lambda: tf.sparse.maximum(s, w),
        "retain": lambda: tf.sparse.retain(s, [True, False, True]),
        "fill_empty_rows": lambda: tf.sparse.fill_empty_rows(sparse([[1, 1]], [5], [3, 2]), 9)[0],
        "sparse_split": lambda: tf.sparse.split(sp_input=s, num_split=3, axis=1)[0],
        "sparse_softmax": lambda: tf.sparse.softmax(s),
        "sparse_scale": lambda: s * 2.0,
        "sparse_cast": lambda: tf.cast(s, tf.int32),
        "slices": lambda: tf.convert_to_tensor(slices),
        "array_unstack": lambda: array(tf.int32, 2).unstack([1, 2]).stack(),
        "array_scatter": lambda: array(tf.int32, 3).scatter([2, 0, 1], [1, 2, 3]).stack(),
        "array_gather": lambda: array(tf.int32, 3).unstack([1, 2, 3]).gather([2, 0]),
        "array_concat": lambda: array(tf.float32, 2).write(0, [1.0]).write(1, [2.0]).concat(),
        "array_zeros": lambda: array(tf.float32, 2, element_shape=[2]).write(0, [1.0, 1.0]).stack(),
        "array_loop": lambda: tf.while_loop(
            lambda i, _: i < 3,
            lambda i, a: (i + 1, a.write(i, tf.cast(i, tf.float32) * 2.0)),
            (tf.constant(0), array(tf.float32, size=3, element_shape=[])),
        )[1].stack(),
    }


def plain(tf: Any, value: Any) -> Any:
    """Returns a value as what json can hold."""
    if isinstance(value, tf.RaggedTensor):
        return {"ragged": _text(value.to_list()), "splits": [s.numpy().tolist() for s in value.nested_row_splits]}
    if isinstance(value, tf.SparseTensor):
        parts = (value.indices, value.values, value.dense_shape)
        return {"sparse": [_text(p.numpy().tolist()) for p in parts], "dtype": tf.as_dtype(value.dtype).name}
    return {
        "tensor": _text(np.asarray(value).tolist()),
        "dtype": tf.as_dtype(value.dtype).name,
        "shape": list(value.shape),
    }


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return [_text(v) for v in value]
    return value.decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    import tensorflow

    found = {name: plain(tensorflow, case()) for name, case in cases(tensorflow).items()}
    EXPECTED.write_text(json.dumps(found, separators=(",", ":")) + "\n")
