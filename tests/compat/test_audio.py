"""WAV files are read and written as by TensorFlow 2.15.1."""

from __future__ import annotations

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf


def test_samples_and_rate() -> None:
    sound = tf.constant([[0.0, 0.5], [-1.0, 1.0], [0.25, -2.0], [1.5 / 32768, -1.5 / 32768]])
    data = tf.audio.encode_wav(sound, 8000)
    found = tf.audio.decode_wav(data)
    assert found.sample_rate.numpy() == 8000
    # What TensorFlow decodes of its own file of these samples.
    expected = [[0.0, 0.5], [-1.0, 32767 / 32768], [0.25, -1.0], [2 / 32768, -2 / 32768]]
    np.testing.assert_array_equal(found.audio, np.array(expected, np.float32))
    longer = tf.audio.decode_wav(data, desired_channels=3, desired_samples=5).audio.numpy()
    assert longer.shape == (5, 3)
    assert longer[1].tolist() == [-1.0, 32767 / 32768, 32767 / 32768] and not longer[4].any()
    assert tf.audio.decode_wav(data, 1, 2).audio.shape == (2, 1)


def test_what_is_refused() -> None:
    with pytest.raises(tf.errors.DataLossError, match="WAV file"):
        tf.audio.decode_wav(b"RIFFnone")
    with pytest.raises(tf.errors.InvalidArgumentError, match="samples, channels"):
        tf.audio.encode_wav([0.5], 8000)
