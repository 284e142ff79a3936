"""tf.compat.v1.sparse_to_dense."""

from __future__ import annotations

from lockstep._types import Tensor
from lockstep.compat.tensorflow._ops.arrays import broadcast_to, reshape
from lockstep.compat.tensorflow._ops.create import convert_to_tensor, fill
from lockstep.compat.tensorflow._ops.indexing import tensor_scatter_nd_update
from lockstep.compat.tensorflow._types import ShapeLike

__all__ = ["sparse_to_dense"]


def sparse_to_dense(
    sparse_indices: Tensor,
    output_shape: ShapeLike,
    sparse_values: Tensor,
    default_value: Tensor = 0,
    validate_indices: bool = True,
    name: str | None = None,
) -> Tensor:
    """Returns a tensor with values at some places.

    Args:
        sparse_indices: The places: (n, dimensions); (n,) of a vector; one number for a single place of it.
        output_shape: The shape of the result.
        sparse_values: A value for each place, or one for all.
        default_value: What stands elsewhere.
        validate_indices: Either: places need no order, and the last of several values at one counts.
        name: Accepted for TensorFlow's signature.

    Source: tf.compat.v1.sparse_to_dense.
    """
    values = convert_to_tensor(sparse_values)
    places = convert_to_tensor(sparse_indices)
    rank = len(places.shape)
    places = reshape(places, [1, 1] if rank == 0 else [-1, 1]) if rank < 2 else places
    default = convert_to_tensor(default_value, values.dtype)
    return tensor_scatter_nd_update(fill(output_shape, default), places, broadcast_to(values, [places.shape[0]]))
