"""`lockstep run --nnodes`: several launchers, here all on the loopback interface, with one cluster between them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from lockstep._launch.options import Options
from lockstep.errors import ArgumentError, ClusterSpecError
from tests.launch.staging import Stage, eventually, is_alive
from tests.support.ports import free_port, free_ports

ENVIRONMENT = "mark(me(), json.dumps(dict(os.environ)))"
Ended = subprocess.CompletedProcess[str]


def start(
    stage: Stage, *nodes: Sequence[object], count: int | None = None, env: dict[str, str] | None = None
) -> list[subprocess.Popen[str]]:
    """Start a launcher for each node with these options, on `program.py`."""
    port = free_port()
    common = ("--nnodes", count or len(nodes), "--rendezvous", f"127.0.0.1:{port}")
    return [
        stage.start_command(*common, "--node-rank", rank, *options, "program.py", env=env)
        for rank, options in enumerate(nodes)
    ]


def run(stage: Stage, *nodes: Sequence[object], env: dict[str, str] | None = None) -> list[Ended]:
    return [stage.finish(launcher) for launcher in start(stage, *nodes, env=env)]


def await_meeting(launcher: subprocess.Popen[str]) -> None:
    """Wait until a launcher is at a meeting, for which it has a second thread."""
    eventually(lambda: len(list(Path(f"/proc/{launcher.pid}/task").iterdir())) > 1, "the meeting")


def tf_configs(stage: Stage, *names: str) -> dict[str, dict[str, dict[str, list[str]]]]:
    return {name: json.loads(json.loads((stage.directory / name).read_text())["TF_CONFIG"]) for name in names}


def test_the_tasks_of_all_machines_are_one_cluster(stage: Stage) -> None:
    stage.program(ENVIRONMENT)
    workers = ["--workers", 2, "--log-dir", "logs"]
    ended = run(stage, workers, ["--workers", 1, "--evaluator"], ["--workers", 1])
    assert [each.returncode for each in ended] == [0, 0, 0], ended
    names = ("worker-0", "worker-1", "worker-2", "evaluator-0", "worker-3")
    found = tf_configs(stage, *names)
    assert len({json.dumps(each["cluster"]) for each in found.values()}) == 1
    assert {job: len(hosts) for job, hosts in found["worker-0"]["cluster"].items()} == {"worker": 4, "evaluator": 1}
    places = [f"{each['task']['type']}-{each['task']['index']}" for each in found.values()]
    assert tuple(places) == names
    # One secret, one attempt, one id: the tasks of several launchers belong together.
    for variable in ("LOCKSTEP_CLUSTER_SECRET", "LOCKSTEP_GENERATION", "LOCKSTEP_RUN_ID"):
        assert len({json.loads((stage.directory / name).read_text())[variable] for name in names}) == 1
    # Each machine has the logs of its own tasks; the launchers' records are in `report`.
    assert sorted(path.name for path in (stage.directory / "logs").glob("*.log")) == ["worker-0.log", "worker-1.log"]


def test_a_failure_on_one_machine_ends_the_tasks_of_all(stage: Stage) -> None:
    stage.program("sys.exit(7) if me() == 'worker-1' else stay()")
    first, second = run(stage, ["--workers", 1], ["--workers", 1])
    assert first.returncode == second.returncode == 7
    assert "worker 1 failed first: exit code 7" in second.stderr
    assert "The tasks of node 1 have failed, or it is gone; ending all tasks." in first.stderr
    assert "On node 1: worker 1 failed first: exit code 7." in first.stderr


@pytest.mark.parametrize("failing", ["worker-0", "worker-2"])
def test_all_machines_start_again_together(stage: Stage, failing: str) -> None:
    stage.program(
        f"""
        generation = int(os.environ["LOCKSTEP_GENERATION"])
        if me() == "{failing}" and generation < 3:
            sys.exit(generation)
        if generation < 3:
            stay()
        mark(f"{{me()}}-{{generation}}")
        """
    )
    restarts = ["--max-restarts", 2, "--restart-delay", 0.1]
    ended = run(stage, ["--workers", 1, *restarts], ["--workers", 1, *restarts], ["--workers", 1, *restarts])
    assert [each.returncode for each in ended] == [0, 0, 0], ended
    assert all("Starting all tasks again" in each.stderr and "restart 2 of 2." in each.stderr for each in ended)
    assert all((stage.directory / f"worker-{index}-3").exists() for index in range(3))


def test_restarts_that_are_used_up_end_all_with_the_code_of_the_last_failure(stage: Stage) -> None:
    stage.program("sys.exit(int(os.environ['LOCKSTEP_GENERATION']) + 10) if me() == 'worker-1' else stay()")
    # The budget is that of node 0, which decides.
    ended = run(stage, ["--workers", 1, "--max-restarts", 1], ["--workers", 1])
    assert [each.returncode for each in ended] == [12, 12]
    assert all("Not starting again: --max-restarts 1 is used up." in each.stderr for each in ended)


def test_a_preemption_is_followed_by_all_and_costs_no_restart(stage: Stage) -> None:
    stage.program("sys.exit(143) if os.environ['LOCKSTEP_GENERATION'] == '1' else mark(me())")
    ended = run(stage, ["--workers", 1, "--max-preemptions", 1], ["--workers", 1, "--max-preemptions", 1])
    assert [each.returncode for each in ended] == [0, 0], ended
    assert all("preemption 1 of 1" in each.stderr for each in ended)


def test_ctrl_c_on_one_machine_ends_all(stage: Stage) -> None:
    stage.program("mark(me(), str(os.getpid())); stay()")
    launchers = start(stage, ["--workers", 1], ["--workers", 1, "--max-restarts", 3], ["--workers", 1])
    pids = stage.await_pids("worker-0", "worker-1", "worker-2")
    launchers[1].send_signal(signal.SIGINT)
    ended = [stage.finish(each) for each in launchers]
    assert [each.returncode for each in ended] == [130] * 3
    assert "On node 1: node 1 was asked to end." in ended[0].stderr
    assert not any(map(is_alive, pids))


@pytest.mark.parametrize("gone", [0, 1])
def test_a_launcher_that_is_killed_ends_the_tasks_of_the_others(stage: Stage, gone: int) -> None:
    stage.program("mark(me(), str(os.getpid())); stay()")
    env = {"LOCKSTEP_SILENCE_TIMEOUT": "1"}
    launchers = start(stage, ["--workers", 1, "--grace", 1], ["--workers", 1, "--grace", 1], env=env)
    pids = stage.await_pids("worker-0", "worker-1")
    launchers[gone].kill()
    eventually(lambda: not any(map(is_alive, pids)), "all tasks ended")
    other = launchers[1 - gone]
    # It waits for the other at the meeting after the attempt, whose limit the test does not wait for.
    await_meeting(other)
    other.send_signal(signal.SIGINT)
    assert stage.finish(other).returncode == 130


def test_a_launcher_that_does_not_come_back_is_named(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.program("mark(me()); sys.exit(1) if me() == 'worker-0' else stay()")
    nodes = "import lockstep._launch.nodes as nodes; nodes._MEETING = 0.1; "
    port = free_port()
    call = f"launch(['program.py'], workers=1, nnodes=2, node_rank=0, rendezvous='127.0.0.1:{port}', grace=0.5)"
    code = f"{nodes}from lockstep._launch.launcher import launch; exit({call})"
    first = stage._start(["-c", code], {"LOCKSTEP_SILENCE_TIMEOUT": "1"}, None)
    second = stage.start_command(
        *("--nnodes", 2, "--node-rank", 1, "--rendezvous", f"127.0.0.1:{port}", "--workers", 1), "program.py"
    )
    stage.await_event("worker-1")
    second.kill()
    ended = stage.finish(first)
    assert ended.returncode == 1
    assert "the launchers of all machines meet again; who does not come is gone" in ended.stderr
    assert "Missing: node 1" in ended.stderr


def test_a_machine_that_does_not_arrive_is_named(stage: Stage) -> None:
    stage.program("mark('started')")
    place = ("--nnodes", 3, "--rendezvous", f"127.0.0.1:{free_port()}", "--workers", 1)
    second = stage.start_command(*place, "--node-rank", 1, "program.py")
    # It is there before the time of the first begins, whose end the first tells it.
    await_meeting(second)
    first = stage.start_command(*place, "--node-rank", 0, "--join-timeout", 5, "program.py")
    for each in map(stage.finish, (first, second)):
        assert each.returncode == 1
        assert "Missing: node 2" in each.stderr
        assert "Each of 3 machines must run `lockstep run --nnodes 3 --rendezvous 127.0.0.1:" in each.stderr
    assert not (stage.directory / "started").exists()


def test_a_rendezvous_that_nobody_serves_has_a_limit(stage: Stage) -> None:
    stage.program("mark('started')")
    place = ("--nnodes", 2, "--node-rank", 1, "--rendezvous", f"127.0.0.1:{free_port()}")
    ended = stage.run_command(*place, "--workers", 1, "--join-timeout", 1, "program.py")
    assert ended.returncode == 1
    assert "Missing: node 0 (127.0.0.1:" in ended.stderr


def test_ctrl_c_while_machines_are_awaited(stage: Stage) -> None:
    stage.program("mark('started')")
    (launcher,) = start(stage, ["--workers", 1], count=2)
    await_meeting(launcher)
    launcher.send_signal(signal.SIGINT)
    assert stage.finish(launcher).returncode == 130


@pytest.mark.parametrize(
    ("nodes", "rule"),
    [
        (
            [["--workers", 1, "--evaluator"], ["--workers", 1, "--evaluator"]],
            "A cluster has one evaluator. node 0 and node 1",
        ),
        ([["--workers", 1, "--chief"], ["--workers", 1, "--chief"]], "A cluster has one chief. node 0 and node 1"),
    ],
)
def test_tasks_of_which_there_is_one(stage: Stage, nodes: list[list[object]], rule: str) -> None:
    stage.program("mark('started')")
    for ended in run(stage, *nodes):
        assert ended.returncode == 1
        assert rule in ended.stderr
    assert not (stage.directory / "started").exists()


def test_machines_that_count_differently_are_named(stage: Stage) -> None:
    stage.program("mark('started')")
    port = free_port()
    launchers = [
        stage.start_command(
            *("--nnodes", count, "--node-rank", rank, "--rendezvous", f"127.0.0.1:{port}"),
            *("--workers", 1, "--join-timeout", 600),
            "program.py",
        )
        for rank, count in ((0, 2), (1, 3))
    ]
    for ended in map(stage.finish, launchers):
        assert ended.returncode == 1
        assert "All launchers must have the same nnodes. node 1: value is 3, but 2 on node 0" in ended.stderr


def test_another_secret_is_refused(stage: Stage) -> None:
    stage.program("mark('started')")
    port = free_port()
    launchers = [
        stage.start_command(
            *("--nnodes", 2, "--node-rank", rank, "--rendezvous", f"127.0.0.1:{port}"),
            *("--workers", 1, "--join-timeout", 600),
            "program.py",
            env={"LOCKSTEP_CLUSTER_SECRET": f"{rank}123456789abcdef0123456789abcdef"},
        )
        for rank in (0, 1)
    ]
    second = stage.finish(launchers[1])
    # The other one still waits for somebody with its own secret.
    assert launchers[0].poll() is None
    launchers[0].send_signal(signal.SIGINT)
    assert stage.finish(launchers[0]).returncode == 130
    assert second.returncode not in (0, 130)
    assert "All tasks of a cluster must have the same secret, or none." in second.stderr
    assert not (stage.directory / "started").exists()


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"nnodes": 0}, "--nnodes must be at least 1"),
        (
            {"nnodes": 2, "node_rank": 0, "rendezvous": "host1:29400", "servers": 1},
            "--ps starts servers beside the workers of one machine, received --ps 1 with --nnodes 2",
        ),
        (
            {"nnodes": 2, "rendezvous": "a:1"},
            "--node-rank must be this machine's own number, from 0 to 1, received None",
        ),
        ({"nnodes": 2, "node_rank": 2, "rendezvous": "a:1"}, "--node-rank must be this machine's own number"),
        ({"nnodes": 2, "node_rank": 0}, "--nnodes needs a place where the machines meet"),
        ({"node_rank": 0}, "received --node-rank 0 without --nnodes"),
        ({"rendezvous": "a:1"}, "received --rendezvous a:1 without --nnodes"),
    ],
)
def test_a_place_that_is_none_is_refused(wrong: dict[str, int | str], rule: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Options(workers=1, **wrong)
    assert rule in str(caught.value)


def test_a_rendezvous_without_a_port_is_refused() -> None:
    with pytest.raises(ClusterSpecError, match="--rendezvous must have a port"):
        Options(workers=1, nnodes=2, node_rank=0, rendezvous="host1")


def test_machines_need_a_secret(stage: Stage) -> None:
    stage.program("mark('started')")
    # A name that no machine has: nothing is reached for, the secret is asked for before.
    place = ("--nnodes", 2, "--node-rank", 0, "--rendezvous", "node0.invalid:29400")
    ended = stage.run_command(*place, "--workers", 1, "program.py")
    assert ended.returncode == 2
    assert "Launchers on several machines must share a secret" in ended.stderr
    assert "LOCKSTEP_CLUSTER_SECRET_FILE" in ended.stderr


def test_an_address_can_be_given(stage: Stage) -> None:
    stage.program(ENVIRONMENT)
    (base,) = free_ports(1, "127.0.0.2")
    ended = run(stage, ["--workers", 1], ["--workers", 1, "--node-address", "127.0.0.2", "--port-base", base])
    assert [each.returncode for each in ended] == [0, 0], ended
    assert tf_configs(stage, "worker-0")["worker-0"]["cluster"]["worker"][1] == f"127.0.0.2:{base}"


def test_two_launchers_train_as_one_job(stage: Stage) -> None:
    """Through the engine: the tasks join across launchers, with the secret that these share."""
    stage.program(
        """
        import lockstep as ls
        import numpy as np
        strategy = ls.distribute.MultiWorkerMirroredStrategy()
        total = strategy.run(lambda: ls.distribute.get_replica_context().all_reduce("SUM", np.float32(1)))
        mark(me(), str(float(strategy.experimental_local_results(total)[0])))
        """
    )
    launchers = start(stage, ["--workers", 1], ["--workers", 1], env={"LOCKSTEP_CACHE_DIR": str(stage.directory / "c")})
    ended = [each.communicate(timeout=400) for each in launchers]
    assert [each.returncode for each in launchers] == [0, 0], ended
    assert [(stage.directory / f"worker-{index}").read_text() for index in range(2)] == ["2.0", "2.0"]
    assert not os.environ.get("LOCKSTEP_CLUSTER_SECRET")
