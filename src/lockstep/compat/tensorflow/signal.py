"""tf.signal: Fourier transforms and windows."""

# ruff: noqa: F403

from __future__ import annotations

from typing import Any as _Any

import numpy as _np

from lockstep._types import Tensor as _Tensor
from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._ops import dispatch as _dispatch
from lockstep.compat.tensorflow._ops import spectra as _spectra
from lockstep.compat.tensorflow._ops.spectra import *
from lockstep.compat.tensorflow._types import Argument as _Argument
from lockstep.compat.tensorflow._types import DTypeLike as _DTypeLike
from lockstep.compat.tensorflow._types import SizeLike as _SizeLike

__all__ = ["inverse_stft", "inverse_stft_window_fn"]
__all__ += _spectra.__all__
__all__ += ["fft", "fft2d", "frame", "hamming_window", "hann_window", "ifft", "ifft2d", "irfft", "rfft", "stft"]


def _transform(function: str, x: _Tensor, *args: _Argument) -> _Any:
    xp, x = _dispatch.pick(x)
    return _dispatch.give(xp, getattr(xp.fft, function)(x, *args))


def fft(input: _Tensor, name: str | None = None) -> _Any:
    """Transforms along the last dimension. Source: tf.signal.fft."""
    return _transform("fft", input)


def ifft(input: _Tensor, name: str | None = None) -> _Any:
    """Undoes `fft`. Source: tf.signal.ifft."""
    return _transform("ifft", input)


def fft2d(input: _Tensor, name: str | None = None) -> _Any:
    """Transforms along the last two dimensions. Source: tf.signal.fft2d."""
    return _transform("fft2", input)


def ifft2d(input: _Tensor, name: str | None = None) -> _Any:
    """Undoes `fft2d`. Source: tf.signal.ifft2d."""
    return _transform("ifft2", input)


def rfft(input_tensor: _Tensor, fft_length: _SizeLike = None, name: str | None = None) -> _Any:
    """Transforms real numbers along the last dimension. Source: tf.signal.rfft."""
    return _transform("rfft", input_tensor, _length(fft_length))


def irfft(input_tensor: _Tensor, fft_length: _SizeLike = None, name: str | None = None) -> _Any:
    """Undoes `rfft`. Source: tf.signal.irfft."""
    return _transform("irfft", input_tensor, _length(fft_length))


def _length(value: _Tensor) -> _Any:
    length = _dispatch.to_static(value)
    return length[0] if isinstance(length, tuple) else length


def hann_window(
    window_length: _SizeLike, periodic: bool = True, dtype: _DTypeLike = "float32", name: str | None = None
) -> _Any:
    """Returns a Hann window. Source: tf.signal.hann_window."""
    return _window(0.5, window_length, periodic, dtype)


def hamming_window(
    window_length: _SizeLike, periodic: bool = True, dtype: _DTypeLike = "float32", name: str | None = None
) -> _Any:
    """Returns a Hamming window. Source: tf.signal.hamming_window."""
    return _window(0.54, window_length, periodic, dtype)


def _window(middle: float, length: _SizeLike, periodic: bool, dtype: _DTypeLike) -> _Any:
    from lockstep.compat.tensorflow._ops.create import cast

    size = _dispatch.to_static(length)
    # Periodic windows leave the last point out, which is the first of the next period.
    span = size if periodic else size - 1
    return cast(middle - (1 - middle) * _np.cos(2 * _np.pi * _np.arange(size) / max(span, 1)), dtype)


def frame(
    signal: _Tensor,
    frame_length: _SizeLike,
    frame_step: _SizeLike,
    pad_end: bool = False,
    pad_value: _Tensor = 0,
    axis: int = -1,
    name: str | None = None,
) -> _Any:
    """Cuts the last dimension into frames that overlap, one dimension more. Source: tf.signal.frame."""
    xp, x = _dispatch.pick(signal)
    x = xp.moveaxis(x, axis, -1)
    length, step = _dispatch.to_static(frame_length), _dispatch.to_static(frame_step)
    count = -(-x.shape[-1] // step) if pad_end else max(0, 1 + (x.shape[-1] - length) // step)
    missing = max(0, (count - 1) * step + length - x.shape[-1]) if pad_end else 0
    x = xp.pad(x, [(0, 0)] * (len(x.shape) - 1) + [(0, missing)], constant_values=pad_value)
    # Indices known beforehand: one gather for all frames.
    frames = x[..., _np.arange(count)[:, None] * step + _np.arange(length)]
    return _dispatch.give(xp, xp.moveaxis(frames, (-2, -1), (axis - 1, axis)) if axis != -1 else frames)


def stft(
    signals: _Tensor,
    frame_length: _SizeLike,
    frame_step: _SizeLike,
    fft_length: _SizeLike = None,
    window_fn: _Argument = hann_window,
    pad_end: bool = False,
    name: str | None = None,
) -> _Any:
    """Transforms frames that overlap; `fft_length` is by default the next power of two. Source: tf.signal.stft."""
    length = _dispatch.to_static(frame_length)
    # TensorFlow's default: the next power of two.
    size = _dispatch.to_static(fft_length) or 1 << (length - 1).bit_length()
    xp, frames = _dispatch.pick(frame(signals, length, frame_step, pad_end))
    weighted = frames if window_fn is None else frames * _dispatch.to_array(xp, window_fn(length))
    return _dispatch.give(xp, xp.fft.rfft(weighted, size))


def inverse_stft(
    stfts: _Tensor,
    frame_length: _SizeLike,
    frame_step: _SizeLike,
    fft_length: _SizeLike = None,
    window_fn: _Argument = hann_window,
    name: str | None = None,
) -> _Any:
    """Puts the sound together again that `stft` took apart, with the window that `inverse_stft_window_fn` gives.

    Source: tf.signal.inverse_stft.
    """
    length = _dispatch.to_static(frame_length)
    size = _dispatch.to_static(fft_length) or 1 << (length - 1).bit_length()
    xp, frames = _dispatch.pick(irfft(stfts, [size]))
    frames = xp.pad(frames[..., :length], [(0, 0)] * (len(frames.shape) - 1) + [(0, max(length - size, 0))])
    if window_fn is not None:
        frames = frames * _dispatch.to_array(xp, window_fn(length, dtype="float32"))
    return _spectra.overlap_and_add(_dispatch.give(xp, frames), frame_step)


def inverse_stft_window_fn(
    frame_step: _SizeLike, forward_window_fn: _Argument = hann_window, name: str | None = None
) -> _Any:
    """Returns the window function for `inverse_stft` that undoes another. Source: tf.signal.inverse_stft_window_fn."""
    return _spectra.inverse_window(frame_step, forward_window_fn)


__getattr__ = _getter(__name__)
