"""Functions of this package for ragged tensors: most compute on the values, and leave the rows as they are."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from lockstep.compat.tensorflow import _composite
from lockstep.compat.tensorflow._dtypes import as_dtype
from lockstep.compat.tensorflow._ops import (
    activations,
    arrays,
    elementwise,
    indexing,
    segments,
    special,
)
from lockstep.compat.tensorflow._ragged_reduce import axis_of, reduce_ragged
from lockstep.compat.tensorflow._ragged_rows import take_rows
from lockstep.compat.tensorflow._ragged_tensor import RaggedTensor
from lockstep.compat.tensorflow._tensor import as_host, constant_array
from lockstep.compat.tensorflow._types import Argument
from lockstep.errors import ArgumentError, UnsupportedError

# Functions of each element by itself, by their names.
_STRINGS = (
    "as_string",
    "length",
    "lower",
    "upper",
    "regex_full_match",
    "regex_replace",
    "strip",
    "substr",
    "to_hash_bucket",
)
_BY_VALUE = {
    *elementwise.__all__,
    *special.__all__,
    *("cast", "identity", "ones_like", "zeros_like", "stop_gradient", "one_hot", "clip_by_value", "bitcast"),
    *("relu", "relu6", "elu", "selu", "gelu", "silu", "swish", "leaky_relu", "dropout", "embedding_lookup", "ceil"),
    *(
        *_STRINGS,
        "to_hash_bucket",
        "to_hash_bucket_fast",
        "to_hash_bucket_strong",
        "to_number",
        "unicode_transcode",
        "check_numerics",
    ),
    *("adjust_brightness", "floordiv", "floormod", "squared_difference", "is_nan", "is_finite", "where"),
}
# Functions that take ragged tensors themselves.
_OWN = {
    *("bytes_split", "ngrams", "unicode_decode", "unicode_decode_with_offsets", "unicode_encode", "unicode_split"),
    "unicode_split_with_offsets",
}


def map_values(function: Callable[..., Any], *args: Argument, **kwargs: Argument) -> Any:
    """Returns a ragged tensor of what a function makes of the flat values of its ragged arguments.

    Other arguments are passed as they are; a tensor with a row or element for each row is repeated along it.
    """
    ragged = [a for a in (*args, *kwargs.values()) if isinstance(a, RaggedTensor)]
    first = ragged[0]
    for other in ragged[1:]:
        same = len(other.nested_row_splits) == len(first.nested_row_splits) and all(
            np.array_equal(a, b) for a, b in zip(first.nested_row_splits, other.nested_row_splits, strict=True)
        )
        if not same:
            raise ArgumentError(
                "Ragged tensors that are computed with together must have the same lengths of rows. Received: "
                f"{[s.numpy().tolist() for s in first.nested_row_splits]} and "
                f"{[s.numpy().tolist() for s in other.nested_row_splits]}."
            )

    def flat(value: Any) -> Any:
        return value.flat_values if isinstance(value, RaggedTensor) else value

    result = function(*map(flat, args), **{k: flat(v) for k, v in kwargs.items()})
    return first.with_flat_values(result)


def _broadcast(first: RaggedTensor, value: Any) -> Any:
    """Returns a dense operand with an element for each flat value of a ragged one; a single value as it is."""
    if isinstance(value, RaggedTensor) or np.ndim(value) == 0:
        return value
    dense = value if hasattr(value, "ndim") else constant_array(value)
    if dense.ndim < first.rank:
        # An inner dimension of one size: as usual.
        if dense.ndim <= first.rank - 1 - first.ragged_rank:
            return dense
        raise ArgumentError(
            f"A tensor beside a ragged one of {first.rank} dimensions must have as many, of size 1 where it is "
            f"repeated. Received shape {tuple(dense.shape)}."
        )
    shape = [int(s) for s in first.bounding_shape().numpy()]
    wide = np.broadcast_to(dense, np.broadcast_shapes(tuple(dense.shape), (*shape[: dense.ndim],)))
    if tuple(wide.shape[: first.rank]) != tuple(shape):
        raise ArgumentError(f"A tensor beside a ragged one must fit its shape {first.shape}. Received {dense.shape}.")
    place = first.with_flat_values(np.arange(int(np.shape(first.flat_values)[0])))
    index = place.to_sparse().indices.numpy()
    return wide[tuple(index.T)]


def _concat(values: Any, axis: Any, name: str | None = None) -> Any:
    parts = [v if isinstance(v, RaggedTensor) else _as_ragged(v) for v in values]
    one = axis_of(parts[0], axis)
    return concat_ragged(parts, one)


def _as_ragged(value: Any) -> RaggedTensor:
    return value if isinstance(value, RaggedTensor) else RaggedTensor.from_tensor(value)


def concat_ragged(parts: list[RaggedTensor], axis: int) -> RaggedTensor:
    """Returns ragged tensors one after another along an axis."""
    depth = max(p.ragged_rank for p in parts)
    if any(p.ragged_rank < depth for p in parts):
        parts = [p if p.ragged_rank == depth else _deepen(p, depth) for p in parts]
    stacked = [p.values for p in parts]
    if axis <= 1:
        is_ragged = isinstance(stacked[0], RaggedTensor)
        values = concat_ragged(stacked, 0) if is_ragged else arrays.concat(stacked, 0)  # pyright: ignore[reportArgumentType]
        lengths = np.concatenate([np.diff(p.row_splits.numpy()) for p in parts])
        together = RaggedTensor.from_row_lengths(values, lengths)
        if axis == 0:
            return together
        counts = {int(p.nrows()) for p in parts}
        if len(counts) > 1:
            raise ArgumentError(f"Tensors that are joined along rows must have as many. Received: {sorted(counts)}.")
        rows = counts.pop()
        # Row 0 of all, then row 1 of all; and the splits between them are left out.
        order = np.arange(rows * len(parts)).reshape(len(parts), rows).T.reshape(-1)
        mixed = take_rows(together, order)
        return RaggedTensor(mixed.values, mixed.row_splits.numpy()[:: len(parts)])
    inner = [v if isinstance(v, RaggedTensor) else None for v in stacked]
    if None in inner:
        return parts[0].with_values(arrays.concat(stacked, axis - 1))
    return parts[0].with_values(concat_ragged(inner, axis - 1))  # pyright: ignore[reportArgumentType]


def _deepen(ragged: RaggedTensor, depth: int) -> RaggedTensor:
    values = ragged.values
    if isinstance(values, RaggedTensor):
        return ragged.with_values(_deepen(values, depth - 1))
    return ragged.with_values(RaggedTensor.from_tensor(values, ragged_rank=depth - 1))


def stack_ragged(values: Any, axis: int = 0) -> RaggedTensor:
    """Returns tensors, of any lengths, as rows of one ragged tensor. Source: tf.ragged.stack."""
    tensors = [v if isinstance(v, RaggedTensor) else as_host(constant_array(v)) for v in values]
    ranks = {len(t.shape) for t in tensors}
    if len(ranks) > 1:
        raise ArgumentError(f"Tensors that are stacked must have as many dimensions. Received: {sorted(ranks)}.")
    rank = ranks.pop()
    axis = axis + rank + 1 if axis < 0 else axis
    if axis == 0:
        counts = [int(t.shape[0]) if rank else 1 for t in tensors]
        if rank == 0:
            return arrays.stack(tensors)
        joined = arrays.concat(tensors, 0) if rank == 1 else _concat(tensors, 0)
        return RaggedTensor.from_row_lengths(joined, counts)
    return _concat([_expand(_as_ragged(t) if rank > 1 else t, axis) for t in tensors], axis)


def _expand(value: Any, axis: Any, name: str | None = None) -> Any:
    if not isinstance(value, RaggedTensor):
        return arrays.expand_dims(value, axis)
    number = int(axis)
    number = number + value.rank + 1 if number < 0 else number
    if number == 0:
        return RaggedTensor(value, [0, int(value.nrows())], int(value.nrows()))
    if number == 1:
        return RaggedTensor(value, np.arange(int(value.nrows()) + 1), 1)
    return value.with_values(_expand(value.values, number - 1))


def _gather(
    params: Any, indices: Any, validate_indices: Any = None, axis: Any = None, batch_dims: int = 0, **_: Any
) -> Any:
    if axis not in (None, 0) or batch_dims:
        raise UnsupportedError(
            "tf.gather takes rows of ragged tensors: axis=0 and batch_dims=0. Use to_tensor() first."
        )
    if isinstance(indices, RaggedTensor):
        return indices.with_flat_values(_gather(params, indices.flat_values))
    if not isinstance(params, RaggedTensor):
        return indexing.gather(params, indices)
    rows = np.asarray(constant_array(indices))
    if rows.ndim == 0:
        return params[int(rows)]
    chosen = take_rows(params, rows.reshape(-1))
    return chosen if rows.ndim == 1 else RaggedTensor.from_uniform_row_length(chosen, rows.shape[-1])


def _reverse(tensor: RaggedTensor, axis: Any, name: str | None = None) -> RaggedTensor:
    for one in sorted(axis_of(tensor, a) for a in np.ravel(axis)):
        if one == 0:
            tensor = take_rows(tensor, np.arange(int(tensor.nrows()))[::-1])
        elif one == 1:
            tensor = tensor[:, ::-1]
        elif isinstance(tensor.values, RaggedTensor):
            tensor = tensor.with_values(_reverse(tensor.values, [one - 1]))
        else:
            tensor = tensor.with_values(arrays.reverse(tensor.values, [one - 1]))
    return tensor


def _tile(input: RaggedTensor, multiples: Any, name: str | None = None) -> RaggedTensor:
    for axis, count in enumerate(np.asarray(constant_array(multiples)).tolist()):
        input = concat_ragged([input] * count, axis) if count != 1 else input
    return input


def _where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Any:
    if x is None:
        places = condition.to_sparse().indices.numpy()
        return as_host(places[np.asarray(condition.flat_values).reshape(-1)])
    first = next(v for v in (condition, x, y) if isinstance(v, RaggedTensor))
    return map_values(indexing.where, condition, _broadcast(first, x), _broadcast(first, y))


def _softmax(logits: RaggedTensor, axis: int = -1, name: str | None = None) -> RaggedTensor:
    if axis_of(logits, axis) != 1 or logits.ragged_rank != 1:
        return map_values(lambda values: activations.softmax(values, axis), logits)
    rows, count = logits.value_rowids(), int(logits.nrows())
    top = indexing.gather(segments.unsorted_segment_max(logits.values, rows, count), rows)
    powers = elementwise.exp(logits.values - top)
    return logits.with_values(powers / indexing.gather(segments.unsorted_segment_sum(powers, rows, count), rows))


def _reduce_join(
    join: Callable[..., Any],
    inputs: RaggedTensor,
    axis: Any = None,
    keepdims: bool = False,
    separator: Any = "",
    name: str | None = None,
) -> Any:
    if axis is None:
        return join(inputs.flat_values, None, keepdims, separator)
    if axis_of(inputs, axis) > 1:
        inner = _reduce_join(join, _as_ragged(inputs.values), axis_of(inputs, axis) - 1, separator=separator)
        return inputs.with_values(inner)
    return arrays.stack([join(row, 0, separator=separator) for row in inputs])


def _size(input: RaggedTensor, out_type: Any = "int32", name: str | None = None) -> Any:
    return as_host(np.asarray(np.size(input.flat_values), as_dtype(out_type).dtype))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "concat": _concat,
    "stack": lambda values, axis=0, name=None: stack_ragged(values, axis),
    "expand_dims": _expand,
    "gather": _gather,
    "reverse": _reverse,
    "tile": _tile,
    "where": _where,
    "softmax": _softmax,
    "size": _size,
    "rank": lambda input, name=None: as_host(np.int32(input.rank)),
    "shape": lambda input, out_type="int64", name=None: input.bounding_shape(out_type=out_type),
    "type_spec_from_value": lambda value: value.spec,
    "convert_to_tensor": lambda value, *_, **__: value,
    "identity": lambda input, name=None: input,
    "squeeze": lambda input, axis=None, name=None: input[0] if axis in (0, [0], (0,)) else input.to_tensor(),
}


def compute(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Computes a function of this package for ragged arguments."""
    if name in _FUNCTIONS:
        return _FUNCTIONS[name](*args, **kwargs)
    if name in _OWN:
        # Without what asks for this function again.
        return inspect.unwrap(function)(*args, **kwargs)
    if name == "reduce_join":
        return _reduce_join(function, *args, **kwargs)
    if name.startswith("reduce_"):
        given = dict(zip(("input_tensor", "axis", "keepdims"), args, strict=False)) | kwargs
        return reduce_ragged(name, function, given["input_tensor"], given.get("axis"), given.get("keepdims", False))
    if name in _BY_VALUE:
        first = next(a for a in (*args, *kwargs.values()) if isinstance(a, RaggedTensor))
        is_binary = len(args) == 2 and name in elementwise.__all__ and name not in ("saturate_cast",)
        if is_binary:
            args = tuple(_broadcast(first, a) for a in args)
        return map_values(function, *args, **kwargs)
    raise UnsupportedError(
        f"tf.{name} does not compute with ragged tensors here. Convert them with to_tensor(), or apply it to the "
        "values with tf.ragged.map_flat_values."
    )


