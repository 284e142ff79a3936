"""Stand-ins of `tensorflow_datasets.load` and `builder`, for TensorFlow and for lockstep alike."""

from __future__ import annotations

import importlib
import re
import sys
import types
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.programs import _stand_ins

_CLASSES = {
    "mnist": 10,
    "fashion_mnist": 10,
    "cats_vs_dogs": 2,
    "tf_flowers": 5,
    "imdb_reviews": 2,
    "penguins": 3,
    "iris": 3,
    "titanic": 2,
}


def install(tf: Any, mode: str) -> None:
    """Puts `load` and the rest into the module that programs import."""
    if mode == "tensorflow":
        module: Any = types.ModuleType("tensorflow_datasets")
        module.__version__ = "4.9.3"
        module.disable_progress_bar = module.enable_progress_bar = lambda: None
        module.Split = SimpleNamespace(TRAIN="train", TEST="test")
        sys.modules["tensorflow_datasets"] = module
        module.as_numpy = lambda dataset: dataset.as_numpy_iterator()
    else:
        module = importlib.import_module("lockstep.compat.tensorflow_datasets")
    module.as_dataframe = lambda dataset, info=None: [str(one)[:60] for one in dataset]

    def load(name: str, split: Any = None, **options: Any) -> Any:
        return _load(tf, name, split, **options)

    def builder(name: str, **_: Any) -> Any:
        return SimpleNamespace(
            info=_info(name),
            download_and_prepare=lambda **_: None,
            as_dataset=lambda split=None, **options: _load(tf, name, split, **options),
        )

    module.load, module.builder = load, builder


def _arrays(name: str, part: str) -> dict[str, Any]:
    count = _stand_ins.SIZES["train" if part == "train" else "test"]
    base = re.split("[/:]", name)[0]
    draw, classes = _stand_ins.draws(name + part), _CLASSES.get(base, 2)
    if base in ("mnist", "fashion_mnist"):
        x, y = _stand_ins.pictures(f"{base}-{part}", count, (28, 28, 1), 10)
        return {"image": x, "label": y.astype("int64")}
    if base == "imdb_reviews":
        texts = [" ".join(_stand_ins._sentence(draw, 30).split()).encode() for _ in range(400)]
        return {"text": np.array(texts, object), "label": draw.integers(0, 2, 400)}
    if base == "iris" or name == "penguins/processed":
        return {"features": draw.uniform(0, 1, (150, 4)).astype("float32"), "label": draw.integers(0, classes, 150)}
    if base == "penguins":
        names = ("body_mass_g", "culmen_depth_mm", "culmen_length_mm", "flipper_length_mm")
        fields: dict[str, Any] = {field: draw.uniform(0, 50, 100).astype("float32") for field in names}
        return fields | {"island": draw.integers(0, 3, 100), "species": draw.integers(0, 3, 100)}
    if base == "titanic":
        columns = {
            "age": draw.uniform(1, 70, 300).astype("float32"),
            "fare": draw.uniform(5, 90, 300).astype("float32"),
        }
        columns |= {"parch": draw.integers(0, 4, 300).astype("int32"), "pclass": draw.integers(0, 3, 300)}
        columns |= {"sex": draw.integers(0, 2, 300), "survived": draw.integers(0, 2, 300)}
        columns |= {"sibsp": draw.integers(0, 4, 300).astype("int32"), "embarked": draw.integers(0, 4, 300)}
        return columns | {"name": np.array([b"x"] * 300, object)}
    x, y = _stand_ins.pictures(f"{base}-{part}", 64, (120, 160, 3), classes)
    return {"image": x, "label": y.astype("int64")}


_LABELS = {"penguins/simple": "species", "titanic": "survived"}


def _info(name: str) -> Any:
    base = re.split("[/:]", name)[0]
    label = SimpleNamespace(
        num_classes=_CLASSES.get(base, 2),
        names=["Adélie", "Chinstrap", "Gentoo"] if base == "penguins" else [str(i) for i in range(10)],
        int2str=str,
    )
    splits = {
        part: SimpleNamespace(num_examples=len(next(iter(_arrays(name, part).values())))) for part in ("train", "test")
    }
    return SimpleNamespace(
        name=base, features={"label": label, "image": SimpleNamespace(shape=(28, 28, 1))}, splits=splits
    )


def _load(
    tf: Any,
    name: str,
    split: Any = None,
    batch_size: int | None = None,
    as_supervised: bool = False,
    with_info: bool = False,
    **_: Any,
) -> Any:
    def one(part: str) -> Any:
        found = re.match(r"(\w+)(?:\[(.*):(.*)\])?", part)
        assert found is not None, part
        arrays = _arrays(name, found[1])
        count = len(next(iter(arrays.values())))
        first, last = (_place(text, count) for text in (found[2] or "0", found[3] or str(count)))
        arrays = {key: value[first:last] for key, value in arrays.items()}
        value: Any = arrays
        if as_supervised:
            label = _LABELS.get(name, "label")
            rest = [array for key, array in arrays.items() if key != label]
            value = (rest[0] if len(rest) == 1 else arrays, arrays[label])
        if batch_size == -1:
            return tf.nest.map_structure(tf.constant, value)
        dataset = tf.data.Dataset.from_tensor_slices(value)
        return dataset.batch(batch_size) if batch_size else dataset

    if split is None:
        result: Any = {part: one(part) for part in ("train", "test")}
    elif isinstance(split, list | tuple):
        result = [one(str(part)) for part in split]
        result = result if isinstance(split, list) else tuple(result)
    else:
        result = one(str(getattr(split, "name", split)).lower())
    return (result, _info(name)) if with_info else result


def _place(text: str, count: int) -> int:
    return count * int(text[:-1]) // 100 if text.endswith("%") else min(int(text), count)
