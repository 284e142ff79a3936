"""Own loops whose replicas divide the optimizer's state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import pytest

import lockstep as ls
from lockstep.errors import ArgumentError, UnsupportedError
from tests.support.training import Results, assert_close, mirrored
from tests.training import sharded

_WITHIN = 5e-6


@pytest.fixture(scope="module")
def whole() -> Results:
    return sharded.run(mirrored(1), is_divided=False)


@pytest.mark.slow
def test_it_is_one_devices_training(whole: Results) -> None:
    assert_close(sharded.run(mirrored()), whole, _WITHIN)


@pytest.mark.slow
def test_a_loop_of_single_steps(whole: Results) -> None:
    found, plain = sharded.singly(mirrored()), sharded.singly(mirrored(), is_divided=False)
    assert found.pop("bytes") < 0.3 * plain.pop("bytes")
    assert_close(found, plain, _WITHIN)
    assert_close(found, {k: v for k, v in whole.items() if not k.startswith("at ")}, _WITHIN)


@pytest.mark.slow
def test_it_goes_on_whole_and_in_other_parts(whole: Results, tmp_path: Path) -> None:
    sharded.run(mirrored(), directory=str(tmp_path), epochs=1)
    for count, is_divided, epochs in ((2, True, 2), (2, False, 3)):
        found = sharded.run(mirrored(count), is_divided, str(tmp_path), epochs)
        expected = whole if epochs == 2 else sharded.run(mirrored(1), is_divided=False, epochs=3)
        assert_close(found, {name: expected[name] for name in found}, _WITHIN)


def test_what_cannot_be_is_refused() -> None:
    strategy = mirrored(2, shard_optimizer_state=True)
    with pytest.raises(ArgumentError, match=r"Received: no optimizer_state\. Example: .*lambda state"):
        ls.training.Program(sharded.step, strategy)
    with pytest.raises(ArgumentError, match="is a function of a state"):
        ls.training.Program(sharded.step, strategy, optimizer_state="slots")  # pyright: ignore[reportArgumentType]
    part: Any = lambda state: state["slots"]  # noqa: E731
    with pytest.raises(UnsupportedError, match='view="replica", in which each replica computes the whole'):
        ls.training.Program(sharded.step, strategy, view="replica", optimizer_state=part)
    program = ls.training.Program(sharded.step, strategy, optimizer_state=lambda state: "slots")
    with pytest.raises(ArgumentError, match="returns the part of a state that is the optimizer's: arrays"):
        program.fit(sharded.first_state(), sharded.dataset(), verbose=0)
    # One device does without; what says which part it is need not be left out.
    assert ls.training.Program(sharded.step, mirrored(1, shard_optimizer_state=True))
    assert ls.training.Program(sharded.step, mirrored(2), optimizer_state=part)
    assert len(jax.devices()) >= 4
