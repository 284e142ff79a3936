"""All tasks must run the same program: one that is new is compared before it runs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lockstep._step import same_program
from tests.support.cluster import Cluster, shared

pair = shared(2)

RUN = {
    "shape": 'argument[\'args[0]\'] is "float32[4]", but "float32[3]" on worker 0',
    "dtype": 'is "float16[3]", but "float32[3]" on worker 0',
    "number": 'is "3", but "2" on worker 0',
    "code": "what is computed, line ['",
    "constant": 'constant[0] is "float32[2, 1] ',
}
PROGRAM = {
    "code": "what is computed, line ['",
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


def test_a_record_is_the_same_text_whenever_it_is_made() -> None:
    """Addresses of what a process has made are no difference; numbers of a constant are."""

    def made(value: float) -> str:
        factor = jnp.full((2, 3), value)
        record = jax.make_jaxpr(lambda x: jax.checkpoint(jax.nn.relu)(x @ factor) + jax.pure_callback(abs, x[0, 0], 1))
        found = record(np.ones((2, 2), np.float32))
        return same_program.text_of(found) + str(list(map(same_program.digest_of, found.consts)))

    assert made(1.0) == made(1.0) != made(2.0)
    assert "0x" not in made(1.0)
