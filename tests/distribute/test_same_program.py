"""All tasks must run the same program: one that is new is compared before it runs."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lockstep._engine.step import program_digest
from lockstep._engine.step.program_digest import Line, jaxpr_lines
from tests.support.cluster import Cluster, environment, shared

pair = shared(2)

RUN = {
    "shape": 'argument[\'args[0]\'] is "float32[4]", but "float32[3]" on worker 0',
    "dtype": 'is "float16[3]", but "float32[3]" on worker 0',
    "number": 'is "3", but "2" on worker 0',
    "code": 'equation 9 is "neg v3 -> float32[3] [odd_tasks.py:',
    "constant": 'constant[0] is "float32[2, 1] ',
}
PROGRAM = {
    "code": 'equation 1 is "mul v0 1.2',
    "static": 'state[\'rate\'] is "0.3", but "0.2" on worker 0',
    "batch": 'batch[0] is "float32[8, 2]", but "float32[4, 2]" on worker 0',
}


@pytest.mark.parametrize("what", RUN)
def test_what_differs_in_run_is_named_on_all_tasks(pair: Cluster, what: str) -> None:
    for found in pair.run("tests.distribute.odd_tasks:run", what=what):
        text = str(found["text"])
        assert str(found["type"]) == "MismatchError", text
        assert text.startswith("All tasks must have the same program, strategy.run(") and "worker 1: " in text
        assert RUN[what] in text


@pytest.mark.parametrize("what", PROGRAM)
def test_what_differs_in_a_program_is_named_on_all_tasks(pair: Cluster, what: str) -> None:
    for found in pair.run("tests.distribute.odd_tasks:program", what=what):
        assert str(found["type"]) == "MismatchError", str(found["text"])
        assert "All tasks must have the same program, the step " in str(found["text"])
        assert PROGRAM[what] in str(found["text"])


def test_variables_are_compared_before_the_chief_sends_them(pair: Cluster) -> None:
    for found in pair.run("tests.distribute.odd_tasks:variables"):
        assert str(found["type"]) == "MismatchError", str(found["text"])
        assert "the same variables in strategy.run. worker 1: " in str(found["text"])
        assert 'weights is "float32[4]", but "float32[3]" on worker 0' in str(found["text"])


def test_arguments_that_change_nothing_may_differ(pair: Cluster) -> None:
    for i, found in enumerate(pair.run("tests.distribute.odd_tasks:unused")):
        np.testing.assert_array_equal(found["mean"], np.ones(3))
        assert str(found["name"]) == f"task {i}"


def _lines(source: str, path: str, factor: Any) -> str:
    """The lines of a jaxpr whose function stands in a file of some path."""
    names: dict[str, Any] = {"jax": jax, "jnp": jnp, "factor": factor}
    exec(compile(source, path, "exec"), names)
    record = jax.make_jaxpr(names["step"])(np.ones((2, 2), np.float32))
    return "\n".join(line.text for line in jaxpr_lines([record]))


_SOURCE = """
@jax.custom_jvp
def twice(x):
    return jax.nn.relu(x) * 2

@twice.defjvp
def twice_jvp(primals, tangents):
    return twice(*primals), tangents[0]

@jax.custom_vjp
def kept(x):
    return x

kept.defvjp(lambda x: (x, None), lambda _, g: (g,))

def step(x):
    called = jax.pure_callback(abs, x[0, 0], 1)
    return jax.lax.cond(called > 0, jnp.tanh, jnp.sin, jax.checkpoint(twice)(kept(x)) @ factor)
"""


def test_lines_are_the_same_wherever_and_whenever_a_record_is_made() -> None:
    """Addresses of what a process has made, and paths of files, are no difference; numbers of a constant are."""
    made = [_lines(_SOURCE, path, jnp.full((2, 3), 1.0)) for path in ("/opt/one/step.py", "/home/two/train.py")]
    assert made[0] == made[1]
    assert "0x" not in made[0] and "/" not in made[0]
    assert made[0] != _lines(_SOURCE, "/opt/one/step.py", jnp.full((2, 3), 2.0))
    assert made[0] != _lines(_SOURCE.replace("tanh", "cosh"), "/opt/one/step.py", jnp.full((2, 3), 1.0))


@pytest.mark.slow
def test_sets_have_one_order_in_every_process() -> None:
    """Python orders a set of names by hashes that differ from process to process."""
    script = (
        "import lockstep, jax, jax.numpy as jnp; "
        "from lockstep._engine.step.program_digest import _parameter_text as _text;"
        "print(_text(frozenset('abcdefgh'), []), _text({'b': {'x', 'y'}, 'a': jax.devices()[0]}, []))"
    )
    command = [sys.executable, "-c", script]
    runs = [
        subprocess.run(command, env=environment(PYTHONHASHSEED=seed), capture_output=True, text=True, check=True)
        for seed in ("1", "2", "3")
    ]
    assert len({run.stdout for run in runs}) == 1


def test_the_part_of_the_model_and_the_line_are_named() -> None:
    """For people: they are no part of what is compared."""

    def step(x: Any) -> Any:
        with jax.named_scope("hidden"):
            return jnp.tanh(x)

    line = next(x for x in jaxpr_lines([jax.make_jaxpr(step)(1.0)]) if x.text.startswith("tanh"))
    assert line.place == f"hidden, test_same_program.py:{step.__code__.co_firstlineno + 2}"


@pytest.mark.parametrize("odd", [0, 3, 700, 999, 1000])
def test_the_first_difference_of_long_programs_is_found(odd: int) -> None:
    """It is looked for in parts, and parts of parts."""
    lines = [[Line(f"mul v{i}", ()) for i in range(1000)] for _ in range(2)]
    lines[1][odd:] = [Line("sub", ())] * (3 if odd == 1000 else 1)
    barrier, answers = threading.Barrier(2), [None, None]

    class Task:
        def __init__(self, number: int) -> None:
            self.number = number

        def all_gather_object(self, topic: str, value: Any) -> list[Any]:
            answers[self.number] = value
            barrier.wait(60)
            found = list(answers)
            barrier.wait(60)
            return found

    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(program_digest._first_different, Task(i), "it", lines[i]) for i in range(2)]  # type: ignore[arg-type]
        assert [f.result() for f in futures] == [odd, odd]


def test_equal_digests_of_different_parts_are_no_error_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller compares digests of whole programs after it, and raises the MismatchError."""

    class Pair:
        def all_gather_object(self, topic: str, value: Any) -> list[Any]:
            return [value, value]

    monkeypatch.setattr(program_digest, "_digest", lambda texts: "0" * 64)
    lines = [Line(f"mul v{i}", ()) for i in range(1000)]
    assert program_digest._first_different(Pair(), "it", lines) == 1000  # type: ignore[arg-type]
