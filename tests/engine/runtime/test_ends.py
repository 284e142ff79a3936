"""How the processes of a job end: together and in order, or together and at once, knowing why.

Every program trains for real, and what happens to it is real: exceptions, exits, signals. Jobs that mostly wait run
side by side in one test.
"""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import pytest

from tests.engine.runtime.jobs import PATIENCE, Job, Task

# From what happens on one task to the end of all others.
BOUND = 15.0

_MODEL = """
import os, sys
import numpy as np
import lockstep as ls

strategy = ls.distribute.MultiWorkerMirroredStrategy()
import keras

me = strategy.cluster_resolver.task_id
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
x, y = np.ones((4000, 4)), np.ones((4000, 1))


class AtStep(keras.callbacks.Callback):
    def __init__(self, step, act):
        super().__init__()
        self.step, self.act = step, act

    def on_train_batch_end(self, batch, logs=None):
        if batch == self.step:
            self.act()


def batches():
    while True:
        yield x[:4], y[:4]


def train(act=None, data="arrays", **arguments):
    callbacks = [AtStep(3, lambda: print("training", flush=True)), *([AtStep(5, act)] if act else [])]
    if data == "arrays":
        model.fit(x, y, batch_size=4, epochs=1000, verbose=0, callbacks=callbacks)
    else:
        model.fit(batches(), epochs=1, steps_per_epoch=1000000, verbose=0, callbacks=callbacks)


def fail():
    raise RuntimeError("the first cause")


def short():
    model.fit(x[:8], y[:8], batch_size=4, verbose=0)
"""


def start(job: Job, program: str, count: int = 2, **env: str) -> list[Task]:
    """Starts `program` after the lines above, on every worker, with a file for its report of failure."""
    return job.start_all(_MODEL + program, count, **env)


def report(task: Task) -> dict[str, Any]:
    """What a task has written for the launcher."""
    return json.loads(task.report.read_text())


def assert_ends(task: Task, *told: str, within: float = PATIENCE, code: int = 1) -> None:
    """A task ends by itself, not well, and says why."""
    assert task.wait(within) == code, task.err[-3000:]
    for text in told:
        assert text in task.err, task.err[-3000:]


def await_training(*tasks: Task) -> None:
    for task in tasks:
        task.await_line("training")


def test_whoever_finishes_first_waits_for_the_others(job: Job) -> None:
    chief, other = start(job, "short()\nif me:\n    input()\nprint('done', flush=True)")
    chief.await_line("done")
    with pytest.raises(AssertionError, match="not in 1 s"):
        chief.wait(1)
    other.tell("go on")
    assert [chief.wait(BOUND), other.wait(BOUND)] == [0, 0]
    for task in (chief, other):
        assert task.err == ""
        assert not task.report.exists()


def test_an_exception_ends_all_with_its_cause(job: Job) -> None:
    jobs = [
        start(job, f"train(fail if me == {k} else None, {data!r})") for k, data in ((0, "arrays"), (1, "generator"))
    ]
    for failed, tasks in enumerate(jobs):
        await_training(*tasks)
        assert_ends(tasks[failed], "RuntimeError: the first cause")
        cause = f"worker {failed} failed first: RuntimeError: the first cause"
        assert_ends(tasks[1 - failed], cause)
        first, second = report(tasks[failed]), report(tasks[1 - failed])
        told = [first[name] for name in ("task", "type", "message")]
        assert told == [f"worker {failed}", "RuntimeError", "the first cause"]
        assert first["traceback"].startswith("Traceback") and "in fail" in first["traceback"]
        assert not first["secondary"]
        assert (second["task"], second["type"], second["secondary"]) == (f"worker {1 - failed}", "PeerError", True)
        assert cause in second["message"]
        assert 0 < second["time"] - first["time"] < BOUND


def test_an_exception_outside_of_training_ends_those_who_train(job: Job) -> None:
    chief, other = start(job, "fail() if me else train()")
    assert_ends(other, "RuntimeError: the first cause")
    assert_ends(chief, "PeerError: worker 1 failed first: RuntimeError: the first cause")


def test_a_worker_that_leaves_is_named_by_those_that_train(job: Job) -> None:
    jobs = [start(job, f"short()\nsys.exit(3) if me == {k} else train()") for k in (0, 1)]
    for leaver, tasks in enumerate(jobs):
        told = f"worker {leaver} ended its program while worker {1 - leaver} is in fit."
        assert_ends(tasks[1 - leaver], f"PeerError: Every task must make the same calls. {told}")
        assert_ends(tasks[leaver], f"worker {leaver} had ended its program when this happened: ", told, code=3)
        assert report(tasks[1 - leaver])["secondary"]
        found = report(tasks[leaver])
        assert (found["type"], found["message"], found["secondary"]) == ("SystemExit", "3", False)


