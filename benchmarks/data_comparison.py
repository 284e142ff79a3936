"""Measures the cost of comparing data between workers (`LOCKSTEP_COMPARE_DATA`): rows 1, 2 and 4 with and without it.

    python benchmarks/data_comparison.py [--rounds 9] [--cases 4 2x2] [--keep]

Both ways take turns in the same processes, there and back, with the same model. A process that trains alone has nobody
to compare with, so rows 1 and 2 should cost nothing; row 2 also runs on two workers, whose steps are the shortest.
`--keep` writes `results/data_comparison.md`.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# The checkout, not this directory, is where modules are looked for.
_ROOT = Path(__file__).resolve().parents[1]
sys.path[0:1] = [str(_ROOT), str(_ROOT / "src")]

from benchmarks.harness import data  # noqa: E402
from benchmarks.harness.environments import variables  # noqa: E402
from benchmarks.harness.machine import machine, now  # noqa: E402
from benchmarks.harness.processes import end_with_children, gang, tf_configs  # noqa: E402

_MODULE, _VARIABLE = "benchmarks.data_comparison", "LOCKSTEP_COMPARE_DATA"
_BAR = 0.01
# Name: what it is, the function that measures it, and how many workers.
CASES = {
    "1": ("Estimator", "estimator", 1),
    "2": ("MLP, `fit` of a dataset", "mlp_dataset", 1),
    "2a": ("MLP, `fit` of arrays", "mlp_arrays", 1),
    "4": ("Multi-worker tutorial's CNN", "cnn", 2),
    "2x2": ("MLP, `fit` of a dataset", "mlp_dataset", 2),
    "2ax2": ("MLP, `fit` of arrays", "mlp_arrays", 2),
    "generator": ("MLP, `fit` of a generator", "mlp_generator", 2),
}
Rates = dict[str, list[float]]


def estimator(options: Mapping[str, Any]) -> Rates:
    """Row 1: an epoch in `train_and_evaluate`."""
    import lockstep.compat.tensorflow as tf
    from benchmarks.rows.estimator import whole

    logger = logging.getLogger("lockstep")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return _alternated(options, lambda: whole(tf, {**options, "logged": 50}, logger)["steps/s"])


def mlp_dataset(options: Mapping[str, Any]) -> Rates:
    """Row 2: a dataset."""
    import lockstep as ls

    return _mlp(options, lambda x, y, size: {"x": ls.data.Dataset.from_tensor_slices((x, y)).batch(size)})


def mlp_arrays(options: Mapping[str, Any]) -> Rates:
    """Row 2: arrays."""
    return _mlp(options, lambda x, y, size: {"x": x, "y": y, "batch_size": size})


def mlp_generator(options: Mapping[str, Any]) -> Rates:
    """Row 2's network on batches that each worker has whole."""

    def given(x: Any, y: Any, size: int) -> dict[str, Any]:
        steps = len(x) // size
        batches = ((x[i % steps * size :][:size], y[i % steps * size :][:size]) for i in range(1 << 30))
        return {"x": batches, "steps_per_epoch": steps}

    return _mlp(options, given)


def _mlp(options: Mapping[str, Any], given: Callable[[Any, Any, int], dict[str, Any]]) -> Rates:
    import lockstep as ls  # isort: split
    import keras

    from benchmarks.programs import keras_models
    from benchmarks.programs.examples import flat_digits

    x, y = flat_digits(options["data"], 16_000)
    strategy = ls.distribute.MultiWorkerMirroredStrategy()
    size = 32 * strategy.num_replicas_in_sync
    with strategy.scope():
        model = keras_models.mlp(keras)
    return _alternated(options, lambda: _rate(keras, model, len(x) // size, 4, given(x, y, size)))


def cnn(options: Mapping[str, Any]) -> Rates:
    """Row 4."""
    import lockstep as ls  # isort: split
    import keras

    from benchmarks.programs import keras_models
    from benchmarks.programs.examples import square_digits

    examples = square_digits(options["data"])
    strategy = ls.distribute.MultiWorkerMirroredStrategy()
    size = 64 * strategy.num_replicas_in_sync
    with strategy.scope():
        model = keras_models.workers_cnn(keras)

    def measure() -> float:
        dataset = ls.data.Dataset.from_tensor_slices(examples).shuffle(60000).repeat().batch(size)
        return _rate(keras, model, 70, 2, {"x": dataset, "steps_per_epoch": 70})

    return _alternated(options, measure)


def _rate(keras: Any, model: Any, steps: int, epochs: int, given: dict[str, Any]) -> float:
    """Returns steps/s of so many epochs, after one."""
    ends: list[float] = []
    clock = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ends.append(time.perf_counter()))
    model.fit(epochs=1 + epochs, callbacks=[clock], verbose=0, **given)
    return steps * epochs / (ends[-1] - ends[0])


def _alternated(options: Mapping[str, Any], measure: Callable[[], float]) -> Rates:
    """Measures both ways in turn, after a first time that compiles."""
    measure()
    found: Rates = {"0": [], "1": []}
    for number in range(options["rounds"]):
        for setting in ("0", "1") if number % 2 == 0 else ("1", "0"):
            os.environ[_VARIABLE] = setting
            found[setting].append(measure())
    return found


def _measured(name: str, options: Mapping[str, Any]) -> str:
    """Measures a case; returns its line of the table."""
    what, function, workers = CASES[name]
    own = tf_configs(workers) if workers > 1 else [{}]
    environments = [{**variables("lockstep"), **one} for one in own]
    found: Any = gang(_MODULE, function, options, environments, 3000)[0]
    without, with_ = (statistics.median(found[setting]) for setting in ("0", "1"))
    losses = [1 - b / a for a, b in zip(found["0"], found["1"], strict=True)]
    cost = 1 - with_ / without
    spread = f"{min(losses):.1%} to {max(losses):.1%}"
    reached = "yes" if cost <= _BAR else "no"
    return f"| {name} | {what} | {workers} | {without:.1f} | {with_:.1f} | {cost:.2%} ({spread}) | {reached} |"


def main() -> None:
    """Prints a table."""
    end_with_children()
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--data", help="a directory with mnist/")
    parser.add_argument("--keep", action="store_true", help="write results/data_comparison.md")
    given = parser.parse_args()
    lines = [
        f"{now()}; {', '.join(machine().values())}; {given.rounds} rounds, medians; in brackets all rounds' range.",
        "",
        f"| row | work | workers | steps/s without | with | cost | at most {_BAR:.0%} |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory() as prepared:
        data.prepare(Path(prepared), {"digits"}, given.data)
        for name in given.cases:
            lines.append(_measured(name, {"rounds": given.rounds, "data": prepared}))
            print(lines[-1], flush=True)
    if given.keep:
        heading = "# What it costs that workers compare their data\n\n`python benchmarks/data_comparison.py --keep`. "
        (_ROOT / "benchmarks" / "results" / "data_comparison.md").write_text(heading + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
