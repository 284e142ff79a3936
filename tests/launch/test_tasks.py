"""What each task finds: its place in the cluster, its settings, its arguments."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.launch.staging import Stage

ENVIRONMENT = "mark(me(), json.dumps(dict(os.environ)))"


def environments(stage: Stage, *names: str) -> list[dict[str, str]]:
    return [json.loads((stage.directory / name).read_text()) for name in names]


def test_every_task_gets_its_place_in_one_cluster(stage: Stage) -> None:
    stage.program(ENVIRONMENT)
    assert (
        stage.run_command("--workers", 2, "--evaluator", "program.py", env={"TF_CONFIG": "inherited"}).returncode == 0
    )
    found = [json.loads(each["TF_CONFIG"]) for each in environments(stage, "worker-0", "worker-1", "evaluator-0")]
    places = [("worker", 0), ("worker", 1), ("evaluator", 0)]
    assert [(each["task"]["type"], each["task"]["index"]) for each in found] == places
    assert found[0]["cluster"] == found[1]["cluster"] == found[2]["cluster"]
    assert list(found[0]["cluster"]) == ["worker", "evaluator"]
    addresses = [*found[0]["cluster"]["worker"], *found[0]["cluster"]["evaluator"]]
    assert len(set(addresses)) == 3
    assert all(address.startswith("127.0.0.1:") for address in addresses)


def test_a_chief_stands_beside_the_workers(stage: Stage) -> None:
    stage.program(ENVIRONMENT)
    done = stage.run_command("--workers", 1, "--chief", "--evaluator", "program.py")
    assert done.returncode == 0, done.stderr
    found = [json.loads(each["TF_CONFIG"]) for each in environments(stage, "chief-0", "worker-0", "evaluator-0")]
    assert [each["task"]["type"] for each in found] == ["chief", "worker", "evaluator"]
    assert {job: len(hosts) for job, hosts in found[0]["cluster"].items()} == {"chief": 1, "worker": 1, "evaluator": 1}


def test_servers_stand_behind_the_workers(stage: Stage) -> None:
    stage.program(ENVIRONMENT)
    done = stage.run_command("--workers", 1, "--chief", "--ps", 2, "program.py")
    assert done.returncode == 0, done.stderr
    found = [json.loads(each["TF_CONFIG"]) for each in environments(stage, "chief-0", "worker-0", "ps-0", "ps-1")]
    assert [each["task"]["index"] for each in found] == [0, 0, 0, 1]
    assert {job: len(hosts) for job, hosts in found[0]["cluster"].items()} == {"chief": 1, "worker": 1, "ps": 2}


def test_settings_reach_the_tasks(stage: Stage) -> None:
    stage.program(ENVIRONMENT)
    options = ("--workers", 2, "--devices-per-worker", 30, "--join-timeout", 7.5)
    assert stage.run_command(*options, "program.py", env={"SOMETHING": "kept"}).returncode == 0
    first, second = environments(stage, "worker-0", "worker-1")
    assert first["PYTHONUNBUFFERED"] == "1"
    assert first["SOMETHING"] == "kept"
    assert first["LOCKSTEP_JOIN_TIMEOUT"] == "7.5"
    assert first["JAX_NUM_CPU_DEVICES"] == "30"
    assert int(first["NPROC"]) == max(120, os.cpu_count() or 1)
    assert [Path(each["LOCKSTEP_ERROR_FILE"]).name for each in (first, second)] == ["worker-0.json", "worker-1.json"]
    assert not Path(first["LOCKSTEP_ERROR_FILE"]).parent.exists()


def test_settings_that_were_not_asked_for_are_not_made(stage: Stage) -> None:
    stage.program(ENVIRONMENT)
    assert stage.run_command("--workers", 1, "program.py").returncode == 0
    (found,) = environments(stage, "worker-0")
    assert not {"LOCKSTEP_JOIN_TIMEOUT", "JAX_NUM_CPU_DEVICES", "NPROC"} & found.keys() - os.environ.keys()


@pytest.mark.parametrize(("inherited", "expected"), [("", 16), ("4", 16), ("9000", 9000), ("many", 16)], ids=repr)
def test_the_thread_pool_is_never_made_smaller(stage: Stage, inherited: str, expected: int) -> None:
    stage.program(ENVIRONMENT)
    assert (
        stage.run_command("--workers", 1, "--devices-per-worker", 2, "program.py", env={"NPROC": inherited}).returncode
        == 0
    )
    assert int(environments(stage, "worker-0")[0]["NPROC"]) == max(expected, os.cpu_count() or 1)


MALLOC = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776:"
    "glibc.malloc.top_pad=67108864:glibc.malloc.arena_max=1:glibc.malloc.tcache_max=64"
}


def test_tasks_keep_memory(stage: Stage) -> None:
    """Blocks of 4 and of 512 MB that any thread has freed are there for others: nothing goes back to the system."""
    stage.program("""
        import ctypes
        import threading

        def resident():
            return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE") >> 20

        libc = ctypes.CDLL(None)
        libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]

        def use(*sizes):
            blocks = [libc.malloc(size) for size in sizes]
            for block, size in zip(blocks, sizes):
                libc.memset(block, 1, size)
            for block in blocks:
                libc.free(block)

        before = resident()
        use(*[4 << 20] * 64)
        small = resident() - before
        thread = threading.Thread(target=use, args=(512 << 20,))
        thread.start()
        thread.join()
        mark(me(), json.dumps({"small": small, "large": resident() - before, **os.environ}))
    """)
    assert stage.run_command("--workers", 1, "program.py").returncode == 0
    (found,) = environments(stage, "worker-0")
    assert {name: found[name] for name in MALLOC} == MALLOC
    assert int(found["small"]) >= 250
    assert int(found["large"]) >= 510


@pytest.mark.parametrize("name", ["MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_malloc_is_as_the_user_has_set_it(stage: Stage, name: str) -> None:
    stage.program(ENVIRONMENT)
    value = "glibc.malloc.arena_max=4" if name == "GLIBC_TUNABLES" else "4"
    assert stage.run_command("--workers", 1, "program.py", env={name: value}).returncode == 0
    (found,) = environments(stage, "worker-0")
    assert {n: v for n, v in found.items() if n.startswith(("MALLOC_", "GLIBC_"))} == {name: value}


ARGUMENTS = ["--workers", "7", "--", "-m", "--help", "", "a b", "--evaluator", "ü", "-"]


@pytest.mark.parametrize("program", [["program.py"], ["--", "program.py"], ["-m", "program"]], ids=" ".join)
def test_what_follows_the_program_belongs_to_it(stage: Stage, program: list[str]) -> None:
    stage.program("mark(me(), json.dumps(sys.argv[1:]))")
    assert stage.run_command("--workers", 1, *program, *ARGUMENTS).returncode == 0
    assert json.loads((stage.directory / "worker-0").read_text()) == ARGUMENTS


def test_tasks_have_no_input(stage: Stage) -> None:
    stage.program("mark(me(), sys.stdin.read())")
    reader, writer = os.pipe()
    launcher = stage.start_command("--workers", 1, "program.py", pipes={"stdin": reader})
    os.close(reader)
    assert stage.finish(launcher).returncode == 0
    os.close(writer)
    assert (stage.directory / "worker-0").read_text() == ""
