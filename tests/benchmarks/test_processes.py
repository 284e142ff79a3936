from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.case import Case, Side
from benchmarks.harness.environments import Pythons, variables
from benchmarks.harness.processes import Failed, Result, measure
from benchmarks.harness.rounds import Settings, run

MODULE = "tests.benchmarks.sides"


def _measure(function: str, limit: float = 240.0, prefix: tuple[str, ...] = (), **options: Any) -> Result:
    return measure(prefix, sys.executable, MODULE, function, options, variables("lockstep"), limit)


def test_a_side_answers_from_a_process_of_its_own() -> None:
    result = _measure("answer", value=2.5)
    assert result.measured == {"value": 2.5}
    assert 0 <= result.others <= 1


def test_a_prefix_comes_before_the_command() -> None:
    assert _measure("answer", prefix=("env", "SOME=thing"), value=1.0).measured == {"value": 1.0}


def test_a_side_that_raises_says_why() -> None:
    with pytest.raises(Failed, match=r"ended with 1: .*no such thing as 3"):
        _measure("fail", value=3)


@pytest.mark.slow
def test_a_side_that_hangs_is_ended(tmp_path: Path) -> None:
    hangs = f"echo $$ > {tmp_path / 'pid'}; sleep 1000"
    with pytest.raises(Failed, match="took longer than 2 s"):
        _measure("answer", limit=2, prefix=("sh", "-c", hangs))
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_workers_of_a_gang_go_on_together(tmp_path: Path) -> None:
    assert _measure("meeting", path=str(tmp_path)).measured == {"0": 3, "1": 3, "2": 3}


def test_a_worker_that_fails_ends_the_others() -> None:
    with pytest.raises(Failed, match="worker 2 ended with 1: I cannot"):
        _measure("broken")


def test_a_side_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    sides = [
        Side("ours", "answer", role="ours", options={"value": 4.0}),
        Side("failing", "fail", options={"value": 5}),
        Side("absent", "answer", "torch", options={"value": 6.0}),
        Side("slow", "answer", options={"value": 7.0}, quick=False),
    ]
    pythons = Pythons(lockstep=sys.executable, torch=str(tmp_path / "python"))
    case = Case(1, "work", "Some work", MODULE, {"value": "a value"}, sides)
    found = {m.side.name: m for m in run(case, Settings(2, True, pythons, tries=1)).sides}
    assert list(found) == ["ours", "failing", "absent"]
    assert [r["value"] for r in found["ours"].rounds] == [4.0, 4.0]
    assert "no such thing as 5" in found["failing"].failure
    assert "--torch PYTHON" in found["absent"].failure


def test_settings_from_outside_do_not_reach_a_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES", "TF_CONFIG", "NPROC", "OMP_NUM_THREADS", "KERAS_BACKEND"):
        monkeypatch.setenv(name, "1")
    own = variables("tensorflow")
    assert not {"XLA_FLAGS", "JAX_NUM_CPU_DEVICES", "TF_CONFIG", "NPROC", "OMP_NUM_THREADS", "KERAS_BACKEND"} & set(own)
    assert own["PATH"] == os.environ["PATH"]
    assert variables("jax")["KERAS_BACKEND"] == "jax"


def test_processes_of_lockstep_keep_memory_as_launched_tasks_do() -> None:
    kept = {"GLIBC_TUNABLES"}
    assert kept <= set(variables("lockstep"))
    assert not kept & set(variables("jax"))
