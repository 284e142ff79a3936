"""tf.DeviceSpec: names and their parts, as TensorFlow 2.15 has them."""

from __future__ import annotations

import pytest

import lockstep.compat.tensorflow as tf


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("/job:worker/replica:0/task:1/device:GPU:2", "/job:worker/replica:0/task:1/device:GPU:2"),
        ("/cpu:0", "/device:CPU:0"),
        ("cpu:0", "/device:CPU:0"),
        ("gpu", "/device:GPU:*"),
        ("/job:ps/task:3", "/job:ps/task:3"),
        ("/device:CPU:*", "/device:CPU:*"),
        ("", ""),
    ],
)
def test_a_name_is_read_and_written(name: str, full: str) -> None:
    assert tf.DeviceSpec.from_string(name).to_string() == full


def test_specs_are_values() -> None:
    spec = tf.DeviceSpec(job="w", task=1, device_type="cpu")
    assert spec == tf.DeviceSpec(job="w", task=1, device_type="CPU") and len({spec, spec}) == 1
    assert spec.make_merged_spec(tf.DeviceSpec.from_string("/device:GPU:1")).to_string() == "/job:w/task:1/device:GPU:1"
    assert spec.replace(job="k").to_string() == "/job:k/task:1/device:CPU:*"
    assert repr(spec) == "<DeviceSpec(job=w, replica=None, task=1, device_type=CPU, device_index=None)>"


@pytest.mark.parametrize("name", ["/foo:1", "/job:a/b", "/gpu:x"])
def test_other_parts_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="device"):
        tf.DeviceSpec.from_string(name)
