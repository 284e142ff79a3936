"""SIGTERM to real tasks, wherever they are: all end after the same step, in time, with the exit code for it.

Jobs that mostly wait run side by side in one test.
"""

from __future__ import annotations

import json
import re
import signal
import time

from tests.engine.runtime.jobs import Job, Task, eventually

# From the request to the end of all tasks, most of which goes by while several jobs share the processors.
BOUND = 20.0

_PROGRAM = """
import os, sys, threading, time
import numpy as np
import lockstep as ls

alone = "TF_CONFIG" not in os.environ
strategy = ls.distribute.MirroredStrategy() if alone else ls.distribute.MultiWorkerMirroredStrategy()
import jax, keras

me = 0 if alone else strategy.cluster_resolver.task_id


class Slow(keras.layers.Layer):
    seconds = 0.0

    def call(self, x):
        if Slow.seconds:
            print("there", flush=True)
            threading.Event().wait(Slow.seconds)
        return x


with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), Slow(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
x, y = np.ones((400, 4), "float32"), np.ones((400, 1), "float32")


class Tells(keras.callbacks.Callback):
    steps = 0

    def __init__(self, kind):
        super().__init__()
        setattr(self, f"on_{kind}_batch_end", self.tell)

    def on_train_batch_end(self, batch, logs=None):
        Tells.steps += 1

    def tell(self, batch, logs=None):
        Tells.steps += 1
        if batch == 3:
            print("there", flush=True)


def batches():
    for number in range(10**9):
        if number == 40 and me == 1 or number == 40 and alone:
            print("there", flush=True)
            threading.Event().wait(100)
        elif number == 40:
            print("there", flush=True)
        yield x[:4], y[:4]


def step():
    model.fit(x, y, batch_size=4, epochs=10**6, verbose=0, callbacks=[Tells("train")])


def compilation():
    Slow.seconds = float(os.environ.get("SECONDS", "1"))
    step()


def evaluation():
    model.fit(x[:8], y[:8], batch_size=4, epochs=3, verbose=0, validation_data=forever(), validation_steps=10**8,
              callbacks=[Tells("test")])


def forever():
    while True:
        yield x[:4], y[:4]


def input_wait():
    model.fit(batches(), epochs=1, steps_per_epoch=10**8, verbose=0, callbacks=[Tells("train")])


def train(what):
    try:
        what()
    except ls.errors.Preempted as error:
        weights = float(sum(np.sum(w) for w in model.get_weights()))
        print("ended", int(model.optimizer.iterations), repr(weights), error, flush=True)
        raise
"""


def start(job: Job, what: str, count: int = 2, **env: str) -> list[Task]:
    """Starts the tasks of a job that trains."""
    source = _PROGRAM + f"\n\ntrain({what})\n"
    return job.start_all(source, count, **env) if count > 1 else [job.start(source, **env)]


def ended(task: Task) -> list[str]:
    """What a task has said of its end: the number of steps, the sum of the weights, and why."""
    found = re.search(r"^ended (\d+) (\S+) (.*)$", task.out, re.MULTILINE)
    assert found, (task.out, task.err[-3000:])
    return list(found.groups())


def test_all_end_after_the_same_step_wherever_they_are(job: Job) -> None:
    """The request comes twice: the second one must not disturb."""
    jobs = {
        ("step", 0): start(job, "step"),
        ("compilation", 1): start(job, "compilation"),
        ("evaluation", 0): start(job, "evaluation"),
        ("input_wait", 1): start(job, "input_wait"),
    }
    for tasks in jobs.values():
        for task in tasks:
            task.await_line("there")
    for (_, victim), tasks in jobs.items():
        tasks[victim].process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    for (_, victim), tasks in jobs.items():
        eventually(lambda t=tasks[victim]: "ended" in t.out or t.process.poll() is not None, lambda: "an end")
        if tasks[victim].process.poll() is None:
            tasks[victim].process.send_signal(signal.SIGTERM)
    for (what, victim), tasks in jobs.items():
        codes = [task.wait(BOUND) for task in tasks]
        assert codes == [143, 143], (what, codes, [task.err[-2000:] for task in tasks])
        first, second = map(ended, tasks)
        assert first == second, what
        assert first[2] == f"worker {victim} was asked to end (SIGTERM), and all tasks have ended after the same step."
        assert not any(task.report.exists() for task in tasks), "it is no failure"
        if what in ("step", "evaluation"):
            assert int(first[0]) > 0
    assert time.monotonic() - began < BOUND


def test_a_process_alone(job: Job) -> None:
    tasks = [start(job, what, 1)[0] for what in ("step", "input_wait")]
    for task in tasks:
        task.await_line("there")
        task.process.send_signal(signal.SIGTERM)
    for task in tasks:
        assert task.wait(BOUND) == 143, task.err[-2000:]
        assert ended(task)[2] == "this process was asked to end (SIGTERM), and has ended after a step."


def test_time_that_does_not_suffice(job: Job) -> None:
    """A compilation cannot be interrupted."""
    slow = start(job, "compilation", LOCKSTEP_GRACE="1.5", SECONDS="30")
    for task in slow:
        task.await_line("there")
    slow[1].process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert [task.wait(BOUND) for task in slow] == [143, 143], [task.err[-2000:] for task in slow]
    assert time.monotonic() - began < 10
    for task in slow:
        assert "the 1.5 s that a request to end (SIGTERM, to worker 1) leaves (LOCKSTEP_GRACE) are over" in task.err
        assert "Nothing was saved since the last checkpoint" in task.err


def test_between_runs_the_signal_is_the_program_s(job: Job) -> None:
    """Also in a task that has joined: jax would have taken it."""
    quiet = start(job, "(lambda: (print('there', flush=True), sys.stdin.readline()))")
    for task in quiet:
        task.await_line("there")
    quiet[1].process.send_signal(signal.SIGTERM)
    assert quiet[1].wait(BOUND) == -signal.SIGTERM


def test_a_stopped_task_that_wakes_up_writes_nothing(job: Job) -> None:
    """The others have given it up meanwhile, and may have started again."""
    program = """
import signal


class Saves(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 5 and me == 1:
            print("there", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)
            strategy._replicas.runtime.check_current()
            print("saved", flush=True)


model.fit(x, y, batch_size=4, epochs=10**6, verbose=0, callbacks=[Saves()])
"""
    first, second = job.start_all(_PROGRAM + program, 2, LOCKSTEP_SILENCE_TIMEOUT="2")
    second.await_line("there")
    assert first.wait(BOUND) == 1
    assert "worker 1 does not: its process is stopped" in first.err
    assert "worker 1 does not" in json.loads(first.report.read_text())["message"]
    second.process.send_signal(signal.SIGCONT)
    assert second.wait(BOUND) != 0
    assert "saved" not in second.out


def test_a_task_that_is_stuck_says_where(job: Job) -> None:
    program = """
def stuck_here():
    threading.Event().wait(100)


class Sticks(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 5 and me == 1:
            stuck_here()


model.fit(x, y, batch_size=4, epochs=10**6, verbose=0, callbacks=[Sticks()])
"""
    first, second = job.start_all(_PROGRAM + program, 2, LOCKSTEP_PROGRESS_TIMEOUT="2")
    assert [first.wait(BOUND), second.wait(BOUND)] == [1, 1]
    for task in (first, second):
        assert "worker 1 has been in callbacks or hooks for" in task.err
        assert "in stuck_here" in task.err
    report = json.loads(second.report.read_text())
    assert report["type"] == "TimeoutError" and not report["secondary"]
    assert "in stuck_here" in report["traceback"]
    assert json.loads(first.report.read_text())["secondary"]
