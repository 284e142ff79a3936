"""tf.TensorArray: a list of tensors of one type, also in loops that JAX compiles."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lockstep._types import Tensor
from lockstep.compat.tensorflow._dtypes import as_dtype
from lockstep.compat.tensorflow._ops import arrays, create, dispatch, indexing
from lockstep.compat.tensorflow._shape import TensorShape
from lockstep.compat.tensorflow._spec import TypeSpec
from lockstep.compat.tensorflow._tensor import as_host
from lockstep.compat.tensorflow._types import DTypeLike, ShapeLike
from lockstep.errors import ArgumentError, UnsupportedError

__all__ = ["TensorArray", "TensorArraySpec"]


@jax.tree_util.register_pytree_node_class
class TensorArray:
    """Tensors by number. `write` returns the array with the tensor in it, as in TensorFlow.

    Where numbers are known it is a list. In `tf.while_loop` and other code where JAX computes the number, the elements
    are one tensor: then `size` must be known, and `element_shape` or an element before the loop.

    Source: tf.TensorArray.
    """

    def __init__(
        self,
        dtype: DTypeLike,
        size: Any = None,
        dynamic_size: bool | None = None,
        clear_after_read: bool | None = None,
        tensor_array_name: str | None = None,
        handle: object = None,
        flow: object = None,
        infer_shape: bool = True,
        element_shape: ShapeLike = None,
        colocate_with_first_write_call: bool = True,
        name: str | None = None,
    ) -> None:
        """Creates an array of `size` elements; with `dynamic_size` it grows.

        `clear_after_read` frees memory in TensorFlow; here Python does.
        """
        self._dtype, self._grows = as_dtype(dtype), bool(dynamic_size)
        self.element_shape = TensorShape(element_shape)
        self._items: list[Any] = [None] * int(0 if size is None else dispatch.to_static(size))
        # Elements as one tensor, once a number is computed by JAX.
        self._stacked: Any = None

    @property
    def dtype(self) -> Any:
        """The type of the elements."""
        return self._dtype

    @property
    def dynamic_size(self) -> bool:
        """Returns whether it grows."""
        return self._grows

    @property
    def flow(self) -> Any:
        """A number that nothing depends on."""
        return as_host(np.float32(0))

    @property
    def handle(self) -> None:
        """None: there is no resource behind it."""
        return None

    def identity(self) -> TensorArray:
        """Returns the array."""
        return self

    grad = mark_used = identity

    def size(self, name: str | None = None) -> Any:
        """Returns the number of elements."""
        return as_host(np.int32(self._count()))

    def _count(self) -> int:
        return len(self._items)

    def _copy(self) -> TensorArray:
        other = TensorArray(self._dtype, 0, self._grows, element_shape=self.element_shape)
        other._items, other._stacked = list(self._items), self._stacked
        return other

    def write(self, index: Any, value: Tensor, name: str | None = None) -> TensorArray:
        """Returns the array with an element set.

        Raises:
            ArgumentError: If the number is outside of the array, which does not grow, or the element does not fit.
        """
        # Whatever holds the old array sees the element, too, as in TensorFlow's eager arrays.
        tensor = create.cast(create.convert_to_tensor(value), self._dtype)
        shape = TensorShape(tensor.shape)
        if not self.element_shape.is_compatible_with(shape):
            raise ArgumentError(f"Elements must have shape {self.element_shape}. Received: {shape}.")
        self.element_shape = self.element_shape.merge_with(shape)
        if isinstance(index, Tracer) or self._stacked is not None:
            result = self._copy()
            result._stacked = jnp.asarray(self._whole()).at[index].set(tensor)
            return result
        number = int(index)
        if number < 0 or (number >= len(self._items) and not self._grows):
            raise ArgumentError(f"The array has {len(self._items)} elements. Received the number {number}.")
        self._items += [None] * (number + 1 - len(self._items))
        self._items[number] = tensor
        return self

    def read(self, index: Any, name: str | None = None) -> Any:
        """Returns an element."""
        if isinstance(index, Tracer) or self._stacked is not None:
            return jnp.asarray(self._whole())[index]
        number = int(index)
        if not 0 <= number < len(self._items):
            raise ArgumentError(f"The array has {len(self._items)} elements. Received the number {number}.")
        return self._items[number] if self._items[number] is not None else self._zero()

    def _zero(self) -> Any:
        if not self.element_shape.is_fully_defined():
            raise ArgumentError(
                "An element that was never written has a value of zeros if its shape is known. Give element_shape=, or "
                "write all elements."
            )
        return create.zeros(tuple(self.element_shape), self._dtype)

    def _whole(self) -> Any:
        if self._stacked is not None:
            return self._stacked
        if not self._items and not self.element_shape.is_fully_defined():
            return create.zeros([0, *(0 if s is None else s for s in self.element_shape[1:])], self._dtype)
        items = [self._zero() if item is None else item for item in self._items]
        if not items:
            return create.zeros([0, *self.element_shape], self._dtype)
        return arrays.stack(items)

    def stack(self, name: str | None = None) -> Any:
        """Returns all elements as one tensor, (size, ...)."""
        return self._whole()

    def concat(self, name: str | None = None) -> Any:
        """Returns all elements one after another."""
        items = self._items if self._stacked is None else list(self._stacked)
        return arrays.concat([self._zero() if item is None else item for item in items], 0)

    def gather(self, indices: Tensor, name: str | None = None) -> Any:
        """Returns the elements of these numbers as one tensor."""
        return indexing.gather(self._whole(), indices)

    def unstack(self, value: Tensor, name: str | None = None) -> TensorArray:
        """Returns an array of the rows of a tensor."""
        rows = create.cast(create.convert_to_tensor(value), self._dtype)
        if int(rows.shape[0]) > len(self._items) and not self._grows and self._items:
            raise ArgumentError(f"The array has {len(self._items)} elements. Received {int(rows.shape[0])} rows.")
        result = self._copy()
        result._items, result._stacked = list(rows), None
        result.element_shape = TensorShape(rows.shape[1:])
        return result

    def scatter(self, indices: Tensor, value: Tensor, name: str | None = None) -> TensorArray:
        """Returns the array with the rows of a tensor set at these numbers."""
        result = self
        for number, row in zip(np.asarray(indices).tolist(), create.convert_to_tensor(value), strict=True):
            result = result.write(number, row)
        return result

    def split(self, value: Tensor, lengths: Tensor, name: str | None = None) -> TensorArray:
        """Returns an array of parts of a tensor, of these lengths."""
        rows, result, first = create.convert_to_tensor(value), self._copy(), 0
        for number, length in enumerate(np.asarray(lengths).tolist()):
            result = result.write(number, rows[first : first + length])
            first += length
        return result

    def close(self, name: str | None = None) -> None:
        """Drops the elements."""
        self._items = [None] * len(self._items)

    def tree_flatten(self) -> tuple[Any, Any]:
        """Returns the elements as one tensor, which loops of JAX carry along."""
        is_written = bool(self._items) and all(item is not None for item in self._items)
        if self._stacked is None and not is_written and not self.element_shape.is_fully_defined():
            raise UnsupportedError(
                "JAX compiles a loop for elements of a known shape. Give the TensorArray its element_shape=, or write "
                "an element before the loop."
            )
        # JAX's trees also hold stand-ins for arrays, which stay as they are.
        whole = jnp.asarray(self._whole()) if self._stacked is None else self._stacked
        return (whole,), (self._dtype, tuple(self.element_shape), self._count())

    @classmethod
    def tree_unflatten(cls, fixed: Any, parts: Any) -> TensorArray:
        """Returns the array of what `tree_flatten` gives."""
        dtype, shape, count = fixed
        array = cls(dtype, count, element_shape=shape)
        (array._stacked,) = parts
        return array


class TensorArraySpec(TypeSpec):
    """The type of a TensorArray. Source: tf.TensorArraySpec."""

    def __init__(
        self,
        element_shape: ShapeLike = None,
        dtype: DTypeLike = "float32",
        dynamic_size: bool = False,
        infer_shape: bool = True,
    ) -> None:
        """Creates a spec."""
        self.shape, self.dtype = TensorShape(element_shape), as_dtype(dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorArraySpec) and (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"TensorArraySpec(element_shape={self.shape}, dtype={self.dtype!r})"
