"""TensorFlow 1's names for functions of tf, and arguments that have other names in TensorFlow 2."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from lockstep.compat.tensorflow._types import Argument

_ROOT = "lockstep.compat.tensorflow"


def _in(module: str, names: str) -> dict[str, str]:
    return {name: f"{module}.{name}" for name in names.split()}


RENAMED = {
    **_in(
        "math",
        "accumulate_n betainc bincount ceil confusion_matrix count_nonzero cumprod digamma erf erfc floordiv floormod "
        "igamma igammac is_finite is_inf is_nan lbeta lgamma log_sigmoid polygamma reciprocal rint segment_max "
        "segment_mean segment_min segment_prod segment_sum softplus squared_difference unsorted_segment_max "
        "unsorted_segment_mean unsorted_segment_min unsorted_segment_prod unsorted_segment_sqrt_n "
        "unsorted_segment_sum zeta",
    ),
    **_in(
        "io",
        "FixedLenFeature FixedLenSequenceFeature VarLenFeature decode_base64 decode_compressed decode_csv decode_raw "
        "encode_base64 matching_files parse_example parse_single_example parse_single_sequence_example parse_tensor "
        "read_file serialize_tensor write_file",
    ),
    **_in("math", "angle is_non_decreasing is_strictly_increasing scalar_mul"),
    **{
        f"sparse_{name}": f"sparse.{name}"
        for name in (
            *("add", "concat", "fill_empty_rows", "mask", "maximum", "minimum", "reduce_max", "reduce_sum", "reorder"),
            *("reset_shape", "reshape", "retain", "slice", "softmax", "split", "to_indicator", "transpose"),
        )
    },
    "sparse_tensor_dense_matmul": "sparse.sparse_dense_matmul",
    "sparse_tensor_to_dense": "sparse.to_dense",
    **_in("linalg", "cholesky cholesky_solve cross diag matrix_transpose qr svd trace"),
    **_in("strings", "reduce_join regex_replace substr"),
    **_in("signal", "fft fft2d ifft ifft2d"),
    **_in("nn", "depth_to_space space_to_depth"),
    **_in("debugging", "check_numerics is_numeric_tensor"),
    **_in("errors", "OpError"),
    **_in("version", "COMPILER_VERSION GIT_VERSION VERSION"),
    "SparseTensorValue": "SparseTensor",
    "arg_max": "argmax",
    "arg_min": "argmin",
    "diag_part": "linalg.tensor_diag_part",
    "div_no_nan": "math.divide_no_nan",
    "floor_div": "math.floordiv",
    "lin_space": "linspace",
    "matrix_band_part": "linalg.band_part",
    "matrix_determinant": "linalg.det",
    "matrix_diag": "linalg.diag",
    "matrix_diag_part": "linalg.diag_part",
    "matrix_inverse": "linalg.inv",
    "matrix_set_diag": "linalg.set_diag",
    "matrix_solve": "linalg.solve",
    "matrix_triangular_solve": "linalg.triangular_solve",
    "multinomial": "compat.v1.random.multinomial",
    "py_func": "numpy_function",
    "random_crop": "image.random_crop",
    "random_gamma": "random.gamma",
    "random_normal": "random.normal",
    "random_shuffle": "random.shuffle",
    "random_uniform": "random.uniform",
    "self_adjoint_eig": "linalg.eigh",
    "self_adjoint_eigvals": "linalg.eigvalsh",
    "set_random_seed": "random.set_seed",
    "string_join": "strings.join",
    "string_split": "strings.split",
    "string_strip": "strings.strip",
    "string_to_hash_bucket": "strings.to_hash_bucket",
    "string_to_hash_bucket_fast": "strings.to_hash_bucket_fast",
    "string_to_hash_bucket_strong": "strings.to_hash_bucket_strong",
    "string_to_number": "strings.to_number",
    "tensor_scatter_add": "tensor_scatter_nd_add",
    "tensor_scatter_sub": "tensor_scatter_nd_sub",
    "tensor_scatter_update": "tensor_scatter_nd_update",
    "truncated_normal": "random.truncated_normal",
    "verify_tensor_all_finite": "debugging.assert_all_finite",
    "where_v2": "where",
}

_REDUCTION = {"keep_dims": "keepdims", "reduction_indices": "axis"}
# By TensorFlow 1's name: the names of its arguments, and what they are called in TensorFlow 2.
_ARGUMENTS: dict[str, dict[str, str]] = {
    **dict.fromkeys(
        ("reduce_all", "reduce_any", "reduce_logsumexp", "reduce_max", "reduce_mean", "reduce_min", "reduce_prod"),
        _REDUCTION,
    ),
    "reduce_sum": _REDUCTION,
    "sparse_reduce_sum": {**_REDUCTION, "reduction_axes": "axis"},
    "sparse_reduce_max": {**_REDUCTION, "reduction_axes": "axis"},
    "count_nonzero": {**_REDUCTION, "input_tensor": "input"},
    "argmax": {"dimension": "axis"},
    "argmin": {"dimension": "axis"},
    "arg_max": {"dimension": "axis"},
    "arg_min": {"dimension": "axis"},
    "expand_dims": {"dim": "axis"},
    "squeeze": {"squeeze_dims": "axis"},
    "norm": {"keep_dims": "keepdims"},
    "zeros_like": {"tensor": "input"},
    "ones_like": {"tensor": "input"},
    "string_join": {"inputs": "inputs"},
}


def find(name: str) -> Any:
    """Returns what TensorFlow 1's name stands for in tf; raises AttributeError if there is nothing."""
    path = RENAMED.get(name, name).split(".")
    value = functools.reduce(getattr, path, importlib.import_module(_ROOT))
    renamed = _ARGUMENTS.get(name)
    return value if renamed is None else _with_arguments(name, value, tuple(renamed.items()))


# One wrapper for each name, so that it is the same object each time.
@functools.cache
def _with_arguments(name: str, function: Any, renamed: tuple[tuple[str, str], ...]) -> Any:
    @functools.wraps(function)
    def call(*args: Argument, **kwargs: Argument) -> Any:
        for old, new in renamed:
            # Where both are given, the newer one decides, and Python says if it is given twice.
            value = kwargs.pop(old, None) if old != new else None
            if value is not None:
                kwargs.setdefault(new, value)
        return function(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    return call
