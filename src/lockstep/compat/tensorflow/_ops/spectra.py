"""Spectra of sounds: cosine transforms, mel scales, and frames that are put together again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import fft as scipy_fft

from lockstep._types import Tensor
from lockstep.compat.tensorflow._dtypes import as_dtype
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._ops.make import compute
from lockstep.compat.tensorflow._tensor import as_host
from lockstep.compat.tensorflow._types import DTypeLike, Library, SizeLike
from lockstep.errors import ArgumentError

__all__ = ["dct", "fftshift", "idct", "ifftshift", "irfft2d", "kaiser_window", "linear_to_mel_weight_matrix"]
__all__ += ["mfccs_from_log_mel_spectrograms", "overlap_and_add", "rfft2d", "vorbis_window"]

# The transform that undoes each, but for a factor.
_INVERSES = {1: 1, 2: 3, 3: 2, 4: 4}


def dct(
    input: Tensor, type: int = 2, n: SizeLike = None, axis: int = -1, norm: str | None = None, name: str | None = None
) -> Tensor:
    """Computes cosine transforms along the last dimension, cut or filled with zeros to `n`.

    Args:
        input: Real numbers.
        type: 1 to 4.
        n: How many elements are transformed; default: all.
        axis: Must be -1.
        norm: `None`, or "ortho".
        name: Its name in a model_fn.

    Source: tf.signal.dct.
    """
    if axis != -1:
        raise ArgumentError(f"The last dimension is transformed, axis=-1. Received: {axis}. Use tf.transpose.")
    if type not in _INVERSES or norm not in (None, "ortho"):
        raise ArgumentError(f'type must be 1 to 4, and norm None or "ortho". Received: {type!r} and {norm!r}.')
    count = dispatch.to_static(n)

    def transform(xp: Library, x: Tensor) -> Any:
        size = x.shape[-1] if count is None else count
        x = _fit(xp, x, size)
        # The transform of each unit vector: a product with a matrix, which devices compute fast.
        matrix: Any = scipy_fft.dct(np.eye(size), type=type, norm=norm, axis=-1)
        return xp.matmul(x, xp.asarray(matrix.astype(np.float32), x.dtype))

    return compute(transform, input)


def idct(
    input: Tensor, type: int = 2, n: SizeLike = None, axis: int = -1, norm: str | None = None, name: str | None = None
) -> Tensor:
    """Undoes `dct`, but for a factor without `norm="ortho"`, as TensorFlow's. Source: tf.signal.idct."""
    return dct(input, _INVERSES.get(type, type), n, axis, norm)


def _fit(xp: Library, x: Tensor, size: int) -> Any:
    """Returns the last dimension cut, or filled with zeros, to a size."""
    missing = max(size - x.shape[-1], 0)
    return xp.pad(x[..., :size], [(0, 0)] * (len(x.shape) - 1) + [(0, missing)])


def rfft2d(input_tensor: Tensor, fft_length: Any = None, name: str | None = None) -> Tensor:
    """Transforms real numbers along the last two dimensions. Source: tf.signal.rfft2d."""
    sizes = None if fft_length is None else dispatch.to_shape(fft_length)
    return compute(lambda xp, x: xp.fft.rfft2(x, sizes), input_tensor)


def irfft2d(input_tensor: Tensor, fft_length: Any = None, name: str | None = None) -> Tensor:
    """Undoes `rfft2d`. Source: tf.signal.irfft2d."""
    sizes = None if fft_length is None else dispatch.to_shape(fft_length)
    return compute(lambda xp, x: xp.fft.irfft2(x, sizes), input_tensor)


def fftshift(x: Tensor, axes: Any = None, name: str | None = None) -> Tensor:
    """Moves the lowest frequency to the middle, of some dimensions or all. Source: tf.signal.fftshift."""
    return compute(lambda xp, v: xp.fft.fftshift(v, dispatch.to_static(axes)), x)


def ifftshift(x: Tensor, axes: Any = None, name: str | None = None) -> Tensor:
    """Undoes `fftshift`. Source: tf.signal.ifftshift."""
    return compute(lambda xp, v: xp.fft.ifftshift(v, dispatch.to_static(axes)), x)


