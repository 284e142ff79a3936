"""What communication.py measures: ways to add up that end alike, parts that are measured once, and bars."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest

import lockstep as ls
from benchmarks.harness.processes import Result
from benchmarks.traffic import command, pages, programs

ROWS, BATCH, SHAPE = 54, 16, (10, 10, 1)


@pytest.fixture(autouse=True, scope="module")
def _compiled_quickly() -> Iterator[None]:
    """What is computed counts, not how fast."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@cache
def _trained(name: str) -> list[np.ndarray]:
    """Weights after 16 steps, the last of each epoch on 6 examples; without a name, of one device."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(ROWS, *SHAPE)).astype("float32"), random.integers(0, 10, ROWS, dtype="int32")
    strategy = programs.choice_of(ls.distribute, name) if name else ls.distribute.OneDeviceStrategy("cpu:0")
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = programs.smooth_model_for(keras, SHAPE, 10)
    begun = model.get_weights()
    model.fit(x, y, batch_size=BATCH, epochs=4, shuffle=False, verbose=0)
    # Each has moved by far more than it may be apart.
    assert all(np.abs(a - b).max() > 1e3 * pages.APART for a, b in zip(model.get_weights(), begun, strict=True))
    return model.get_weights()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "RING",
        "HierarchicalCopyAllReduce(num_packs=3)",
        *(
            pytest.param(name, marks=pytest.mark.exhaustive)
            for name in programs.CHOICES
            if name not in ("RING", "HierarchicalCopyAllReduce(num_packs=3)")
        ),
    ],
)
def test_a_smooth_network_ends_with_the_weights_of_one_device(name: str) -> None:
    assert programs.apart(_trained(name), _trained("")) < pages.APART


def test_what_is_measured_already_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Any]] = []

    def measure(*arguments: Any) -> Result:
        asked.append((arguments[3], arguments[4]))
        return Result({"accuracy": 0.5, "bytes": 8.0}, 0.25)

    monkeypatch.setattr(command, "measure", measure)
    for _ in range(2):
        parts = command.Parts(tmp_path, [])
        assert parts.measured("accuracy", {"seed": 0, "limit": 5}) == {"accuracy": 0.5, "bytes": 8.0}
        assert parts.others == 0
        parts.measured("accuracy", {"seed": 1, "limit": 6})
        parts.measured("sent", {"seed": 0, "limit": 5})
        assert parts.others == 0.25
    assert [function for function, _ in asked] == ["accuracy", "accuracy", "sent"]


def _result(accuracies: list[float], apart: float) -> dict[str, Any]:
    sent = {"collectives": {"all-reduce": 2}, "bytes": 1000.0, "measured": 1100.0, "steps/s": 10.0}
    by = {
        "none": {**sent, "accuracies": [0.98, 0.97]},
        "bfloat16": {**sent, "bytes": 500.0, "accuracies": accuracies},
        "LocalSteps, every 50": {**sent, "bytes": 20.0, "accuracies": accuracies},
    }
    return {
        "command": "python benchmarks/communication.py",
        "date": "2026-01-01 00:00 UTC",
        "machine": {"processor": "a processor", "cores": "2", "system": "a system"},
        "rounds": 1,
        "versions": {},
        "others": 0.25,
        "choices": {"AUTO": {**sent, "apart": 0.0}, "RING": {**sent, "apart": apart}},
        "compressions": {"digits": {"source": "10 digits", "epochs": 4, "seeds": 2, "by": by}},
    }


def test_bars_are_of_the_mean_over_seeds(tmp_path: Path) -> None:
    result = _result([0.974, 0.973], 1.1e-6)
    pages.write(result, tmp_path)
    text = (tmp_path / "communication.md").read_text()
    assert json.loads((tmp_path / "communication.json").read_text()) == result
    assert "| AUTO | 2 all-reduce | 1,000 | 10.0 | 0e+00 | reached |" in text
    assert "| RING | 2 all-reduce | 1,000 | 10.0 | 1e-06 | not reached |" in text
    assert "| none | 1,000 | 1,100 | 1.0 | 10.0 | 2 | 97.50 % (97.00 to 98.00) |  |  |" in text
    # 0.6 points less and 0.3 more.
    assert (
        "| bfloat16 | 500 | 1,100 | 2.0 | 10.0 | 2 | 97.35 % (97.30 to 97.40) | -0.15 (-0.60 to +0.30) | reached |"
        in text
    )
    assert "| 50.0 | 10.0 | 2 | 97.35 % (97.30 to 97.40) | -0.15 (-0.60 to +0.30) | reached |" in text
    worse = pages.markdown(_result([0.973, 0.972], 0.0))
    assert "| 2.0 | 10.0 | 2 | 97.25 % (97.20 to 97.30) | -0.25 (-0.70 to +0.20) | not reached |" in worse
    assert "| 50.0 | 10.0 | 2 | 97.25 % (97.20 to 97.30) | -0.25 (-0.70 to +0.20) | reached |" in worse
    assert "25% of the machine" in worse
