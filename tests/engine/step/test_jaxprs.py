"""The walker of jaxprs, and the names of primitives that all walkers look for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lockstep._cpu.lowerings import loop_products, rewrite
from lockstep._cpu.partitioner import flat
from lockstep._cpu.partitioner.rows import SPREAD_ROWS
from lockstep._cpu.partitioner.rules.base import RULES
from lockstep._engine.step import jaxprs, sequential_emulation
from lockstep.data import _division

# Every table of primitives' names by which a walker decides.
TABLES: dict[str, Iterable[str]] = {
    "jaxprs.NOT_PLAIN_CALLS": jaxprs.NOT_PLAIN_CALLS,
    "jaxprs.EQUALIZING": jaxprs.EQUALIZING,
    "jaxprs.REPLICA_DEPENDENT": jaxprs.REPLICA_DEPENDENT,
    "jaxprs.MUTATING": jaxprs.MUTATING,
    "sequential_emulation.COLLECTIVES": sequential_emulation.COLLECTIVES,
    "data._division._PRIMITIVES": _division._PRIMITIVES,
    "flat._CALLS": flat._CALLS,
    "flat._REMAT": flat._REMAT,
    "flat.CONTROL": flat.CONTROL,
    "flat._REFUSED": flat._REFUSED,
    "flat._KEEPS_ZERO": flat._KEEPS_ZERO,
    "loop_products._CHEAP": loop_products._CHEAP,
    "loop_products._LINEAR": loop_products._LINEAR,
    "rewrite._CLOSED": rewrite._CLOSED,
    # All but the one primitive that exists in plans alone.
    "partitioner.rules.RULES": RULES.keys() - {SPREAD_ROWS.name},
}


_NAMES = """
import gc
import jax.custom_batching, jax.experimental.pallas
from jax.extend.core import Primitive
print(*{item.name for item in gc.get_objects() if isinstance(item, Primitive)})
"""


@cache
def _installed() -> set[str]:
    """Returns the names of all primitives of the installed jax: in a new process, where none is of somebody else."""
    return set(subprocess.check_output([sys.executable, "-c", _NAMES], text=True).split())


@pytest.mark.parametrize("table", TABLES)
def test_the_names_in_a_table_are_primitives_of_jax(table: str) -> None:
    unknown = set(TABLES[table]) - _installed() - jaxprs.OF_OTHER_RELEASES
    assert not unknown, f"{table} names primitives that jax {jax.__version__} does not have"


def test_names_of_other_releases_are_not_of_this_one_alone() -> None:
    """A name is listed as another release's only as long as some table needs it."""
    assert set().union(*TABLES.values()) >= jaxprs.OF_OTHER_RELEASES


def _looping(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, c: lax.cond(i > 1, jnp.sin, jnp.cos, c), jax.jit(jnp.tanh)(x))


def test_all_equations_are_walked() -> None:
    names = [eqn.primitive.name for eqn in jaxprs.equations(jax.make_jaxpr(_looping)(1.0))]
    assert {"tanh", "cond", "sin", "cos"} <= set(names)


def test_an_evaluation_by_equations_is_the_function() -> None:
    closed = jax.make_jaxpr(lambda x: (_looping(x) + np.arange(3.0, dtype="float32"), 2.0))(1.0)
    steps = jaxprs.evaluate_stepwise(closed, [np.float32(0.5)])
    results: Any = None
    with pytest.raises(StopIteration) as end:
        while True:
            eqn, values = steps.send(results)
            results = jaxprs.evaluate_equation(eqn, values)
    expected = jax.jit(_looping)(np.float32(0.5)) + np.arange(3.0, dtype="float32")
    np.testing.assert_allclose(end.value.value[0], expected, rtol=1e-6)
    assert end.value.value[1] == 2.0


def test_what_does_not_change_stays_the_same_object() -> None:
    closed = jax.make_jaxpr(_looping)(1.0)
    keep = lambda eqn: jaxprs.replace_subjaxprs(eqn, lambda sub: jaxprs.replace_equations(sub, keep))  # noqa: E731
    assert jaxprs.replace_equations(closed, keep) is closed


def test_equations_inside_of_others_are_replaced() -> None:
    def replace(eqn: Any) -> Any:
        if eqn.primitive.name == "sin":
            return eqn.replace(primitive=jex.primitives.cos_p, params={"accuracy": None})
        return jaxprs.replace_subjaxprs(eqn, lambda sub: jaxprs.replace_equations(sub, replace))

    changed = jaxprs.replace_equations(jax.make_jaxpr(_looping)(1.0), replace)
    assert "sin" not in {eqn.primitive.name for eqn in jaxprs.equations(changed)}
    expected = np.cos(np.cos(np.cos(np.tanh(0.5))))
    np.testing.assert_allclose(jex.jaxpr_as_fun(changed)(np.float32(0.5))[0], expected, rtol=1e-6)
