"""tf.audio: WAV files of 16 bits a sample."""

from __future__ import annotations

import io as _io
import wave as _wave
from typing import Any as _Any
from typing import NamedTuple as _NamedTuple

import numpy as _np

from lockstep._types import Tensor as _Tensor
from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._ops.strings import to_bytes as _to_bytes
from lockstep.compat.tensorflow._tensor import as_host as _as_host
from lockstep.errors import ArgumentError as _ArgumentError
from lockstep.errors import InputError as _InputError

__all__ = ["decode_wav", "encode_wav"]

_FULL = 1 << 15


class DecodeWav(_NamedTuple):
    """A sound, and how many samples a second has."""

    audio: _Any
    sample_rate: _Any


def decode_wav(
    contents: _Tensor, desired_channels: int = -1, desired_samples: int = -1, name: str | None = None
) -> DecodeWav:
    """Decodes a WAV file.

    Args:
        contents: The file's bytes.
        desired_channels: How many channels are returned, the last one repeated if there are fewer; -1 for all.
        desired_samples: How many samples are returned, with zeros behind them if there are fewer; -1 for all.
        name: Its name in a model_fn.

    Returns:
        float32 `[samples, channels]` in [-1, 1), and the sample rate.

    Raises:
        InputError: If it is no WAV file of 16 bits a sample.

    Source: tf.audio.decode_wav.
    """
    data = _to_bytes(contents).item()
    try:
        with _wave.open(_io.BytesIO(data)) as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            frames = file.readframes(file.getnframes())
    except (_wave.Error, EOFError) as error:
        raise _InputError(f"The contents must be those of a WAV file ({error}). Received {len(data)} bytes.") from error
    if width != 2:
        raise _InputError(f"A WAV file must have 16 bits a sample. Received one of {8 * width}.")
    samples = _np.frombuffer(frames, "<i2").reshape(-1, channels).astype(_np.float32) / _FULL
    if desired_channels >= 0:
        missing = max(desired_channels - channels, 0)
        samples = _np.pad(samples[:, :desired_channels], [(0, 0), (0, missing)], mode="edge")
    if desired_samples >= 0:
        missing = max(desired_samples - len(samples), 0)
        samples = _np.pad(samples[:desired_samples], [(0, missing), (0, 0)])
    return DecodeWav(_as_host(samples), _as_host(_np.int32(rate)))


def encode_wav(audio: _Tensor, sample_rate: _Tensor, name: str | None = None) -> _Any:
    """Encodes a sound `[samples, channels]` in [-1, 1] as a WAV file of 16 bits a sample.

    Source: tf.audio.encode_wav.
    """
    samples = _np.asarray(audio)
    if samples.ndim != 2:
        raise _ArgumentError(f"A sound has the shape [samples, channels]. Received: {samples.shape}.")
    # Halves away from zero, which numpy's rounding would take to even numbers.
    scaled = samples * _FULL
    rounded = _np.clip(_np.copysign(_np.floor(_np.abs(scaled) + 0.5), scaled), -_FULL, _FULL - 1).astype("<i2")
    buffer = _io.BytesIO()
    with _wave.open(buffer, "wb") as file:
        file.setnchannels(samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(int(_np.asarray(sample_rate)))
        file.writeframes(rounded.tobytes())
    return _as_host(buffer.getvalue())


__getattr__ = _getter(__name__)
