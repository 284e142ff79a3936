"""Calls of TensorFlow's functions, each with what TensorFlow 2.15.1 gives for it in op_expected.json.

A case gets the package and a function that makes a tensor of numbers. The file needs no TensorFlow; whoever has it
writes the expected values again by running `python -m tests.compat.op_cases` there.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

EXPECTED = Path(__file__).with_name("op_expected.json")
Case = Callable[[Any, Callable[..., Any]], Any]

M = [[1.0, -2.0, 3.5], [0.25, 5.0, -6.0]]
I = [[3, -7, 2], [5, 0, 9]]  # noqa: E741
S = [[4.0, 1.0], [1.0, 3.0]]
G = [[[[float((3 * i + 5 * j + 7 * k) % 11) for k in range(2)] for j in range(5)] for i in range(4)]]
K = [[[[0.5, -1.0], [1.0, 0.25]], [[0.0, 2.0], [-0.5, 1.0]]]] * 2
P = [[[(40 * i + 13 * j + 90 * k) % 256 for k in range(3)] for j in range(4)] for i in range(3)]

CASES: dict[str, Case] = {}

# Elementwise functions of one tensor, and where they are.
for _n in [
    "abs",
    "exp",
    "floor",
    "negative",
    "round",
    "sign",
    "square",
    "sigmoid",
    "sin",
    "cos",
    "tan",
    "tanh",
    "atan",
    "sinh",
    "cosh",
    "asinh",
]:
    CASES[_n] = lambda tf, c, n=_n: getattr(tf, n)(c(M))
for _n in [
    "ceil",
    "erf",
    "erfc",
    "softplus",
    "is_nan",
    "is_inf",
    "is_finite",
    "expm1",
    "reciprocal",
    "rint",
    "lgamma",
    "digamma",
]:
    CASES[f"math.{_n}"] = lambda tf, c, n=_n: getattr(tf.math, n)(c(M))
for _n in ["sqrt", "acosh"]:
    CASES[_n] = lambda tf, c, n=_n: getattr(tf, n)(c([1.0, 2.25, 9.0]))
for _n in ["log", "log1p", "rsqrt", "erfcinv", "bessel_i0e", "bessel_i1"]:
    CASES[f"math.{_n}"] = lambda tf, c, n=_n: getattr(tf.math, n)(c([0.5, 1.0, 1.75]))
for _n in ["acos", "asin", "atanh"]:
    CASES[_n] = lambda tf, c, n=_n: getattr(tf, n)(c([0.5, -0.25, 0.9]))
for _n in ["erfinv", "ndtri", "log_sigmoid"]:
    CASES[f"math.{_n}"] = lambda tf, c, n=_n: getattr(tf.math, n)(c([0.5, 0.25, 0.9]))
for _n in ["abs", "negative", "sign", "square", "round"]:
    CASES[f"{_n}_int"] = lambda tf, c, n=_n: getattr(tf, n)(c(I))
for _n in [
    "relu",
    "relu6",
    "elu",
    "selu",
    "gelu",
    "silu",
    "softmax",
    "log_softmax",
    "leaky_relu",
    "l2_normalize",
    "softsign",
    "crelu",
]:
    CASES[f"nn.{_n}"] = lambda tf, c, n=_n: getattr(tf.nn, n)(c(M), *([-1] if n == "l2_normalize" else []))
for _n in ["add", "subtract", "multiply", "divide", "maximum", "minimum", "pow"]:
    CASES[_n] = lambda tf, c, n=_n: getattr(tf, n)(c(M), c([2.0, 3.0, 1.0]))
    CASES[f"{_n}_number"] = lambda tf, c, n=_n: getattr(tf, n)(c(M), 2.0)
for _n in ["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"]:
    CASES[_n] = lambda tf, c, n=_n: getattr(tf, n)(c(I), c([3, 0, 2]))
for _n in ["floordiv", "floormod", "truediv", "squared_difference", "mod"]:
    CASES[f"math.{_n}"] = lambda tf, c, n=_n: getattr(tf.math, n)(c(I), c([2, 3, -4]))
for _n in ["divide_no_nan", "multiply_no_nan", "xdivy", "xlogy"]:
    CASES[f"math.{_n}"] = lambda tf, c, n=_n: getattr(tf.math, n)(c([0.0, 1.0, 3.0]), c([0.0, 2.0, 5.0]))
for _n in ["igamma", "igammac", "zeta", "polygamma"]:
    CASES[f"math.{_n}"] = lambda tf, c, n=_n: getattr(tf.math, n)(c([2.0, 3.0]), c([1.5, 2.5]))
for _n in ["logical_and", "logical_or"]:
    CASES[_n] = lambda tf, c, n=_n: getattr(tf, n)(c([True, False, True]), c([True, True, False]))
for _n in ["sum", "mean", "max", "min", "prod", "logsumexp"]:
    CASES[f"reduce_{_n}"] = lambda tf, c, n=_n: getattr(tf, f"reduce_{n}")(c(M))
    CASES[f"reduce_{_n}_axis"] = lambda tf, c, n=_n: getattr(tf, f"reduce_{n}")(c(M), axis=1, keepdims=True)
    CASES[f"reduce_{_n}_axes"] = lambda tf, c, n=_n: getattr(tf, f"reduce_{n}")(c(G), axis=[1, 2])
for _n in ["std", "variance", "euclidean_norm"]:
    CASES[f"math.reduce_{_n}"] = lambda tf, c, n=_n: getattr(tf.math, f"reduce_{n}")(c(M), axis=-1)
for _n in ["sum", "max", "min", "prod"]:
    CASES[f"reduce_{_n}_int"] = lambda tf, c, n=_n: getattr(tf, f"reduce_{n}")(c(I), 0)
    CASES[f"math.segment_{_n}"] = lambda tf, c, n=_n: getattr(tf.math, f"segment_{n}")(c([1.0, 2.0, 4.0]), [0, 0, 2])
    CASES[f"math.unsorted_segment_{_n}"] = lambda tf, c, n=_n: getattr(tf.math, f"unsorted_segment_{n}")(
        c(M), [1, 0], 3
    )
for _n in ["all", "any"]:
    CASES[f"reduce_{_n}"] = lambda tf, c, n=_n: getattr(tf, f"reduce_{n}")(c([[True, False], [True, True]]), axis=1)
for _n in ["inv", "det", "cholesky", "eigvalsh", "expm", "logdet", "trace", "diag_part", "pinv", "adjoint"]:
    CASES[f"linalg.{_n}"] = lambda tf, c, n=_n: getattr(tf.linalg, n)(c(S))
for _n in ["max_pool1d", "avg_pool1d"]:
    CASES[f"nn.{_n}"] = lambda tf, c, n=_n: getattr(tf.nn, n)(c(G[0]), 2, 2, "SAME")
for _n in ["max_pool2d", "avg_pool2d", "max_pool", "avg_pool"]:
    CASES[f"nn.{_n}"] = lambda tf, c, n=_n: getattr(tf.nn, n)(c(G), 2, 2, "SAME")
    CASES[f"nn.{_n}_valid"] = lambda tf, c, n=_n: getattr(tf.nn, n)(c(G), [1, 2, 3, 1], [1, 1, 2, 1], "VALID")
for _n in ["flip_left_right", "flip_up_down", "rot90", "transpose", "rgb_to_grayscale", "per_image_standardization"]:
    CASES[f"image.{_n}"] = lambda tf, c, n=_n: getattr(tf.image, n)(tf.cast(c(P), tf.uint8))
for _n in ["rgb_to_hsv", "rgb_to_grayscale", "per_image_standardization", "total_variation"]:
    CASES[f"image.{_n}_float"] = lambda tf, c, n=_n: getattr(tf.image, n)(tf.cast(c(P), tf.float32) / 255.0)
for _n, _a in {"brightness": 0.3, "contrast": 1.7, "saturation": 0.4, "hue": 0.2, "gamma": 1.5}.items():
    CASES[f"image.adjust_{_n}"] = lambda tf, c, n=_n, a=_a: getattr(tf.image, f"adjust_{n}")(
        tf.cast(c(P), tf.float32) / 255.0, a
    )
for _n, _a in {"brightness": 0.3, "contrast": 1.7}.items():
    CASES[f"image.adjust_{_n}_uint8"] = lambda tf, c, n=_n, a=_a: getattr(tf.image, f"adjust_{n}")(
        tf.cast(c(P), tf.uint8), a
    )

CASES |= {
    "argmax": lambda tf, c: tf.argmax(c(M), axis=1),
    "argmin_default": lambda tf, c: tf.argmin(c(M), output_type=tf.int32),
    "argsort": lambda tf, c: tf.argsort(c(I)),
    "argsort_descending": lambda tf, c: tf.argsort(c([3, 1, 3, 2]), direction="DESCENDING"),
    "sort_descending": lambda tf, c: tf.sort(c(I), axis=0, direction="DESCENDING"),
    "top_k": lambda tf, c: tuple(tf.math.top_k(c(M), 2)),
    "bincount": lambda tf, c: tf.math.bincount(c([1, 1, 4]), minlength=6, maxlength=6),
    "boolean_mask": lambda tf, c: tf.boolean_mask(c(M), [True, False]),
    "broadcast_to": lambda tf, c: tf.broadcast_to(c([1.0, 2.0]), [2, 2]),
    "cast_bool": lambda tf, c: tf.cast(c(I), tf.bool),
    "cast_float_to_int": lambda tf, c: tf.cast(c(M), tf.int32),
    "cast_uint8": lambda tf, c: tf.cast(c(I), tf.float32),
    "clip_by_global_norm": lambda tf, c: tf.clip_by_global_norm([c(M), c([3.0])], 2.0)[0],
    "clip_by_norm": lambda tf, c: tf.clip_by_norm(c(M), 2.0),
    "clip_by_norm_axes": lambda tf, c: tf.clip_by_norm(c(M), 2.0, axes=[1]),
    "clip_by_value": lambda tf, c: tf.clip_by_value(c(M), -1.0, 2.0),
    "complex": lambda tf, c: tf.math.real(tf.complex(c([1.0]), c([2.0]))),
    "concat": lambda tf, c: tf.concat([c(M), c(M)], axis=1),
    "cond": lambda tf, c: tf.cond(tf.reduce_sum(c(M)) > 100.0, lambda: c(1.0), lambda: c(2.0)),
    "confusion_matrix": lambda tf, c: tf.math.confusion_matrix(c([0, 1, 2]), c([0, 2, 2]), num_classes=3),
    "count_nonzero": lambda tf, c: tf.math.count_nonzero(c(I), axis=1, dtype=tf.int32),
    "cumprod": lambda tf, c: tf.math.cumprod(c(M), axis=1, exclusive=True, reverse=True),
    "cumsum": lambda tf, c: tf.cumsum(c(I), axis=1),
    "cumsum_exclusive": lambda tf, c: tf.cumsum(c(M), exclusive=True),
    "cumulative_logsumexp": lambda tf, c: tf.math.cumulative_logsumexp(c([1.0, 2.0, 3.0])),
    "dynamic_stitch": lambda tf, c: tf.dynamic_stitch([[0, 2], [1]], [c([1.0, 2.0]), c([3.0])]),
    "einsum": lambda tf, c: tf.einsum("ij,kj->ik", c(M), c(M)),
    "expand_dims": lambda tf, c: tf.expand_dims(c(M), -1),
    "eye": lambda tf, c: tf.eye(2, 3, batch_shape=[2]),
    "fill": lambda tf, c: tf.fill([2, 2], 7),
    "foldl": lambda tf, c: tf.foldl(lambda a, x: a - x, c([10.0, 2.0, 3.0])),
    "gather": lambda tf, c: tf.gather(c(M), [2, 0], axis=1),
    "gather_batch": lambda tf, c: tf.gather(c(M), [[1, 0], [2, 2]], batch_dims=1),
    "gather_batch_axis": lambda tf, c: tf.gather(c(G), [[1, 0]], axis=2, batch_dims=1),
    "gather_nd": lambda tf, c: tf.gather_nd(c(M), [[0, 1], [1, 2]]),
    "gather_nd_batch": lambda tf, c: tf.gather_nd(c(M), [[1], [2]], batch_dims=1),
    "global_norm": lambda tf, c: tf.linalg.global_norm([c(M), c([3.0])]),
    "histogram": lambda tf, c: tf.histogram_fixed_width(c([-1.0, 0.0, 1.5, 2.0, 5.0, 15.0]), [0.0, 5.0], nbins=5),
    "in_top_k": lambda tf, c: tf.math.in_top_k([0, 1], c(M), 1),
    "invert_permutation": lambda tf, c: tf.math.invert_permutation(c([2, 0, 1])),
    "l2_loss": lambda tf, c: tf.nn.l2_loss(c(M)),
    "lbeta": lambda tf, c: tf.math.lbeta(c([[1.0, 2.0], [3.0, 0.5]])),
    "linspace": lambda tf, c: tf.linspace(c(0.0), c(1.0), 5),
    "linalg.band_part": lambda tf, c: tf.linalg.band_part(c(M), 0, 1),
    "linalg.cross": lambda tf, c: tf.linalg.cross(c(M), c(M[::-1])),
    "linalg.diag": lambda tf, c: tf.linalg.diag(c([1.0, 2.0])),
    "linalg.diag_k": lambda tf, c: tf.linalg.diag(c([1.0, 2.0]), k=-1),
    "linalg.lstsq": lambda tf, c: tf.linalg.lstsq(c([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), c([[1.0], [3.0], [5.0]])),
    "linalg.matvec": lambda tf, c: tf.linalg.matvec(c(M), c([1.0, 2.0, 3.0])),
    "linalg.set_diag": lambda tf, c: tf.linalg.set_diag(c(M), c([9.0, 8.0])),
    "linalg.slogdet": lambda tf, c: tuple(tf.linalg.slogdet(c(S))),
    "linalg.solve": lambda tf, c: tf.linalg.solve(c(S), c([[1.0], [2.0]])),
    "linalg.svd": lambda tf, c: tf.linalg.svd(c(S), compute_uv=False),
    "linalg.triangular_solve": lambda tf, c: tf.linalg.triangular_solve(c(S), c([[1.0], [2.0]])),
    "linalg.cholesky_solve": lambda tf, c: tf.linalg.cholesky_solve(tf.linalg.cholesky(c(S)), c([[1.0], [2.0]])),
    "logical_not": lambda tf, c: tf.logical_not(c([True, False])),
    "logical_xor": lambda tf, c: tf.math.logical_xor(c([True, False]), c([True, True])),
    "map_fn": lambda tf, c: tf.map_fn(lambda x: x * 2.0, c(M)),
    "matmul": lambda tf, c: tf.matmul(c(M), c(M), transpose_b=True),
    "meshgrid": lambda tf, c: tuple(tf.meshgrid(c([1, 2]), c([3, 4, 5]))),
    "meshgrid_ij": lambda tf, c: tuple(tf.meshgrid(c([1, 2]), c([3, 4, 5]), indexing="ij")),
    "moments": lambda tf, c: tf.nn.moments(c(M), [0]),
    "nextafter": lambda tf, c: tf.math.nextafter(c([1.0]), c([2.0])),
    "norm": lambda tf, c: tf.norm(c(M)),
    "norm_1": lambda tf, c: tf.norm(c(M), ord=1, axis=1),
    "norm_fro": lambda tf, c: tf.norm(c(M), ord="fro", axis=[0, 1]),
    "norm_inf": lambda tf, c: tf.norm(c(M), ord=math.inf, axis=-1, keepdims=True),
    "one_hot": lambda tf, c: tf.one_hot(c([0, 2, -1, 5]), 3),
    "one_hot_axis": lambda tf, c: tf.one_hot(c([0, 2]), 3, on_value=5, off_value=-1, axis=0),
    "ones_like": lambda tf, c: tf.ones_like(c(I), dtype=tf.float32),
    "operators": lambda tf, c: (c(M) * 2 + 1) / 4 - c(M) ** 2,
    "operators_int": lambda tf, c: (c(I) // 2, c(I) % 4, c(I) / 2, -c(I), 10 - c(I)),
    "pad": lambda tf, c: tf.pad(c(M), [[1, 0], [0, 2]], constant_values=9.0),
    "pad_reflect": lambda tf, c: tf.pad(c(M), [[1, 1], [2, 0]], mode="REFLECT"),
    "pad_symmetric": lambda tf, c: tf.pad(c(M), tf.constant([[1, 1], [2, 0]]), "SYMMETRIC"),
    "range": lambda tf, c: tf.range(3, 18, 3),
    "range_float": lambda tf, c: tf.range(0.0, 1.0, 0.25),
    "rank": lambda tf, c: tf.rank(c(G)),
    "repeat": lambda tf, c: tf.repeat(c(M), [1, 2], axis=0),
    "repeat_flat": lambda tf, c: tf.repeat(c(M), 2),
    "reshape": lambda tf, c: tf.reshape(c(M), [tf.shape(c(M))[1], -1]),
    "reverse": lambda tf, c: tf.reverse(c(M), [1]),
    "roll": lambda tf, c: tf.roll(c(M), shift=[1, 2], axis=[0, 1]),
    "saturate_cast": lambda tf, c: tf.saturate_cast(c([-5.0, 300.0, 7.5]), tf.uint8),
    "scan": lambda tf, c: tf.scan(lambda a, x: a + x, c([1.0, 2.0, 3.0])),
    "scatter_nd": lambda tf, c: tf.scatter_nd([[1], [3], [1]], c([1.0, 2.0, 4.0]), [5]),
    "searchsorted": lambda tf, c: tf.searchsorted(c([1.0, 3.0, 5.0]), c([0.0, 3.0, 6.0])),
    "searchsorted_right": lambda tf, c: tf.searchsorted(c([[1, 3], [2, 4]]), c([[3], [1]]), side="right"),
    "sequence_mask": lambda tf, c: tf.sequence_mask(c([1, 0, 3]), 4),
    "sequence_mask_dtype": lambda tf, c: tf.sequence_mask(c([[1], [2]]), maxlen=2, dtype=tf.float32),
    "shape": lambda tf, c: tf.shape(c(G)),
    "size": lambda tf, c: tf.size(c(G)),
    "slice": lambda tf, c: tf.slice(c(M), [0, 1], [-1, 2]),
    "split": lambda tf, c: tuple(tf.split(c(M), 3, axis=1)),
    "split_sizes": lambda tf, c: tuple(tf.split(c(M), [1, -1], axis=1)),
    "squeeze": lambda tf, c: tf.squeeze(c(G), axis=[0]),
    "stack": lambda tf, c: tf.stack([c(M), c(M)], axis=-1),
    "strided_slice": lambda tf, c: tf.strided_slice(c(I), [0, 0], [2, 3], [1, 2]),
    "switch_case": lambda tf, c: tf.switch_case(tf.cast(c(1), tf.int32), [lambda: c(5.0), lambda: c(6.0)]),
    "tensordot": lambda tf, c: tf.tensordot(c(M), c(M), axes=[[1], [1]]),
    "tensor_scatter_nd_add": lambda tf, c: tf.tensor_scatter_nd_add(c(M), [[0, 0], [0, 0]], c([1.0, 2.0])),
    "tensor_scatter_nd_max": lambda tf, c: tf.tensor_scatter_nd_max(c(M), [[0, 0], [1, 0]], c([7.0, -2.0])),
    "tensor_scatter_nd_update": lambda tf, c: tf.tensor_scatter_nd_update(c(M), [[1]], c([[7.0, 8.0, 9.0]])),
    "tile": lambda tf, c: tf.tile(c(M), [2, 1]),
    "transpose": lambda tf, c: tf.transpose(c(G), perm=[0, 3, 1, 2]),
    "unique": lambda tf, c: tuple(tf.unique_with_counts(c([5, 3, 5, 1]))),
    "unsorted_segment_mean": lambda tf, c: tf.math.unsorted_segment_mean(c([1.0, 2.0, 6.0]), [0, 0, -1], 2),
    "unsorted_segment_sqrt_n": lambda tf, c: tf.math.unsorted_segment_sqrt_n(c([1.0, 2.0, 6.0]), [0, 0, 1], 2),
    "unstack": lambda tf, c: tuple(tf.unstack(c(M), axis=1)),
    "where": lambda tf, c: tf.where(c(M) > 0.0, c(M), 0.0),
    "where_indices": lambda tf, c: tf.cast(tf.where(c(M) > 0.0), tf.int32),
    "where_numbers": lambda tf, c: tf.where(c(M) > 0.0, 1, 0),
    "while_loop": lambda tf, c: tf.while_loop(lambda i: i < 10.0, lambda i: (i * 2.0,), [c(1.0)]),
    "zeros": lambda tf, c: tf.zeros([2, 3], tf.int32),
    "zero_fraction": lambda tf, c: tf.math.zero_fraction(c(I)),
    "add_n": lambda tf, c: tf.add_n([c(M), c(M), c(M)]),
    "betainc": lambda tf, c: tf.math.betainc(c([1.0]), c([2.0]), c([0.3])),
    "nn.batch_normalization": lambda tf, c: tf.nn.batch_normalization(
        c(M), c([1.0, 0.0, 2.0]), c([1.0, 4.0, 9.0]), c([0.5, 0.5, 0.5]), c([1.0, 2.0, 3.0]), 0.001
    ),
    "nn.bias_add": lambda tf, c: tf.nn.bias_add(c(G), c([1.0, 2.0])),
    "nn.conv1d": lambda tf, c: tf.nn.conv1d(c(G[0]), c(K[0]), 2, "SAME"),
    "nn.conv2d": lambda tf, c: tf.nn.conv2d(c(G), c(K), 2, "SAME"),
    "nn.conv2d_dilated": lambda tf, c: tf.nn.conv2d(c(G), c(K), [1, 1, 1, 1], "VALID", dilations=2),
    "nn.conv2d_transpose": lambda tf, c: tf.nn.conv2d_transpose(c(G), c(K), [1, 8, 10, 2], 2, "SAME"),
    "nn.convolution": lambda tf, c: tf.nn.convolution(c(G), c(K)),
    "nn.depth_to_space": lambda tf, c: tf.nn.depth_to_space(tf.concat([c(G), c(G)], -1), 2),
    "nn.depthwise_conv2d": lambda tf, c: tf.nn.depthwise_conv2d(c(G), c(K), [1, 1, 1, 1], "SAME"),
    "nn.embedding_lookup": lambda tf, c: tf.nn.embedding_lookup(c(M), [1, 0, 1], max_norm=2.0),
    "nn.gelu_approximate": lambda tf, c: tf.nn.gelu(c(M), approximate=True),
    "nn.local_response_normalization": lambda tf, c: tf.nn.local_response_normalization(c(G), 1, 1.0, 0.5, 0.75),
    "nn.log_poisson_loss": lambda tf, c: tf.nn.log_poisson_loss(c([1.0, 2.0]), c([0.5, 0.1]), compute_full_loss=True),
    "nn.sigmoid_ce": lambda tf, c: tf.nn.sigmoid_cross_entropy_with_logits(
        labels=c([[1.0, 0.0, 0.5]] * 2), logits=c(M)
    ),
    "nn.softmax_axis": lambda tf, c: tf.nn.softmax(c(M), axis=0),
    "nn.softmax_ce": lambda tf, c: tf.nn.softmax_cross_entropy_with_logits(
        labels=c([[0.2, 0.8, 0.0]] * 2), logits=c(M)
    ),
    "nn.space_to_depth": lambda tf, c: tf.nn.space_to_depth(c(G)[:, :, :4], 2),
    "nn.sparse_softmax_ce": lambda tf, c: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[2, 0], logits=c(M)),
    "nn.weighted_ce": lambda tf, c: tf.nn.weighted_cross_entropy_with_logits(
        labels=c([[1.0, 0.0, 0.5]] * 2), logits=c(M), pos_weight=2.0
    ),
    "nn.separable_conv2d": lambda tf, c: tf.nn.separable_conv2d(
        c(G), c(K), c([[[[1.0], [2.0], [0.5], [1.0]]]]), [1, 1, 1, 1], "SAME"
    ),
    "image.central_crop": lambda tf, c: tf.image.central_crop(c(P), 0.5),
    "image.convert_to_float": lambda tf, c: tf.image.convert_image_dtype(tf.cast(c(P), tf.uint8), tf.float32),
    "image.convert_to_uint8": lambda tf, c: tf.image.convert_image_dtype(c([0.0, 0.5, 0.999, 1.0]), tf.uint8),
    "image.convert_to_uint16": lambda tf, c: tf.image.convert_image_dtype(
        tf.cast(c([[[1]], [[255]]]), tf.uint8), tf.uint16
    ),
    "image.crop_to_bounding_box": lambda tf, c: tf.image.crop_to_bounding_box(c(P), 1, 1, 2, 3),
    "image.grayscale_to_rgb": lambda tf, c: tf.image.grayscale_to_rgb(c([[[1.0], [2.0]]])),
    "image.hsv_to_rgb": lambda tf, c: tf.image.hsv_to_rgb(c([[[0.1, 0.6, 0.9], [0.7, 0.2, 0.4]]])),
    "image.image_gradients": lambda tf, c: tf.image.image_gradients(c(G)),
    "image.pad_to_bounding_box": lambda tf, c: tf.image.pad_to_bounding_box(c(P), 1, 2, 5, 7),
    "image.psnr": lambda tf, c: tf.image.psnr(c(G), c(G) + 1.0, 11.0),
    "image.resize_with_crop_or_pad": lambda tf, c: tf.image.resize_with_crop_or_pad(c(P), 5, 2),
    "image.ssim": lambda tf, c: tf.image.ssim(c(G), c(G) * 0.9, 11.0, filter_size=3),
    "truncatediv": lambda tf, c: tf.truncatediv(c([-7, 7, -7, 8]), c([2, -2, -2, 3])),
    "truncatemod": lambda tf, c: tf.truncatemod(c([-7, 7, -7, 8]), c([2, -2, -2, 3])),
    "truncatemod_floats": lambda tf, c: tf.truncatemod(c([-7.5, 7.5]), c([2.0, -2.0])),
    "unravel_index": lambda tf, c: tf.unravel_index(c([5, 2]), [2, 3]),
    "reverse_sequence": lambda tf, c: tf.reverse_sequence(c(G[0]), c([2, 5, 0, 1]), seq_axis=1),
    "reverse_sequence_batch": lambda tf, c: tf.reverse_sequence(c(G[0]), c([4, 1, 0, 2, 3]), 0, 1),
    "scalar_mul": lambda tf, c: tf.math.scalar_mul(2.5, c(M)),
    "math.polyval": lambda tf, c: tf.math.polyval([c([2.0]), c([-1.0]), c([0.5])], c([[1.0, 2.0], [3.0, -1.0]])),
    "math.angle": lambda tf, c: tf.math.angle(tf.complex(c([1.0, -1.0]), c([1.0, 0.5]))),
    "math.is_non_decreasing": lambda tf, c: tf.math.is_non_decreasing(c([1.0, 1.0, 2.0])),
    "math.is_strictly_increasing": lambda tf, c: tf.math.is_strictly_increasing(c([1.0, 1.0, 2.0])),
    "bitwise": lambda tf, c: (
        tf.bitwise.bitwise_and(c([6]), c([3])),
        tf.bitwise.bitwise_xor(c([6]), c([3])),
        tf.bitwise.left_shift(c([6]), c([3])),
        tf.bitwise.invert(c([6])),
    ),
}


def plain(value: Any) -> Any:
    """A result as JSON: dtype, shape and values of each tensor."""
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    found = value.numpy() if hasattr(value, "numpy") else value
    values = found.tolist()
    return {"dtype": found.dtype.name, "shape": list(found.shape), "values": _written(values)}


def _written(value: Any) -> Any:
    if isinstance(value, list):
        return [_written(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value


def write_expected(cases: dict[str, Case], path: Path) -> None:
    """Writes what TensorFlow gives."""
    import tensorflow as tf

    found = {name: plain(case(tf, tf.constant)) for name, case in cases.items()}
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in sorted(found.items())]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(found)} cases, TensorFlow {tf.__version__}", file=sys.stderr)


if __name__ == "__main__":
    write_expected(CASES, EXPECTED)
