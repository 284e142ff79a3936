"""Calls of tf.signal and tf.audio, each with what TensorFlow 2.15.1 gives for it in signal_expected.json.

The file needs no TensorFlow; whoever has it writes the expected values again by running
`python -m tests.compat.signal_cases` there.
"""

from __future__ import annotations

from pathlib import Path

from tests.compat.image_cases import grid
from tests.compat.op_cases import Case, write_expected

EXPECTED = Path(__file__).with_name("signal_expected.json")

X = grid(2, 7)
SOUND = grid(1, 40)

CASES: dict[str, Case] = {
    **{
        f"dct_{kind}_{norm}": lambda tf, c, kind=kind, norm=norm: tf.signal.dct(c(X), kind, norm=norm)
        for kind in (1, 2, 3, 4)
        for norm in (None, "ortho")
        # TensorFlow has no such transform.
        if (kind, norm) != (1, "ortho")
    },
    "dct_n": lambda tf, c: tf.signal.dct(c(X), n=5),
    "dct_n_more": lambda tf, c: tf.signal.dct(c(X), n=9),
    "idct": lambda tf, c: tf.signal.idct(c(X)),
    "idct_ortho": lambda tf, c: tf.signal.idct(c(X), norm="ortho"),
    "fftshift": lambda tf, c: tf.signal.fftshift(c(X)),
    "ifftshift": lambda tf, c: tf.signal.ifftshift(c(X), axes=[1]),
    "rfft2d": lambda tf, c: tf.abs(tf.signal.rfft2d(c(X))),
    "irfft2d": lambda tf, c: tf.signal.irfft2d(tf.signal.rfft2d(c(X)), [2, 7]),
    "mel": lambda tf, c: tf.signal.linear_to_mel_weight_matrix(6, 17, 8000, 80.0, 3000.0),
    "mfccs": lambda tf, c: tf.signal.mfccs_from_log_mel_spectrograms(c(X)),
    "overlap_and_add": lambda tf, c: tf.signal.overlap_and_add(c([X, X]), 3),
    "inverse_stft": lambda tf, c: tf.signal.inverse_stft(
        tf.signal.stft(c(SOUND), 8, 3), 8, 3, window_fn=tf.signal.inverse_stft_window_fn(3)
    ),
    "inverse_stft_length": lambda tf, c: tf.signal.inverse_stft(tf.signal.stft(c(SOUND), 6, 2, 8), 6, 2, 8, None),
    "kaiser": lambda tf, c: tf.signal.kaiser_window(7, 4.0),
    "vorbis": lambda tf, c: tf.signal.vorbis_window(6),
}
VALUES_DECIDE: set[str] = set()

if __name__ == "__main__":
    write_expected(CASES, EXPECTED)