def test_a_killed_worker_ends_the_others(job: Job) -> None:
    """Without a launcher: whoever is left notices, and says who is gone."""
    victims = start(job, "train(data='generator')", 3)
    chiefless = start(job, "train()")
    await_training(*victims, *chiefless)
    victims[2].process.send_signal(signal.SIGKILL)
    chiefless[0].process.send_signal(signal.SIGKILL)
    began = time.monotonic()
    for task in victims[:2]:
        assert_ends(task, "PeerError: ", "worker 2 has gone: its process ended without a word")
        assert report(task)["secondary"]
    # The service has died with the chief, and jaxlib ends whoever is connected to it.
    assert chiefless[1].wait(BOUND) != 0
    assert time.monotonic() - began < BOUND


def test_a_stopped_worker_ends_the_others(job: Job) -> None:
    """Its connections stay open, and it sends nothing: only its heartbeats tell."""
    jobs = [start(job, f"train(data={data!r})", LOCKSTEP_SILENCE_TIMEOUT="2") for data in ("generator", "arrays")]
    for tasks in jobs:
        await_training(*tasks)
    for stopped, tasks in enumerate(jobs):
        tasks[stopped].process.send_signal(signal.SIGSTOP)
    for stopped, tasks in enumerate(jobs):
        told = f"(LOCKSTEP_SILENCE_TIMEOUT). worker {stopped} does not: its process is stopped"
        assert_ends(tasks[1 - stopped], "heartbeat at least every 2 s", told, within=BOUND)
        assert told in report(tasks[1 - stopped])["message"]


def test_an_interrupted_worker_ends_the_others(job: Job) -> None:
    tasks = start(job, "train()")
    await_training(*tasks)
    tasks[1].process.send_signal(signal.SIGINT)
    assert_ends(tasks[0], "worker 1 failed first: KeyboardInterrupt", within=BOUND)
    assert_ends(tasks[1], "KeyboardInterrupt")


def test_all_tasks_end_with_a_difference_that_all_have_found(job: Job) -> None:
    """However quick one is to end, the others learn it too."""
    for task in start(job, "model.fit(x[:8], y[:8], batch_size=4, epochs=1 + me, verbose=0)"):
        assert_ends(task, "MismatchError: All tasks must have the same arguments of fit. worker 1: epochs is 2, but 1")
        assert not report(task)["secondary"]


_SLOW = """
class AtEnd(keras.callbacks.Callback):
    def wait(self, logs=None):
        if me:
            input()


kind = sys.argv[1]
setattr(AtEnd, f"on_{kind}_end", AtEnd.wait)
if kind == "train":
    found = model.fit(x[:8], y[:8], batch_size=4, verbose=0, callbacks=[AtEnd()]).history["loss"]
elif kind == "test":
    found = model.evaluate(x[:8], y[:8], batch_size=4, verbose=0, callbacks=[AtEnd()])
else:
    found = model.predict(x[:8], batch_size=4, verbose=0, callbacks=[AtEnd()])
assert np.size(found)
print("done", flush=True)
"""


def test_a_failed_task_may_be_slow_to_write_its_output(job: Job) -> None:
    """Keeps jax's service until the last process has ended, here one whose output is read slowly."""
    tasks = start(
        job,
        """
import io, time

class Slow(io.StringIO):
    def flush(self):
        time.sleep(1.0)


if me == 1:
    sys.stdout = Slow()
model.fit(x[:8], y[:8], batch_size=4, epochs=1 + me, verbose=0)
""",
    )
    for task in tasks:
        assert_ends(task, "All tasks must have the same arguments of fit")


def test_a_callback_at_the_end_may_take_its_time(job: Job) -> None:
    """What is left of a call is each task's own affair: others may have ended their programs, and wait for it."""
    kinds = ("train", "test", "predict")
    jobs = [start(job, f"sys.argv = ['', {kind!r}]\n{_SLOW}") for kind in kinds]
    for chief, _ in jobs:
        chief.await_line("done")
    with pytest.raises(AssertionError, match="not in 7 s"):  # Longer than the grace of a task that is missed.
        jobs[-1][0].wait(7)
    for chief, other in jobs:
        assert chief.process.poll() is None
        other.tell("go on")
        other.await_line("done")
        assert [chief.wait(BOUND), other.wait(BOUND)] == [0, 0]
        assert other.err == ""


