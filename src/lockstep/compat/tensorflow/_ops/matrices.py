"""Functions of matrices: the last two dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import keras
import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._types import Library, SizeLike
from lockstep.errors import ArgumentError

__all__ = ["adjoint", "band_part", "cholesky", "cholesky_solve", "cross", "det", "diag", "diag_part", "eigh"]
__all__ += ["eigvalsh", "expm", "inv", "logdet", "lstsq", "matrix_power", "matrix_rank", "matrix_transpose", "pinv"]
__all__ += ["qr", "set_diag", "slogdet", "solve", "svd", "tensor_diag", "tensor_diag_part", "trace", "triangular_solve"]


def _apply(function: Callable[[Any], Any], *tensors: Tensor) -> Any:
    """Applies a function of jax.numpy or numpy, of the same name; `function` gets the library."""
    xp, *arrays = dispatch.pick(*tensors)
    arrays = [dispatch.to_floats(xp, a) for a in arrays]
    return dispatch.give(xp, function(xp)(*arrays))


def inv(input: Tensor, adjoint: bool = False, name: str | None = None) -> Tensor:
    """Inverts matrices, or with `adjoint` their adjoints. Source: tf.linalg.inv."""
    return _apply(lambda xp: lambda x: xp.linalg.inv(_adjoint(xp, x) if adjoint else x), input)


def _adjoint(xp: Library, x: Tensor) -> Any:
    return xp.conj(xp.swapaxes(x, -1, -2))


def adjoint(matrix: Tensor, name: str | None = None) -> Tensor:
    """Transposes and conjugates matrices. Source: tf.linalg.adjoint."""
    return _apply(lambda xp: lambda x: _adjoint(xp, x), matrix)


def matrix_transpose(a: Tensor, name: str | None = None, conjugate: bool = False) -> Tensor:
    """Transposes matrices, and conjugates them if asked to. Source: tf.linalg.matrix_transpose."""
    xp, x = dispatch.pick(a)
    # Moved, not computed with: the result keeps its type.
    turned = xp.swapaxes(x, -1, -2)
    turned = xp.conj(turned) if conjugate else turned
    return dispatch.give_exact(xp, turned)


def det(input: Tensor, name: str | None = None) -> Tensor:
    """Computes determinants. Source: tf.linalg.det."""
    return _apply(lambda xp: xp.linalg.det, input)


def slogdet(input: Tensor, name: str | None = None) -> tuple[Tensor, ...]:
    """Computes signs and logarithms of determinants. Source: tf.linalg.slogdet."""
    return _apply(lambda xp: lambda x: tuple(xp.linalg.slogdet(x)), input)


def logdet(matrix: Tensor, name: str | None = None) -> Tensor:
    """Computes logarithms of determinants of positive definite matrices. Source: tf.linalg.logdet."""
    return _apply(lambda xp: lambda x: xp.linalg.slogdet(x)[1], matrix)


def cholesky(input: Tensor, name: str | None = None) -> Tensor:
    """Computes lower triangular factors. Source: tf.linalg.cholesky."""
    return _apply(lambda xp: xp.linalg.cholesky, input)


def cholesky_solve(chol: Tensor, rhs: Tensor, name: str | None = None) -> Tensor:
    """Solves equations of which `chol` is the lower factor. Source: tf.linalg.cholesky_solve."""
    # L L' x = b: first L, then its adjoint.
    return triangular_solve(chol, triangular_solve(chol, rhs), adjoint=True)


def triangular_solve(
    matrix: Tensor, rhs: Tensor, lower: bool = True, adjoint: bool = False, name: str | None = None
) -> Tensor:
    """Solves equations of triangular matrices. Source: tf.linalg.triangular_solve."""
    xp, a, b = dispatch.pick(matrix, rhs)
    # JAX's on the host, too: it takes batches of matrices.
    solution = jax.scipy.linalg.solve_triangular(a, b, trans=2 if adjoint else 0, lower=lower)
    return dispatch.give(xp, np.asarray(solution) if xp is dispatch.HOST else solution)


def solve(matrix: Tensor, rhs: Tensor, adjoint: bool = False, name: str | None = None) -> Tensor:
    """Solves equations; `rhs` has columns, one per equation. Source: tf.linalg.solve."""
    return _apply(lambda xp: lambda a, b: xp.linalg.solve(_adjoint(xp, a) if adjoint else a, b), matrix, rhs)


def lstsq(
    matrix: Tensor, rhs: Tensor, l2_regularizer: float = 0.0, fast: bool = True, name: str | None = None
) -> Tensor:
    """Solves equations as well as possible. Source: tf.linalg.lstsq.

    By the pseudo-inverse, which is exact for matrices of any rank, so that `fast` makes no difference; with a
    regularizer by the normal equations.
    """
    xp, a, b = dispatch.pick(matrix, rhs)
    # The pseudo-inverse gives the solution of least norm, also where the rank is not full.
    if not l2_regularizer:
        return dispatch.give(xp, xp.matmul(xp.linalg.pinv(a), b))
    # (A'A + l2 I) x = A'b, TensorFlow's fast=True.
    normal = xp.matmul(_adjoint(xp, a), a) + l2_regularizer * xp.eye(a.shape[-1], dtype=a.dtype)
    # The regularizer makes the matrix positive definite, so that it can be solved.
    return dispatch.give(xp, xp.linalg.solve(normal, xp.matmul(_adjoint(xp, a), b)))


def pinv(a: Tensor, rcond: Tensor = None, validate_args: bool = False, name: str | None = None) -> Tensor:
    """Computes pseudo-inverses. Source: tf.linalg.pinv."""
    # numpy and JAX have each their default tolerance.
    extra = {} if rcond is None else {"rcond": rcond}
    return _apply(lambda xp: lambda x: xp.linalg.pinv(x, **extra), a)


def svd(
    tensor: Tensor, full_matrices: bool = False, compute_uv: bool = True, name: str | None = None
) -> Tensor | tuple[Tensor, ...]:
    """Returns singular values, and the matrices U and V (not its transpose). Source: tf.linalg.svd."""
    xp, x = dispatch.pick(tensor)
    if not compute_uv:
        return dispatch.give(xp, xp.linalg.svd(x, compute_uv=False))
    u, s, v = xp.linalg.svd(x, full_matrices=full_matrices)
    # TensorFlow returns s, u, v; numpy u, s, and the adjoint of v.
    return tuple(dispatch.give(xp, m) for m in (s, u, _adjoint(xp, v)))


def qr(input: Tensor, full_matrices: bool = False, name: str | None = None) -> tuple[Tensor, ...]:
    """Returns orthogonal and upper triangular factors. Source: tf.linalg.qr."""
    return _apply(lambda xp: lambda x: tuple(xp.linalg.qr(x, mode="complete" if full_matrices else "reduced")), input)


def eigh(tensor: Tensor, name: str | None = None) -> tuple[Tensor, ...]:
    """Returns eigenvalues, in rising order, and eigenvectors of symmetric matrices. Source: tf.linalg.eigh."""
    return _apply(lambda xp: lambda x: tuple(xp.linalg.eigh(x)), tensor)


def eigvalsh(tensor: Tensor, name: str | None = None) -> Tensor:
    """Returns eigenvalues of symmetric matrices, in rising order. Source: tf.linalg.eigvalsh."""
    return _apply(lambda xp: xp.linalg.eigvalsh, tensor)


def expm(input: Tensor, name: str | None = None) -> Tensor:
    """Computes matrix exponentials. Source: tf.linalg.expm."""
    xp, x = dispatch.pick(input)
    result = jax.scipy.linalg.expm(x)
    return dispatch.give(xp, np.asarray(result) if xp is dispatch.HOST else result)


def matrix_power(a: Tensor, n: int) -> Tensor:
    """Multiplies matrices with themselves. Source: numpy.linalg.matrix_power."""
    return _apply(lambda xp: lambda x: xp.linalg.matrix_power(x, n), a)


def matrix_rank(a: Tensor, tol: Tensor = None, validate_args: bool = False, name: str | None = None) -> Tensor:
    """Counts singular values above a tolerance. Source: tf.linalg.matrix_rank."""
    return _apply(lambda xp: lambda x: xp.linalg.matrix_rank(x, tol).astype("int32"), a)


def trace(x: Tensor, name: str | None = None) -> Tensor:
    """Adds the elements of diagonals up. Source: tf.linalg.trace."""
    xp, x = dispatch.pick(x)
    return dispatch.give(xp, xp.trace(x, axis1=-2, axis2=-1))


def cross(a: Tensor, b: Tensor, name: str | None = None) -> Tensor:
    """Computes cross products of vectors of three. Source: tf.linalg.cross."""
    xp, a, b = dispatch.pick(a, b)
    return dispatch.give(xp, xp.cross(a, b))


def diag(diagonal: Tensor, name: str = "diag", k: int = 0) -> Tensor:
    """Makes matrices with these diagonals, the `k`-th, and zeros elsewhere. Source: tf.linalg.diag."""
    xp, d = dispatch.pick(diagonal)
    size = d.shape[-1] + abs(k)
    # The k-th diagonal begins -k rows down, or k columns to the right.
    rows = np.arange(d.shape[-1]) + max(-k, 0)
    place = (rows[:, None] == np.arange(size)).astype(np.bool_)
    columns = ((np.arange(d.shape[-1]) + max(k, 0))[:, None] == np.arange(size)).astype(np.bool_)
    # Products with masks of positions, which numpy, JAX and keras.ops compute alike.
    spread = xp.expand_dims(xp.expand_dims(d, -1), -1) * (place[:, :, None] & columns[:, None, :]).astype(d.dtype)
    total = xp.sum(spread, axis=-3)
    return dispatch.give_exact(xp, total.astype(d.dtype))


def diag_part(input: Tensor, name: str = "diag_part", k: int = 0) -> Tensor:
    """Returns the `k`-th diagonals. Source: tf.linalg.diag_part."""
    xp, x = dispatch.pick(input)
    diagonals = xp.diagonal(x, k, -2, -1)
    return dispatch.give_exact(xp, diagonals)


def set_diag(input: Tensor, diagonal: Tensor, name: str = "set_diag", k: int = 0) -> Tensor:
    """Replaces the `k`-th diagonals. Source: tf.linalg.set_diag."""
    xp, x, d = dispatch.pick(input, diagonal)
    on = np.eye(x.shape[-2], x.shape[-1], k, dtype=np.bool_)
    full = dispatch.to_array(xp, diag(d, k=k))[..., : x.shape[-2], : x.shape[-1]]
    # A diagonal away from the main one is shorter than the matrix.
    missing = [(0, 0)] * (len(x.shape) - 2) + [(0, a - b) for a, b in zip(x.shape[-2:], full.shape[-2:], strict=True)]
    return dispatch.give(xp, xp.where(on, xp.pad(full, missing), x))


def band_part(input: Tensor, num_lower: SizeLike, num_upper: SizeLike, name: str | None = None) -> Tensor:
    """Keeps so many diagonals below and above the main one (-1: all), zeros elsewhere. Source: tf.linalg.band_part."""
    xp, x = dispatch.pick(input)
    low, high = dispatch.to_static(num_lower), dispatch.to_static(num_upper)
    # Positions are known when JAX compiles, so that numpy computes the mask.
    offset = np.arange(x.shape[-1]) - np.arange(x.shape[-2])[:, None]
    keep = ((low < 0) | (-offset <= low)) & ((high < 0) | (offset <= high))
    if xp is dispatch.SYMBOLIC:
        return x * keras.ops.cast(keep, x.dtype)
    return dispatch.give(xp, xp.where(keep, x, xp.zeros((), x.dtype)))


def tensor_diag(diagonal: Tensor, name: str | None = None) -> Tensor:
    """Makes a matrix with this diagonal; of vectors only. Source: tf.linalg.tensor_diag."""
    if len(np.shape(diagonal)) != 1:
        raise ArgumentError(
            f"tensor_diag takes a vector. Received shape {np.shape(diagonal)}. Use tf.linalg.diag for several."
        )
    return diag(diagonal)


def tensor_diag_part(input: Tensor, name: str | None = None) -> Tensor:
    """Returns the diagonal of a matrix. Source: tf.linalg.tensor_diag_part."""
    return diag_part(input)


named.record_names(globals())
