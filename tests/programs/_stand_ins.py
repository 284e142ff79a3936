"""Files of the right form and of small random contents, in place of what programs download.

Runs under TensorFlow's Python and under lockstep's, so it imports the standard library, numpy and PIL alone. Every file
is a function of its name alone: both sides read the same bytes.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SIZES = {"train": 2000, "test": 500}
_WORDS = [
    "".join(
        "bcdfglmnprst"[(i * 7 + j * 5 + i // 12) % 12] + "aeiou"[(i + j * 3 + i // 5) % 5] for j in range(2 + i % 3)
    )
    for i in range(600)
]


def draws(name: str) -> np.random.Generator:
    """Returns random numbers that are a function of a name."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def pictures(name: str, count: int, shape: tuple[int, ...], classes: int) -> tuple[Any, Any]:
    """Returns pictures (count, *shape) of uint8 and labels (count,): noise around one pattern for each class."""
    draw = draws(name)
    labels = draw.integers(0, classes, count)
    # The same patterns in both parts of a data set, so that something can be learnt.
    patterns = draws(name.rsplit("-", 1)[0]).integers(0, 200, (classes, *shape), "uint8")
    noise = draw.integers(0, 56, (count, *shape), "uint8")
    return patterns[labels] + noise, labels.astype("uint8")


def write(url: str, path: str | Path) -> None:
    """Writes what stands for a download.

    Raises:
        OSError: If there is nothing that stands for it.
    """
    base = url.split("?")[0].rstrip("/").rsplit("/", 1)[-1]
    for pattern, make in _MAKERS:
        if re.search(pattern, url if "/" in pattern else base):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(make(base))
            return
    raise OSError(f"no stand-in for {url}")


def _npz(**arrays: Any) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def _mnist(_: str) -> bytes:
    (x, y), (u, v) = (pictures(f"mnist-{part}", SIZES[part], (28, 28), 10) for part in ("train", "test"))
    return _npz(x_train=x, y_train=y, x_test=u, y_test=v)


def _fashion(base: str) -> bytes:
    part = "train" if base.startswith("train") else "test"
    x, y = pictures(f"fashion-{part}", SIZES[part], (28, 28), 10)
    if "labels" in base:
        return gzip.compress(struct.pack(">II", 2049, len(y)) + y.tobytes(), 1)
    return gzip.compress(struct.pack(">IIII", 2051, len(x), 28, 28) + x.tobytes(), 1)


