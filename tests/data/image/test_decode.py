from __future__ import annotations

import contextlib
import struct
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lockstep.data._image import formats
from lockstep.data._image.decode import decode_bmp, decode_gif, decode_image, decode_jpeg, decode_png
from lockstep.data._image.encode import encode_jpeg, encode_png
from lockstep.data._image.formats import jpeg_header
from lockstep.errors import ArgumentError, InputError, UnsupportedError

# Files, and shape and checksum of what tf.io.decode_image of TensorFlow 2.15 makes of them.
TENSORFLOW = np.load(Path(__file__).with_name("tensorflow.npz"))
# PNG files of every kind, and checksums of what tf.io.decode_png makes of them: 0, 1, 3, 4 channels; uint8, uint16.
PNG_FILES = [name.removeprefix("png_") for name in TENSORFLOW.files if name.startswith("png_")]
FILES = [name.removeprefix("file_") for name in TENSORFLOW.files if name.startswith("file_")]
SMOOTH = np.add.outer(np.arange(40) * 3, np.arange(50) * 2)[..., None].astype(np.uint8).repeat(3, -1)


@pytest.mark.parametrize("name", FILES)
def test_pixels_are_those_of_tensorflow(name: str) -> None:
    found = decode_image(TENSORFLOW[f"file_{name}"].tobytes())
    assert list(found.shape) == TENSORFLOW[f"sum_{name}"][: found.ndim].tolist()
    assert zlib.crc32(found.tobytes()) == TENSORFLOW[f"crc_{name}"]


@pytest.mark.parametrize("name", PNG_FILES)
def test_png_of_every_kind(name: str) -> None:
    contents = TENSORFLOW[f"png_{name}"].tobytes()
    for channels, checksums in zip((0, 1, 3, 4), TENSORFLOW[f"pngcrc_{name}"], strict=False):
        for dtype, checksum in zip((np.uint8, np.uint16), checksums, strict=True):
            found = decode_png(contents, channels, dtype)
            assert found.dtype == dtype and found.shape[-1] == (channels or found.shape[-1])
            assert zlib.crc32(found.tobytes()) == checksum


def bmp(image: Any) -> bytes:
    """Writes an image of 3 channels."""
    height, width, _ = image.shape
    rows = np.pad(image[::-1, :, ::-1].reshape(height, -1), ((0, 0), (0, -width * 3 % 4))).tobytes()
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(rows), 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(rows), 0, 0, 54) + header + rows


shapes = st.tuples(st.integers(1, 12), st.integers(1, 12), st.sampled_from([1, 2, 3, 4]))


@settings(deadline=None, max_examples=60)
@given(shapes.flatmap(lambda shape: hnp.arrays(np.uint8, shape)), st.integers(-1, 9))
def test_png_keeps_pixels(image: Any, compression: int) -> None:
    encoded = encode_png(image, compression)
    np.testing.assert_array_equal(decode_png(encoded), image)
    np.testing.assert_array_equal(decode_image(encoded), image)
    np.testing.assert_array_equal(decode_png(encoded, dtype=np.uint16), image.astype(np.uint16) * 257)
    colours = decode_png(encoded, 3)
    np.testing.assert_array_equal(colours, image[..., :3] if image.shape[-1] > 2 else image[..., :1].repeat(3, -1))
    assert decode_png(encoded, 4).shape[-1] == 4 and decode_png(encoded, 1).shape[-1] == 1


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_png_of_16_bits(channels: int) -> None:
    image = np.random.default_rng(0).integers(0, 65536, (5, 4, channels), np.uint16)
    encoded = encode_png(image)
    np.testing.assert_array_equal(decode_png(encoded, dtype=np.uint16), image)
    np.testing.assert_array_equal(decode_png(encoded), image >> 8)
    assert encode_png(np.asfortranarray(image)) == encoded
    np.testing.assert_allclose(decode_image(encoded, dtype=np.float32), image / 65535, atol=1e-6)


def test_png_is_small() -> None:
    assert len(encode_png(SMOOTH)) < SMOOTH.size // 20 < SMOOTH.size < len(encode_png(SMOOTH, 0))