def linear_to_mel_weight_matrix(
    num_mel_bins: int = 20,
    num_spectrogram_bins: int = 129,
    sample_rate: Tensor = 8000,
    lower_edge_hertz: float = 125.0,
    upper_edge_hertz: float = 3800.0,
    dtype: DTypeLike = "float32",
    name: str | None = None,
) -> Tensor:
    """Returns the matrix that turns a spectrum into bands of the mel scale.

    Args:
        num_mel_bins: Bands.
        num_spectrogram_bins: Frequencies of the spectrum, from 0 to half of the sample rate.
        sample_rate: Samples in a second.
        lower_edge_hertz: Where the first band begins.
        upper_edge_hertz: Where the last one ends.
        dtype: Its type.
        name: Its name in a model_fn.

    Returns:
        `[num_spectrogram_bins, num_mel_bins]`.

    Source: tf.signal.linear_to_mel_weight_matrix.
    """
    rate = float(np.asarray(sample_rate))
    if not 0 <= lower_edge_hertz < upper_edge_hertz <= rate / 2:
        raise ArgumentError(
            f"Bands must lie between 0 and half of the sample rate, {rate / 2}. Received: {lower_edge_hertz} to "
            f"{upper_edge_hertz}."
        )
    # The first frequency, 0, is in no band.
    mels = _mel(np.linspace(0, rate / 2, num_spectrogram_bins)[1:])[:, None]
    edges = np.linspace(_mel(lower_edge_hertz), _mel(upper_edge_hertz), num_mel_bins + 2)
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    weights = np.maximum(0, np.minimum((mels - low) / (middle - low), (high - mels) / (high - middle)))
    return as_host(np.pad(weights, [(1, 0), (0, 0)]).astype(as_dtype(dtype).dtype))


def _mel(hertz: Any) -> Any:
    # The formula of the HTK toolkit.
    return 1127.0 * np.log1p(np.asarray(hertz) / 700.0)


def mfccs_from_log_mel_spectrograms(log_mel_spectrograms: Tensor, name: str | None = None) -> Tensor:
    """Returns mel-frequency cepstral coefficients of the logarithms of mel spectra.

    Source: tf.signal.mfccs_from_log_mel_spectrograms.
    """
    xp, x = dispatch.pick(dct(log_mel_spectrograms))
    return dispatch.give(xp, x * np.float32(1 / np.sqrt(2.0 * x.shape[-1])))


def overlap_and_add(signal: Tensor, frame_step: SizeLike, name: str | None = None) -> Tensor:
    """Adds frames `[..., frames, length]` up, each `frame_step` after the one before.

    Source: tf.signal.overlap_and_add.
    """
    step = dispatch.to_static(frame_step)

    def add(xp: Library, x: Tensor) -> Any:
        *outer, frames, length = x.shape
        parts = -(-length // step)
        # Each frame in parts of a step: the n-th parts of all frames lie side by side, n steps further on.
        blocks = _fit(xp, x, parts * step).reshape(*outer, frames, parts, step)
        around = [(0, 0)] * len(outer)
        total: Any = 0
        for n in range(parts):
            total = total + xp.pad(blocks[..., n, :], [*around, (n, parts - 1 - n), (0, 0)])
        return total.reshape(*outer, -1)[..., : (frames - 1) * step + length]

    return compute(add, signal)


def kaiser_window(
    window_length: SizeLike, beta: float = 12.0, dtype: DTypeLike = "float32", name: str | None = None
) -> Tensor:
    """Returns a Kaiser window. Source: tf.signal.kaiser_window."""
    return as_host(np.kaiser(dispatch.to_static(window_length), beta).astype(as_dtype(dtype).dtype))


def vorbis_window(window_length: SizeLike, dtype: DTypeLike = "float32", name: str | None = None) -> Tensor:
    """Returns the window of Vorbis. Source: tf.signal.vorbis_window."""
    size = dispatch.to_static(window_length)
    slope = np.sin(np.pi * (np.arange(size) + 0.5) / size) ** 2
    return as_host(np.sin(np.pi / 2 * slope).astype(as_dtype(dtype).dtype))


def inverse_window(frame_step: SizeLike, forward: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the window function with which frames of another window add up to the sound again."""
    step = dispatch.to_static(frame_step)

    def window(frame_length: SizeLike, dtype: DTypeLike = "float32") -> Any:
        length = dispatch.to_static(frame_length)
        values = np.asarray(forward(length, dtype=dtype))
        parts = -(-length // step)
        squares = np.pad(np.square(values), (0, parts * step - length)).reshape(parts, step).sum(axis=0)
        return as_host(values / np.tile(squares, parts)[:length])

    return window


named.record_names(globals())