_composite.handlers[RaggedTensor] = compute

_OPERATORS = {
    "add": elementwise.add,
    "sub": elementwise.subtract,
    "mul": elementwise.multiply,
    "pow": elementwise.pow,
    "truediv": elementwise.truediv,
    "floordiv": special.floordiv,
    "mod": elementwise.mod,
    "lt": elementwise.less,
    "le": elementwise.less_equal,
    "gt": elementwise.greater,
    "ge": elementwise.greater_equal,
    "eq": elementwise.equal,
    "ne": elementwise.not_equal,
    "and": elementwise.logical_and,
    "or": elementwise.logical_or,
    "xor": elementwise.logical_xor,
}


def _operator(function: Callable[..., Any], reflected: bool) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        return function(other, self) if reflected else function(self, other)

    method.__doc__ = "Computes it element by element."
    return method


for _name, _function in _OPERATORS.items():
    setattr(RaggedTensor, f"__{_name}__", _operator(_function, reflected=False))
    if _name not in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(RaggedTensor, f"__r{_name}__", _operator(_function, reflected=True))
for _name, _function in {
    "neg": elementwise.negative,
    "abs": elementwise.abs,
    "invert": elementwise.logical_not,
}.items():
    setattr(RaggedTensor, f"__{_name}__", lambda self, function=_function: function(self))
