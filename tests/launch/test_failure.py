"""When a task fails: all end, and the first cause is found and printed last."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.launch.staging import PATIENCE, Stage, eventually, is_alive

# Less than the grace of tasks that somebody else has asked to end.
BOUND = 25.0


def test_the_exit_code_is_that_of_the_failed_task(stage: Stage) -> None:
    stage.program("""
        if me() == "worker-1":
            wait_for("worker-0")
            raise SystemExit(3)
        mark(me())
        stay()
    """)
    result = stage.run(workers=2, settle=0.1)
    assert result.returncode == 3
    assert "[lockstep] worker 1 failed: exit code 3; ending all tasks.\n" in result.stderr
    assert "lockstep: worker 1 failed first: exit code 3\n  worker 0 was ended by lockstep\n" in result.stderr
    assert result.stderr.endswith("worker 1 wrote nothing to stderr.\n")


def test_the_traceback_comes_last(stage: Stage) -> None:
    stage.program("""
        print("line 1 of many\\n" * 50, file=sys.stderr)
        raise ValueError("the cause")
    """)
    result = stage.run(workers=1)
    assert result.returncode == 1
    block = result.stderr.partition("The last lines of worker 0 on stderr:\n")[2].splitlines()
    assert len(block) == 30
    assert block[-1] == "ValueError: the cause"


def test_a_killed_worker_takes_the_others_along(stage: Stage) -> None:
    stage.program("mark(me(), f'{os.getpid()} {start_loader()}')\nstay()")
    launcher = stage.start(workers=3)
    pids = stage.await_pids("worker-0", "worker-1", "worker-2")
    victim = pids[2]
    began = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    result = stage.finish(launcher)
    assert time.monotonic() - began < BOUND
    assert result.returncode == 128 + signal.SIGKILL
    assert "worker 1 failed first: killed by signal 9 (SIGKILL)" in result.stderr
    eventually(lambda: not any(map(is_alive, pids)), "all tasks and their children are gone")


def test_a_task_that_ignores_the_request_is_killed(stage: Stage) -> None:
    stage.program("""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        mark(me(), str(os.getpid()))
        if me() == "worker-0":
            wait_for("worker-1")
            raise SystemExit(4)
        stay()
    """)
    assert stage.run(workers=2, settle=0.1, grace=0.5).returncode == 4
    assert not any(map(is_alive, stage.await_pids("worker-0", "worker-1")))


def test_tasks_have_time_to_end_well(stage: Stage) -> None:
    stage.program("""
        def save(number, frame):
            mark("saved")
            sys.exit(0)

        if me() == "worker-0":
            signal.signal(signal.SIGTERM, save)
            mark("ready")
            stay()
        wait_for("ready")
        sys.exit(1)
    """)
    assert stage.run(workers=2, settle=0.1).returncode == 1
    assert (stage.directory / "saved").exists()


def test_what_a_task_leaves_running_ends_with_it(stage: Stage) -> None:
    stage.program("mark('loader', str(start_loader()))")
    assert stage.run(workers=1).returncode == 0
    eventually(lambda: not is_alive(stage.await_pids("loader")[0]), "the task's child is gone")


def test_a_process_that_left_the_group_does_not_hold_the_launcher(stage: Stage) -> None:
    stage.program("""
        code = "import signal, time; signal.alarm(600); signal.pause()"
        mark("daemon", str(subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True).pid))
        print("done")
    """)
    result = stage.run(workers=1)
    os.kill(stage.await_pids("daemon")[0], signal.SIGKILL)
    assert (result.returncode, result.stdout) == (0, "[worker 0] done\n")


def first_cause(stage: Stage, source: str, **options: float) -> tuple[str, int, str]:
    """Run three workers and return which failed first by the launcher's account, the exit code and the block.

    They have as long as they need to fail by themselves, unless `settle` says otherwise.
    """
    stage.program(source)
    result = stage.run(workers=3, **{"settle": PATIENCE, **options})
    block = result.stderr.rpartition("\nlockstep: ")[2]
    return block.partition(" failed first")[0], result.returncode, block


def test_the_earliest_reported_error_is_the_cause(stage: Stage) -> None:
    task, code, block = first_cause(
        stage,
        """
        index = config()["task"]["index"]
        report(f"of {index}", at=[1000.0, 900.0, 950.0][index])
        sys.exit(10 + index)
        """,
    )
    assert (task, code) == ("worker 1", 11)
    assert block.endswith("  reported by worker-1\nValueError: of 1\n")
    assert "worker 0: exit code 10, ValueError: of 0\n" in block


def test_a_consequence_is_not_the_cause_even_if_it_is_seen_first(stage: Stage) -> None:
    task, code, block = first_cause(
        stage,
        """
        if me() == "worker-1":
            wait_for("worker-0")
            report("cause", at=time.time())
            sys.exit(5)
        if me() == "worker-0":
            report("peer", at=1.0, secondary=True)
            mark(me())
            sys.exit(6)
        """,
    )
    assert (task, code) == ("worker 1", 5)
    assert "worker 0: exit code 6, ValueError: peer (a consequence)\n" in block
    assert "worker 2 had finished\n" in block


def test_a_killed_task_comes_before_one_that_reports(stage: Stage) -> None:
    task, code, block = first_cause(
        stage,
        """
        if me() == "worker-0":
            report("lost worker 2", at=1.0)
            mark(me())
            sys.exit(1)
        if me() == "worker-2":
            wait_for("worker-0")
            os.kill(os.getpid(), signal.SIGSEGV)
        """,
    )
    assert (task, code) == ("worker 2", 128 + signal.SIGSEGV)
    assert "PYTHONFAULTHANDLER=1" in block


def test_an_aborted_task_comes_after_one_that_exits(stage: Stage) -> None:
    task, code, _ = first_cause(
        stage,
        """
        if me() == "worker-0":
            mark(me())
            os.abort()
        if me() == "worker-2":
            wait_for("worker-0")
            sys.exit(7)
        """,
    )
    assert (task, code) == ("worker 2", 7)


def test_an_aborted_task_alone_is_the_cause(stage: Stage) -> None:
    task, code, _ = first_cause(stage, "if me() == 'worker-1': os.abort()")
    assert (task, code) == ("worker 1", 128 + signal.SIGABRT)


def test_a_reported_error_counts_even_if_its_task_had_to_be_ended(stage: Stage) -> None:
    task, code, block = first_cause(
        stage,
        """
        if me() == "worker-2":
            report("hangs at exit", at=time.time())
            mark(me())
            stay()
        wait_for("worker-2")
        sys.exit(9)
        """,
        settle=0.1,
    )
    assert (task, code) == ("worker 2", 1)
    assert "failed first: had to be ended, ValueError: hangs at exit" in block


def test_an_error_that_the_request_to_end_caused_is_no_cause(stage: Stage) -> None:
    task, code, _ = first_cause(
        stage,
        """
        def fail(number, frame):
            report("interrupted", at=time.time())
            sys.exit(8)

        signal.signal(signal.SIGTERM, fail)
        mark(me())
        if me() == "worker-0":
            wait_for("worker-1"), wait_for("worker-2")
            sys.exit(9)
        stay()
        """,
        settle=0.1,
    )
    assert (task, code) == ("worker 0", 9)


def test_a_broken_error_file_is_none(stage: Stage) -> None:
    stage.program("open(os.environ['LOCKSTEP_ERROR_FILE'], 'w').write('[1, ')\nraise ValueError('on stderr')")
    result = stage.run(workers=1)
    assert result.returncode == 1
    assert result.stderr.endswith("ValueError: on stderr\n")


def test_an_evaluator_that_fails_does_not_stop_the_workers(stage: Stage) -> None:
    stage.program("""
        if me() == "evaluator-0":
            sys.exit(6)
        wait_for("go")
        mark(me())
    """)
    launcher = stage.start(workers=2, evaluator=True)
    assert stage.await_line(launcher, "[lockstep]") == "[lockstep] evaluator 0 failed: exit code 6.\n"
    stage.mark("go")
    result = stage.finish(launcher)
    assert result.returncode == 6
    assert (stage.directory / "worker-0").exists()
    assert (stage.directory / "worker-1").exists()
    assert "lockstep: evaluator 0 failed first: exit code 6\n  worker 0 had finished\n" in result.stderr


def test_an_evaluator_may_take_longer_than_the_workers(stage: Stage) -> None:
    stage.program("""
        if me() == "evaluator-0":
            wait_for("go")
            mark(me())
    """)
    launcher = stage.start(workers=1, evaluator=True)
    assert "waiting for the evaluator" in stage.await_line(launcher, "[lockstep]")
    stage.mark("go")
    assert stage.finish(launcher).returncode == 0
    assert (stage.directory / "evaluator-0").exists()


def test_a_worker_that_fails_ends_the_evaluator(stage: Stage) -> None:
    stage.program("""
        if me() == "evaluator-0":
            mark(me(), str(os.getpid()))
            stay()
        wait_for("evaluator-0")
        sys.exit(3)
    """)
    result = stage.run(workers=1, settle=0.1, evaluator=True)
    assert result.returncode == 3
    assert "evaluator 0 was ended by lockstep" in result.stderr
    assert not is_alive(stage.await_pids("evaluator-0")[0])


@pytest.mark.parametrize("evaluator_first", [True, False])
def test_a_worker_is_reported_before_the_evaluator(stage: Stage, evaluator_first: bool) -> None:
    first, second = ("evaluator-0", "worker-0") if evaluator_first else ("worker-0", "evaluator-0")
    stage.program(f"""
        if me() == "{second}":
            wait_for("{first}")
        mark(me())
        sys.exit(5 if me() == "worker-0" else 6)
    """)
    assert stage.run(workers=1, evaluator=True).returncode == 5