def test_a_failure_at_the_end_is_that_of_its_task(job: Job) -> None:
    program = """
class Fails(keras.callbacks.Callback):
    def on_train_end(self, logs=None):
        if me:
            fail()

model.fit(x[:8], y[:8], batch_size=4, verbose=0, callbacks=[Fails()])
print("done", flush=True)
"""
    chief, other = start(job, program)
    chief.await_line("done")
    assert_ends(other, "RuntimeError: the first cause")
    assert_ends(chief, "worker 0 had ended its program when this happened: worker 1 failed first: RuntimeError: the fi")


def test_a_worker_that_goes_without_a_word_is_named_at_once(job: Job) -> None:
    """Whatever the others are in: nothing waits for a process that has ended."""
    programs = {
        "waits at its end": "short()\nif me == 1:\n    os._exit(0)",
        "waits for the call": "short()\nif me == 1:\n    os._exit(0)\nshort()",
        "trains": "train(lambda: os._exit(0) if me == 1 else None)",
        "reads": "train(lambda: os._exit(0) if me == 1 else None, 'generator')",
    }
    jobs = [start(job, program, 3) for program in programs.values()]
    for tasks in jobs:
        assert tasks[1].wait(PATIENCE) == 0
    began = time.monotonic()
    for tasks in jobs:
        for task in (tasks[0], tasks[2]):
            assert_ends(task, "worker 1 has gone: its process ended without a word", within=BOUND)
            assert "failed first" not in task.err
    assert time.monotonic() - began < BOUND


def test_the_first_task_that_goes_without_a_word_is_named(job: Job) -> None:
    """Jaxlib ends those who are connected to it, without saying whose end it is."""
    chief, *others = start(job, "short()\nif me == 0:\n    os._exit(0)\nshort()", 3)
    assert chief.wait(PATIENCE) == 0
    for task in others:
        assert task.wait(BOUND) != 0
        assert "worker 0, which all others report to, has gone" in task.err
        assert "worker 0, which all others report to, has gone" in report(task)["message"]


def test_an_exit_in_a_callback_is_the_first_cause_everywhere(job: Job) -> None:
    tasks = start(job, "train(lambda: sys.exit(0) if me == 1 else None)", 3)
    cause = "worker 1 failed first: SystemExit: 0: its program ended in fit, which all tasks go through together."
    for task in tasks:
        assert_ends(task, cause)
        for name in ("worker 0", "worker 2"):
            assert f"{name} failed first" not in task.err
    assert [report(task)["secondary"] for task in tasks] == [True, False, True]


def test_an_exit_on_all_tasks_at_the_same_step_is_an_end(job: Job) -> None:
    for task in start(job, "train(lambda: sys.exit(0))"):
        assert task.wait(PATIENCE) == 0, task.err


def test_every_task_names_the_first_cause(job: Job) -> None:
    """Also those that hear of it from a task that ended because of it."""
    tasks = start(job, "train(fail if me == 2 else None, 'generator')", 3)
    for task in tasks[:2]:
        assert_ends(task, "worker 2 failed first: RuntimeError: the first cause")
        assert "PeerError: worker 1 failed" not in task.err and "PeerError: worker 0 failed" not in task.err
    assert_ends(tasks[2], "RuntimeError: the first cause")


def test_limits_of_patience(job: Job) -> None:
    busy = start(job, "if me:\n    print('busy', flush=True); input()\nshort()", LOCKSTEP_PEER_TIMEOUT="2")
    leaving = start(job, "short()\nif me:\n    input()", LOCKSTEP_LEAVE_TIMEOUT="2")
    assert_ends(busy[0], "MissingTaskError: Every task must reach fit within 2 s", "Here: worker 0. Missing: worker 1.")
    assert_ends(leaving[0], "worker 1 did not end within 2 s (LOCKSTEP_LEAVE_TIMEOUT)")


def test_a_failure_that_the_program_has_handled_is_still_one(job: Job) -> None:
    """The others could not go on, so the job has not succeeded."""
    handled = """
try:
    train(fail if me else None)
except RuntimeError:
    print("handled", flush=True)
"""
    chief, other = start(job, handled)
    other.await_line("handled")
    assert_ends(chief, "worker 1 failed first: RuntimeError: the first cause")
    assert_ends(other, "worker 1 had ended its program when this happened: ")