def _cifar(base: str) -> bytes:
    hundred = "100" in base
    folder = "cifar-100-python" if hundred else "cifar-10-batches-py"
    files: dict[str, bytes] = {}
    names = ["train", "test"] if hundred else [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    for name in names:
        # Keras wants 10 000 rows of each batch; its loader fills an array of that size.
        count = 50000 if name == "train" else 10000
        # Patterns without noise: 180 MB that compress well.
        draw, classes = draws(name), 100 if hundred else 10
        y = draw.integers(0, classes, count)
        x = draws(folder).integers(0, 255, (classes, 3072), "uint8")[y]
        label = "fine_labels" if hundred else "labels"
        files[f"{folder}/{name}"] = pickle.dumps({b"data": x, label.encode(): y.tolist()}, protocol=4)
    return _tar(files)


def _tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as archive:
        parts = [name.split("/") for name in files]
        for above in sorted({"/".join(part[:size]) for part in parts for size in range(1, len(part))}):
            folder = tarfile.TarInfo(above)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o644
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def _zip(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def _jpeg(base: str, size: tuple[int, int] = (96, 72)) -> bytes:
    from PIL import Image

    draw = draws(base)
    small = draw.integers(0, 256, (6, 8, 3), "uint8")
    out = io.BytesIO()
    Image.fromarray(small).resize(size, Image.Resampling.BILINEAR).save(out, "PNG" if base.endswith("png") else "JPEG")
    return out.getvalue()


def _flowers(_: str) -> bytes:
    kinds = ("daisy", "dandelion", "roses", "sunflowers", "tulips")
    files = {"flower_photos/LICENSE.txt": b"none"}
    files |= {f"flower_photos/{kind}/{i}_{kind}.jpg": _jpeg(f"{kind}{i}.jpg") for kind in kinds for i in range(24)}
    return _tar(files)


def _sentence(draw: np.random.Generator, length: int, shift: int = 0) -> str:
    picked = np.minimum(draw.geometric(0.02, length) + shift, len(_WORDS) - 1)
    return " ".join(_WORDS[i] for i in picked)


def _reviews(_: str) -> bytes:
    draw, files = draws("reviews"), {"aclImdb/README": b"none"}
    for part in ("train", "test"):
        for kind, shift in (("neg", 0), ("pos", 40), ("unsup", 20)):
            if part == "test" and kind == "unsup":
                continue
            for i in range(60):
                text = f"{_sentence(draw, 40 + i % 30, shift)}. <br />It's, {_sentence(draw, 20, shift)}!"
                files[f"aclImdb/{part}/{kind}/{i}_7.txt"] = text.encode()
    return _tar(files)


def _words(base: str) -> bytes:
    draw = draws(base)
    lines = [_sentence(draw, 9).capitalize() + "," for _ in range(1200)]
    return ("\n".join(lines) + "\n").encode()


def _text8(base: str) -> bytes:
    return _zip({"text8": (" " + " ".join(_sentence(draws(base), 30000).split())).encode()})


def _sequences(base: str) -> bytes:
    draw = draws(base)
    classes = 46 if base.startswith("reuters") else 2

    def part(count: int) -> tuple[Any, Any]:
        rows = np.empty(count, object)
        for i in range(count):
            rows[i] = np.minimum(draw.geometric(0.005, draw.integers(20, 120)) + 3, 9000).tolist()
        return rows, draw.integers(0, classes, count)

    x, y = part(1200)
    if base.startswith("reuters"):
        return _npz(x=x, y=y)
    u, v = part(600)
    return _npz(x_train=x, y_train=y, x_test=u, y_test=v)


def _index(_: str) -> bytes:
    return json.dumps({word: i + 1 for i, word in enumerate(_WORDS)}).encode()


def _boston(base: str) -> bytes:
    draw = draws(base)
    columns = 8 if "california" in base else 13
    x = draw.normal(5, 3, (506, columns)).astype("float64")
    return _npz(x=x, y=np.abs(x @ draw.normal(0, 1, columns)) + draw.normal(0, 1, 506))


def table(base: str, rows: int, columns: dict[str, Any], header: bool = True, separator: str = ",") -> bytes:
    """Returns a CSV file; a column is a list of values to draw from, or (low, high) for numbers of the type of low."""
    draw = draws(base)
    drawn: list[list[str]] = []
    for kind in columns.values():
        if isinstance(kind, list):
            drawn.append([str(kind[i]) for i in draw.integers(0, len(kind), rows)])
        elif isinstance(kind[0], int):
            drawn.append([str(v) for v in draw.integers(kind[0], kind[1], rows)])
        else:
            drawn.append([f"{v:.4f}" for v in draw.uniform(kind[0], kind[1], rows)])
    lines = [separator.join(columns)] if header else []
    lines += [separator.join(row) for row in zip(*drawn, strict=True)]
    return ("\n".join(lines) + "\n").encode()


def _titanic(base: str) -> bytes:
    columns = {"survived": [0, 1], "sex": ["male", "female"], "age": (1.0, 70.0), "n_siblings_spouses": (0, 5)}
    columns |= {"parch": (0, 4), "fare": (5.0, 90.0), "class": ["First", "Second", "Third"]}
    columns |= {"deck": ["unknown", "A", "B", "C", "D", "E", "F", "G"]}
    columns |= {"embark_town": ["Southampton", "Cherbourg", "Queenstown", "unknown"], "alone": ["y", "n"]}
    return table(base, 627 if base.startswith("train") else 264, columns)


def _iris(base: str) -> bytes:
    columns = {name: (0.1, 7.9) for name in "abcd"} | {"species": [0, 1, 2]}
    rows = 120 if "training" in base else 30
    return f"{rows},4,setosa,versicolor,virginica\n".encode() + table(base, rows, columns, header=False)


def _auto(base: str) -> bytes:
    draw, lines = draws(base), []
    for i in range(398):
        numbers = f"{draw.uniform(10, 40):.1f}   {4 + 2 * (i % 3)}   {draw.uniform(70, 400):.1f}      "
        power = "?" if i % 80 == 7 else f"{draw.uniform(50, 200):.1f}"
        numbers += f"{power}      {draw.integers(1700, 4500)}.      {draw.uniform(9, 23):.1f}"
        numbers += f"   {70 + i % 12}  {1 + i % 3}"
        lines.append(f'{numbers}\t"car {i}"')
    return ("\n".join(lines) + "\n").encode()


def _cancer(base: str) -> bytes:
    columns: dict[str, Any] = {"id": (1000, 9999), "diagnosis": ["M", "B"]}
    return table(base, 569, columns | {f"c{i}": (0.1, 20.0) for i in range(30)}, header=False)


def _abalone(base: str) -> bytes:
    columns: dict[str, Any] = {f"c{i}": (0.01, 0.9) for i in range(7)}
    return table(base, 1000, columns | {"age": (1, 25)}, header=False)


def _traffic(base: str) -> bytes:
    columns: dict[str, Any] = {"holiday": ["None", "Labor Day"], "temp": (250.0, 300.0), "rain_1h": (0.0, 5.0)}
    columns |= {"snow_1h": (0.0, 1.0), "clouds_all": (0, 100), "weather_main": ["Clouds", "Clear", "Rain"]}
    columns |= {"weather_description": ["scattered clouds", "sky is clear"], "date_time": ["2012-10-02 09:00:00"]}
    return gzip.compress(table(base, 2000, columns | {"traffic_volume": (0, 7000)}))


def _fonts(base: str) -> bytes:
    columns: dict[str, Any] = {"font": ["AGENCY", "ARIAL"], "fontVariant": ["scanned", "x"], "m_label": (33, 120)}
    columns |= {"strength": (0.2, 0.9), "italic": (0, 2), "orientation": (0.0, 1.0), "m_top": (10, 90)}
    columns |= {"m_left": (10, 90), "originalH": (10, 60), "originalW": (10, 60), "h": (20, 21), "w": (20, 21)}
    columns |= {f"r{i}c{j}": (0, 255) for i in range(20) for j in range(20)}
    return _zip({f"{name}.csv": table(name, 60, columns) for name in ("AGENCY", "ARIAL", "BAITI", "COURIER")})


def _heart(base: str) -> bytes:
    columns: dict[str, Any] = {"age": (30, 77), "sex": [0, 1], "cp": (0, 5), "trestbps": (95, 180), "chol": (130, 400)}
    columns |= {"fbs": [0, 1], "restecg": [0, 1, 2], "thalach": (90, 200), "exang": [0, 1], "oldpeak": (0.0, 5.0)}
    columns |= {"slope": [1, 2, 3], "ca": [0, 1, 2, 3], "thal": ["fixed", "normal", "reversible"], "target": [0, 1]}
    return table(base, 303, columns)


def _pets(base: str) -> bytes:
    columns: dict[str, Any] = {"Type": ["Cat", "Dog"], "Age": (0, 100), "Breed1": _WORDS[:40], "Gender": ["M", "F"]}
    columns |= {"Color1": ["Black", "White", "Brown"], "Color2": ["White", "No Color"], "MaturitySize": ["S", "M", "L"]}
    columns |= {"FurLength": ["Short", "Long"], "Vaccinated": ["Yes", "No"], "Sterilized": ["Yes", "No", "Not Sure"]}
    columns |= {"Health": ["Healthy", "Minor Injury"], "Fee": (0, 200), "Description": _WORDS[40:60]}
    columns |= {"PhotoAmt": (0, 9), "AdoptionSpeed": (0, 5)}
    return _zip({"petfinder-mini/petfinder-mini.csv": table(base, 1200, columns)})


def _census(base: str) -> bytes:
    columns: dict[str, Any] = {"age": (17, 90), "workclass": ["Private", "State-gov", "?"], "fnlwgt": (10000, 90000)}
    columns |= {"education": ["Bachelors", "HS-grad"], "education_num": (1, 16)}
    columns |= {"marital": ["Divorced", "Never-married"], "occupation": ["Sales", "Tech-support"]}
    columns |= {"relationship": ["Wife", "Own-child"], "race": ["White", "Black"], "gender": ["Male", "Female"]}
    columns |= {"gain": (0, 9), "loss": (0, 9), "hours": (1, 99), "country": ["United-States", "Mexico"]}
    return table(base, 1500, columns | {"income": ["<=50K", ">50K"]}, header=False, separator=", ")


def _ecg(base: str) -> bytes:
    columns: dict[str, Any] = {f"c{i}": (-4.0, 2.0) for i in range(140)}
    return table(base, 600, columns | {"label": ["0.0", "1.0"]}, header=False)


def _card(base: str) -> bytes:
    columns: dict[str, Any] = {"Time": (0, 9999)} | {f"V{i}": (-2.0, 2.0) for i in range(1, 29)}
    columns |= {"Amount": (0.5, 200.0), "Class": ['"0"'] * 9 + ['"1"']}
    content = table(base, 3000, columns)
    return _zip({"creditcard.csv": content}) if base.endswith("zip") else content


def record(fields: dict[str, list[bytes]]) -> bytes:
    """Returns a tf.train.Example with lists of bytes, as protobuf writes it."""

    def sized(tag: int, content: bytes) -> bytes:
        size, out = len(content), bytearray([tag])
        while size > 127:
            out.append(size & 127 | 128)
            size >>= 7
        return bytes(out) + bytes([size]) + content

    entries = b""
    for name, values in fields.items():
        feature = sized(0x0A, b"".join(sized(0x0A, value) for value in values))
        entries += sized(0x0A, sized(0x0A, name.encode()) + sized(0x12, feature))
    return sized(0x0A, entries)


def tfrecords(records: list[bytes]) -> bytes:
    """Returns a TFRecord file."""
    table_ = [0] * 256
    for i in range(256):
        value = i
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table_[i] = value

    def check(data: bytes) -> bytes:
        crc = 0xFFFFFFFF
        for byte in data:
            crc = table_[(crc ^ byte) & 255] ^ crc >> 8
        crc ^= 0xFFFFFFFF
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    sizes = [struct.pack("<Q", len(content)) for content in records]
    return b"".join(size + check(size) + content + check(content) for size, content in zip(sizes, records, strict=True))


def _signs(_: str) -> bytes:
    fields = [{"image/encoded": [_jpeg(f"sign{i}.png")], "image/text": [_WORDS[i].encode()]} for i in range(20)]
    return tfrecords([record(field) for field in fields])


_MAKERS: tuple[tuple[str, Callable[[str], bytes]], ...] = (
    (r"fashion.*ubyte|^(train|t10k)-(images|labels)", _fashion),
    (r"^mnist\.npz", _mnist),
    (r"^cifar-", _cifar),
    (r"^(imdb|reuters)\.npz", _sequences),
    (r"^(imdb|reuters)_word_index", _index),
    (r"^(boston|california)_housing", _boston),
    (r"^flower_photos", _flowers),
    (r"^aclImdb", _reviews),
    (r"^text8", _text8),
    (r"census/adult\.|^adult\.", _census),
    (r"^(train|eval|titanic_train|titanic)\.csv", _titanic),
    (r"^iris_", _iris),
    (r"^auto-mpg", _auto),
    (r"^wdbc", _cancer),
    (r"^abalone", _abalone),
    (r"^Metro_", _traffic),
    (r"^fonts\.zip", _fonts),
    (r"^heart\.csv", _heart),
    (r"^petfinder", _pets),
    (r"^ecg\.csv", _ecg),
    (r"^creditcard", _card),
    (r"^fsns", _signs),
    (r"\.(jpg|jpeg|png)$", _jpeg),
    (r"\.txt$", _words),
)
