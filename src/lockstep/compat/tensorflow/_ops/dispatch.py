"""Dispatch to numpy for arrays of the host, jax.numpy for JAX's arrays, and keras.ops for Keras' symbolic tensors.

An operation asks `pick` with its tensors, calls the library's function, and hands the result to `give`:

    xp, x = pick(input_tensor)
    return give(xp, xp.sum(x, axis=axis))
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.core import Tracer

from lockstep._types import Tensor
from lockstep.compat.tensorflow import _tensor
from lockstep.compat.tensorflow._dtypes import DType, as_dtype
from lockstep.compat.tensorflow._tape import recording
from lockstep.compat.tensorflow._types import DTypeLike, Library, ShapeLike
from lockstep.errors import UnsupportedError

# The host has a library of its own because map functions run once per element: numpy computes at once, where jax.numpy
# would compile for each new shape.
HOST: Any = np
DEVICE: Any = jnp
SYMBOLIC: Any = keras.ops

# Nearly all arguments are of these types, and a lookup of the type costs less than the isinstance checks.
_PLAIN = {np.ndarray, _tensor.HostTensor, float, int, bool, str, bytes, type(None)}


def library_of(*values: Tensor) -> Any:
    """Returns numpy, jax.numpy or keras.ops, whichever computes with these values, nested in lists or not."""
    library = HOST
    for value in values:
        if type(value) in _PLAIN:
            # What is computed of a tensor that a tape watches is recorded.
            if recording.stands_for(value) is not None:
                library = DEVICE
            continue
        # One symbolic tensor decides: only keras.ops can add the operation to the model.
        if isinstance(value, keras.KerasTensor):
            return SYMBOLIC
        if isinstance(value, (jax.Array, keras.Variable)):
            library = DEVICE
        elif isinstance(value, (list, tuple)):
            inner = library_of(*value)
            if inner is SYMBOLIC:
                return inner
            library = library if inner is HOST else inner
    return library


def is_traced() -> bool:
    """Returns whether JAX is tracing this code to compile it, so that it runs once and its effects are lost."""
    return recording.is_compiling()


def pick(*values: Tensor) -> Any:
    """Returns the library for these values, and each of them as an array of it; Python's numbers become arrays."""
    xp = library_of(*values)
    return (xp, *(to_array(xp, v) for v in values))


def pick_loose(*values: Tensor) -> Any:
    """Returns what `pick` returns, but Python's numbers stay as they are beside an array, so that its type decides."""
    xp = library_of(*values)
    # Beside an array a plain number is weakly typed: `x * 0.5` keeps the type of a float16 x, in JAX and in numpy 2.
    if all(isinstance(v, (bool, int, float, complex)) for v in values):
        return (xp, *(to_array(xp, v) for v in values))
    return (xp, *(v if isinstance(v, (bool, int, float, complex)) else to_array(xp, v) for v in values))


def pick_list(values: Iterable[Any]) -> tuple[Any, list[Any]]:
    """Returns the library for a list of tensors, and them as its arrays of one type."""
    listed = list(values)
    xp = library_of(*listed)
    arrays = [to_array(xp, v) for v in listed]
    if xp is SYMBOLIC or len({a.dtype for a in arrays}) < 2:
        return xp, arrays
    # numpy would make float64 of int32 and float32; by JAX's rule it is float32, on the host, too.
    common = jnp.result_type(*(a for a in arrays))
    return xp, [a.astype(common) for a in arrays]


def to_array(xp: Library, value: Tensor) -> Any:
    """Returns `value` as an array that `xp` computes with; `None` stays."""
    if value is None or isinstance(value, keras.KerasTensor):
        return value
    # `value` follows the scope of a step, in which a variable stands for a traced array.
    if isinstance(value, keras.Variable):
        value = value.value
    if xp is HOST:
        return _tensor.constant_array(value)
    if isinstance(value, jax.Array):
        return value
    watched = recording.stands_for(value)
    if watched is not None:
        return watched
    if isinstance(value, (list, tuple)) and library_of(value) is SYMBOLIC:
        return keras.ops.stack([to_array(xp, v) for v in value])
    if isinstance(value, (list, tuple)) and library_of(value) is DEVICE:
        return jnp.asarray([to_array(xp, v) for v in value])
    return jnp.asarray(check_numeric(_tensor.constant_array(value)))


def check_numeric(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns `value`; raises `UnsupportedError` if it is text."""
    if value.dtype == object:
        raise UnsupportedError(
            "Text stays on the host: JAX computes with numbers only. Look text up (tf.keras.layers.StringLookup) or "
            f"convert it (tf.strings.to_number) before. Received: {value.ravel()[:3]!r}."
        )
    return value


def to_floats(xp: Library, value: Tensor) -> Any:
    """Returns integers of the host as float32, where numpy would compute in 16 or 64 bits."""
    # TensorFlow has no such functions of integers; JAX computes them in float32.
    if xp is HOST and value.dtype.kind in "iub":
        return value.astype(np.float32)
    return value


def give(xp: Library, value: Tensor) -> Any:
    """Returns a result of `xp` to the program: numpy's as host tensors of 32 bits."""
    return _tensor.from_numpy(value) if xp is HOST else value


def give_exact(xp: Library, value: Tensor) -> Any:
    """Returns elements that `xp` moved to the program; they keep their 64 bits, for nothing was computed with them."""
    return _tensor.as_host(value) if xp is HOST else value


def usable_dtype(xp: Library, dtype: DTypeLike) -> Any:
    """Returns the numpy type that `xp` computes with for `dtype`: 64 bits become 32 unless `jax_enable_x64` is set."""
    wanted = dtype.dtype if isinstance(dtype, DType) else as_dtype(dtype).dtype
    if wanted.kind == "O":
        return wanted
    canonical = jax.dtypes.canonicalize_dtype(wanted)
    return canonical.name if xp is SYMBOLIC else canonical


def to_static(value: Tensor) -> Any:
    """Returns sizes (a number, a shape, an array of the host) as Python integers or a tuple of them.

    Raises:
        UnsupportedError: If a size is computed by JAX, which needs to know it beforehand.
    """
    if value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, (list, tuple)):
        # None in a shape of TensorFlow is a size to be found: -1 in numpy and JAX.
        return tuple(-1 if v is None else to_static(v) for v in value)
    if isinstance(value, keras.Variable):
        value = value.value
    if isinstance(value, Tracer):
        raise UnsupportedError(
            "JAX must know sizes, axes and the like when it compiles. Received one that is computed by the compiled "
            "code itself. Compute it from tensor.shape, or outside of the function."
        )
    return _as_integers(np.asarray(value).tolist())


def to_shape(shape: ShapeLike) -> tuple[int, ...]:
    """Returns sizes as a tuple, of one size as well."""
    sizes = to_static(shape)
    return (sizes,) if isinstance(sizes, int) else tuple(sizes)


def _as_integers(value: Tensor) -> Any:
    return tuple(map(_as_integers, value)) if isinstance(value, list) else int(value)
