"""Kills the chief around the writing of its checkpoints: python -m tests.chaos.kills [--kills 200].

A training saves after every step, and is killed by SIGKILL at a random instant after it has said that one was saved;
then it goes on where it stood. After each kill the newest checkpoint must load, and be no older than what was said.
When all is done the weights must be those of a training that nobody has killed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import select
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import lockstep as ls
from lockstep.checkpoint import CheckpointStore, load_newest
from lockstep.training.callbacks import BackupAndRestore

BATCHES = 50
PATIENCE = 120.0
# A step and the writing of its checkpoint take some 10 ms.
_LONGEST = 0.03


def main() -> int:
    """Returns how many trainings came to other weights."""
    parser = argparse.ArgumentParser(description="SIGKILL around checkpoint writes.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    kills = trainings = failed = half_written = 0
    while kills < given.kills:
        with tempfile.TemporaryDirectory(prefix="lockstep-kills-") as name:
            found = _training(Path(name), given.kills - kills, chance)
        trainings, kills, half_written = trainings + 1, kills + found[0], half_written + found[1]
        failed += not found[2]
        print(f"{kills} kills, {half_written} while a file was half-written", flush=True)
    print(f"{trainings - failed} of {trainings} trainings end with the weights of an undisturbed one")
    return failed


def _training(base: Path, kills: int, chance: random.Random) -> tuple[int, int, bool]:
    """Kills a training until it is done; returns how often, how often while it wrote, and whether it came out right."""
    directory, epochs = base / "backup", max(2, kills // 4)
    done = half_written = 0
    while done < kills and _life(directory, epochs, chance):
        done += 1
        half_written += any(entry.startswith(".") for entry in os.listdir(directory))
    _life(directory, epochs, None)
    again = base / "undisturbed"
    _life(again, epochs, None)
    return done, half_written, _equal(directory, again)


def _life(directory: Path, epochs: int, chance: random.Random | None) -> bool:
    """Runs the training in a process of its own; returns whether it was killed before its end."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _child(directory, epochs, writing)
    os.close(writing)
    with contextlib.closing(os.fdopen(reading)) as said:
        if chance is not None and select.select([said], [], [], PATIENCE)[0]:
            time.sleep(chance.uniform(0, _LONGEST))
            os.kill(child, signal.SIGKILL)
        saved = [int(line) for line in said if line.endswith("\n")]
    was_killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
    found = load_newest(directory, strict=True)
    assert found is not None, "no checkpoint is left"
    assert found.step >= max(saved, default=0), f"step {max(saved)} was said to be saved; the newest is {found.step}"
    return was_killed


def _child(directory: Path, epochs: int, writing: int) -> None:
    """Trains, says what was saved, and ends."""
    code = 1
    with contextlib.suppress(KeyboardInterrupt):
        code = _fit(directory, epochs, writing)
    sys.stdout.flush()
    os._exit(code)


def _fit(directory: Path, epochs: int, writing: int) -> int:
    import keras

    keras.utils.set_random_seed(1)
    with ls.distribute.OneDeviceStrategy("/cpu:0").scope():
        model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(64, "tanh"), keras.layers.Dense(4)])
        model.compile("adam", "mse")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(BATCHES * 8, 32)).astype("float32"), rng.normal(size=(BATCHES * 8, 4)).astype("float32")
    backup = BackupAndRestore(directory, save_freq=1, delete_checkpoint=False)
    _say_saves(writing)
    model.fit(x, y, 8, epochs, verbose=0, callbacks=[backup])
    return 0


def _say_saves(writing: int) -> None:
    """Says the step of each checkpoint once its writer counts it as saved."""
    save, wait = CheckpointStore.save, CheckpointStore.wait
    last: list[int] = []

    def noted(store: Any, step: int, *arguments: Any, **options: Any) -> Any:
        path = save(store, step, *arguments, **options)
        last[:] = [step]
        return path

    def waited(store: Any) -> None:
        wait(store)
        if last:
            os.write(writing, b"%d\n" % last.pop())

    CheckpointStore.save, CheckpointStore.wait = noted, waited  # type: ignore[method-assign]


def _equal(one: Path, other: Path) -> bool:
    mine, theirs = load_newest(one), load_newest(other)
    assert mine is not None
    assert theirs is not None
    weights = {k: v for k, v in theirs.arrays.items() if k.startswith(("trainable", "optimizer"))}
    return bool(weights) and all(np.array_equal(mine.arrays[key], value) for key, value in weights.items())


if __name__ == "__main__":
    sys.exit(main())
