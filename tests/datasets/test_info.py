"""Features: shapes, types, and the names of classes."""

from __future__ import annotations

import numpy as np
import pytest

from lockstep.datasets import ClassLabel, FeaturesDict, Image, Tensor, Text
from lockstep.errors import ArgumentError


def test_classes_have_names_and_numbers() -> None:
    label = ClassLabel(names=["cat", "dog"])
    assert (label.num_classes, label.names) == (2, ["cat", "dog"])
    assert [label.int2str(np.int64(1)), label.str2int("cat")] == ["dog", 0]
    assert ClassLabel(3).names == ["0", "1", "2"]


@pytest.mark.parametrize("number", [-1, 2])
def test_a_number_of_no_class_is_refused(number: int) -> None:
    with pytest.raises(ArgumentError, match=f"from 0 to 1. Received: {number}"):
        ClassLabel(2).int2str(number)


def test_a_name_of_no_class_is_refused() -> None:
    with pytest.raises(ArgumentError, match="no class 'cow'; the classes are cat, dog"):
        ClassLabel(names=["cat", "dog"]).str2int("cow")


def test_classes_are_counted_or_named() -> None:
    with pytest.raises(ArgumentError, match="num_classes or names"):
        ClassLabel()


def test_a_dict_of_features() -> None:
    features = FeaturesDict({"image": Image(), "text": Text(), "x": Tensor((2,), np.dtype(np.float32))})
    assert features.shape == {"image": (None, None, 3), "text": (), "x": (2,)}
    assert features.dtype == {"image": np.uint8, "text": object, "x": np.float32}
    assert features.get("label") is None
    assert list(features) == ["image", "text", "x"]
    with pytest.raises(ArgumentError, match=r"(?m)^There is no feature 'label'; the features are image, text, x\.$"):
        features["label"]
