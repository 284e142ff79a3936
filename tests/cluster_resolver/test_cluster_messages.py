from __future__ import annotations

import subprocess
import sys

from lockstep.cluster_resolver._field import MISSING, Field, shown


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def test_every_message_has_one_shape() -> None:
    error = Field("cluster", {}).item("worker", []).item(1, "x").error("must be so", '"y"')
    assert str(error) == 'cluster["worker"][1] must be so.\nReceived: \'x\'\nCorrect example: "y"'


def test_whatever_is_received_can_be_shown_shortly() -> None:
    for value in [
        "x" * 10**6,
        list(range(10**5)),
        {i: i for i in range(10**4)},
        10**5000,
        nested(10**5),
        Unprintable(),
    ]:
        assert 0 < len(shown(value)) <= 160
    assert shown(MISSING) == "nothing (it is missing)"


def test_keys_of_field_names_are_shown_shortly_and_can_be_printed() -> None:
    assert Field("cluster", {}).item("\ud800", 1).name == r'cluster["\ud800"]'
    assert len(Field("cluster", {}).item("x" * 10**6, 1).name) < 200


def test_the_package_is_made_of_plain_values() -> None:
    program = "import sys, lockstep.cluster_resolver; print([m for m in ('jax', 'keras', 'numpy') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "[]"
