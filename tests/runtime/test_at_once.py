"""A process that has one CPU device for itself runs programs on the thread that calls them, in memory that is kept."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.cluster import environment

pytestmark = pytest.mark.timed

# Whether calls return before their results are there; and how many pages six steps are given that take 130 MB each
# besides their state, over batches that have just been put on the device.
PROGRAM = """
import json, resource, sys
import lockstep as ls
import jax, jax.numpy as jnp, numpy as np
devices = int(sys.argv[1])
if devices > 1:
    ls.config.set_logical_cpu_devices(devices)
strategy = ls.distribute.MirroredStrategy()
long = jax.jit(lambda x: jax.lax.fori_loop(0, 200, lambda i, x: jnp.tanh(x @ x), x))
returns_before = not long(jnp.ones((400, 400))).is_ready()
def step(state, batch):
    rows = jax.lax.optimization_barrier(jnp.tile(batch, (16, 1)) * state["w"])
    return {"w": state["w"] + rows.mean()}, {"sum": rows.sum()}
program = ls.train.Program(step, strategy)
state = {"w": jnp.float32(0)}
def run():
    global state
    for _ in range(6):
        state, logs = program(state, np.ones((512, 4096), np.float32))
    jax.block_until_ready(state)
run()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
run()
pages = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(json.dumps({"returns before": returns_before, "pages": pages}))
"""


def found(devices: int = 1, **env: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(devices)],
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_programs_run_at_once_and_their_memory_is_kept() -> None:
    seen = found()
    assert not seen["returns before"]
    assert seen["pages"] < 40_000


@pytest.mark.parametrize(
    ("devices", "env"),
    [(1, {"JAX_CPU_ENABLE_ASYNC_DISPATCH": "1"}), (1, {"LOCKSTEP_KEEP_MEMORY": "0"}), (2, {})],
    ids=["told not to", "memory goes back", "two devices"],
)
def test_otherwise_xla_has_a_thread_for_them(devices: int, env: dict[str, str]) -> None:
    assert found(devices, **env)["returns before"]


def test_memory_goes_back_between_steps_if_asked_for() -> None:
    assert found(LOCKSTEP_KEEP_MEMORY="0")["pages"] > 40_000