@pytest.mark.parametrize("quality", [1, 95, 100])
@pytest.mark.parametrize("downsampling", [True, False])
def test_jpeg(quality: int, downsampling: bool) -> None:
    encoded = encode_jpeg(SMOOTH, quality, downsampling)
    for found in (decode_jpeg(encoded), decode_image(encoded), decode_jpeg(np.array(encoded, object), 3)):
        assert found.dtype == np.uint8 and found.shape == (40, 50, 3)
        assert np.abs(found.astype(int) - SMOOTH).max() < (120 if quality == 1 else 10)
    assert decode_jpeg(encoded, 1).shape == (40, 50, 1)
    assert decode_jpeg(encode_jpeg(SMOOTH[..., :1])).shape == (40, 50, 1)
    assert decode_jpeg(encode_jpeg(SMOOTH[..., :1]), 3).shape == (40, 50, 3)


@pytest.mark.parametrize("ratio", [1, 2, 4, 8])
@pytest.mark.parametrize("channels", [0, 1, 3])
def test_jpeg_decoded_smaller(ratio: int, channels: int) -> None:
    found = decode_jpeg(encode_jpeg(SMOOTH[:37]), channels, ratio)
    assert found.shape == (-(-37 // ratio), -(-50 // ratio), channels or 3)
    whole = SMOOTH[:32, :48]
    assert abs(decode_jpeg(encode_jpeg(whole), channels, ratio).mean() - whole.mean()) < 2


def test_jpeg_of_inks() -> None:
    encoded = TENSORFLOW["file_inks_jpg"].tobytes()
    assert np.abs(decode_jpeg(encoded).astype(int) - SMOOTH).max() < 20
    assert decode_jpeg(encoded, 1).shape == (40, 50, 1)


def test_every_truncation_of_a_jpeg_is_refused() -> None:
    encoded = encode_jpeg(SMOOTH, 50)
    for size in range(len(encoded)):
        with pytest.raises(InputError):
            decode_jpeg(encoded[:size])
    decode_jpeg(encoded + b"something behind it")


_PIECES = [b"\xff", b"\0", b"\xff\xd3", b"\xff\x01", b"\xff\xe3\0\4ab", b"\xff\xc0\0\x0b\x08\1\2\3\4\3", b"ab"]


@pytest.mark.parametrize("channels", [1, 3])
@given(st.lists(st.tuples(st.integers(2, 200), st.one_of(st.sampled_from(_PIECES), st.integers(0, 5))), max_size=4))
def test_headers_are_those_that_libjpeg_finds(channels: int, changes: list[tuple[int, bytes | int]]) -> None:
    """So the limit of memory holds for what is decoded, whatever a file begins with."""
    content = encode_jpeg(SMOOTH[..., :channels])
    for at, change in changes:
        # Some bytes inserted, or a number of them left out.
        content = content[:at] + (change + content[at:] if isinstance(change, bytes) else content[at + change :])
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(content, strict=False)
    except (ValueError, KeyError):
        return
    found = jpeg_header(content)
    assert found[:2] == (height, width)
    assert (found[2] == 1, found[2] == 4) == (colours == "Gray", colours in ("CMYK", "YCCK"))


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_damaged_file_is_refused_or_gives_pixels(index: int, change: int) -> None:
    for encoded, decode in ((encode_jpeg(SMOOTH, 50), decode_jpeg), (encode_png(SMOOTH), decode_png)):
        damaged = bytearray(encoded)
        damaged[index % len(encoded)] ^= change
        with contextlib.suppress(InputError, UnsupportedError):
            assert decode(bytes(damaged)).ndim == 3


OTHERS = {
    "png": encode_png(np.random.default_rng(0).integers(0, 256, (9, 7, 3), np.uint8)),
    "gif": TENSORFLOW["file_disp1_gif"].tobytes(),
    "bmp": bmp(SMOOTH[:9, :7]),
    "bmp of 32 bits": TENSORFLOW["file_b32_5_0_bmp"].tobytes(),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_every_truncation_is_refused(kind: str) -> None:
    encoded = OTHERS[kind]
    assert decode_image(encoded).size
    for size in range(len(encoded) - (12 if kind == "png" else 0)):
        with pytest.raises(InputError):
            decode_image(encoded[:size])


def test_animations() -> None:
    encoded = TENSORFLOW["file_animp_gif"].tobytes()
    frames = decode_gif(encoded)
    assert frames.shape == (4, 29, 37, 3) and (frames[0] != frames[1]).any()
    np.testing.assert_array_equal(decode_image(encoded), frames)
    np.testing.assert_array_equal(decode_image(encoded, expand_animations=False), frames[0])
    with pytest.raises(InputError, match="animated"):
        decode_png(encoded)
    with pytest.raises(ArgumentError, match="3 channels"):
        decode_image(encoded, 4)


def test_a_gif_of_one_frame_is_an_image() -> None:
    encoded = TENSORFLOW["file_one8_gif"].tobytes()
    np.testing.assert_array_equal(decode_png(encoded), decode_gif(encoded)[0])


def test_bmp() -> None:
    for width in range(1, 9):
        np.testing.assert_array_equal(decode_bmp(bmp(SMOOTH[:, :width])), SMOOTH[:, :width])
    assert decode_bmp(bmp(SMOOTH), 4)[..., 3].min() == 255


def test_types_of_images() -> None:
    encoded = encode_jpeg(SMOOTH)
    pixels = decode_jpeg(encoded)
    np.testing.assert_array_equal(decode_image(encoded, dtype=np.uint16), pixels.astype(np.uint16) << 8)
    np.testing.assert_allclose(decode_image(encoded, dtype=np.float32), pixels / 255, atol=1e-6)
    np.testing.assert_array_equal(decode_jpeg(encode_png(SMOOTH)), SMOOTH)
    np.testing.assert_array_equal(decode_png(encoded), pixels)


def test_threads() -> None:
    encoded = encode_jpeg(SMOOTH)
    expected = decode_jpeg(encoded)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: decode_jpeg(encoded), range(100)):
            np.testing.assert_array_equal(found, expected)


def test_what_is_no_image() -> None:
    with pytest.raises(InputError, match="no image in a known format"):
        decode_image(b"plain text")
    with pytest.raises(InputError, match="no bytes at all"):
        decode_jpeg(b"")
    with pytest.raises(InputError, match="is in the format JPEG"):
        decode_bmp(encode_jpeg(SMOOTH))
    with pytest.raises(ArgumentError, match="content, not its name"):
        decode_jpeg("name.jpg")
    with pytest.raises(ArgumentError, match="before batch"):
        decode_jpeg(np.array([b"a", b"b"], object))


@pytest.mark.parametrize(
    "call",
    [
        lambda: decode_jpeg(encode_jpeg(SMOOTH), 4),
        lambda: decode_jpeg(encode_jpeg(SMOOTH), ratio=3),
        lambda: decode_jpeg(encode_jpeg(SMOOTH), dct_method="FLOAT"),
        lambda: decode_jpeg(encode_png(SMOOTH), ratio=2),
        lambda: decode_png(encode_png(SMOOTH), 2),
        lambda: decode_png(encode_png(SMOOTH), dtype=np.float32),
        lambda: decode_image(encode_png(SMOOTH), dtype=np.int32),
        lambda: encode_jpeg(SMOOTH, 0),
        lambda: encode_jpeg(SMOOTH.astype(np.float32)),
        lambda: encode_jpeg(SMOOTH[..., 0]),
        lambda: encode_png(SMOOTH, 10),
    ],
)
def test_wrong_arguments(call: Any) -> None:
    with pytest.raises(ArgumentError):
        call()


@pytest.fixture
def libraries_are_looked_for_again() -> Any:
    for library in (formats.opencv, formats.simplejpeg):
        library.cache_clear()
    yield
    for library in (formats.opencv, formats.simplejpeg):
        library.cache_clear()


@pytest.mark.usefixtures("libraries_are_looked_for_again")
def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    jpeg, png = encode_jpeg(SMOOTH), encode_png(SMOOTH)
    formats.simplejpeg.cache_clear()
    monkeypatch.setitem(sys.modules, "cv2", None)
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    with pytest.raises(UnsupportedError, match=r'opencv-python-headless.*pip install "lockstep\[images\]"'):
        decode_png(png)
    with pytest.raises(UnsupportedError, match=r'simplejpeg.*pip install "lockstep\[images\]"'):
        decode_jpeg(jpeg)
    with pytest.raises(UnsupportedError, match="simplejpeg"):
        decode_jpeg(jpeg, 3)


def test_an_opencv_without_gif_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats.opencv(), "haveImageWriter", lambda name: name != "image.gif")
    with pytest.raises(UnsupportedError, match="built with GIF"):
        decode_gif(OTHERS["gif"])


@pytest.mark.usefixtures("libraries_are_looked_for_again")
def test_opencv_starts_no_threads_unless_told() -> None:
    opencv = formats.opencv()
    opencv.setNumThreads(-1)
    formats.opencv.cache_clear()
    assert formats.opencv().getNumThreads() == 1
    chosen = opencv.getNumberOfCPUs() + 1
    opencv.setNumThreads(chosen)
    formats.opencv.cache_clear()
    assert formats.opencv().getNumThreads() == chosen
    opencv.setNumThreads(0)
