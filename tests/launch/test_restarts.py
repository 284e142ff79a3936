"""Tasks that failed or were preempted are started again, all together, as often as was asked for."""

from __future__ import annotations

import json
import os
import shutil
import signal
from typing import Any

import pytest

from lockstep._launch.budget import Budget
from lockstep._launch.failures import Failure
from lockstep._launch.options import Options
from tests.launch.staging import PATIENCE, Stage, eventually, is_alive
from tests.support.ports import free_port

# Tasks know which generation they are of, and tell how far they are, as the library does.
SUPPORT = """
import json
from pathlib import Path

generation = int(os.environ["LOCKSTEP_GENERATION"])


def tell(step, dispatches=1, **marks):
    record = {"dispatches": dispatches, "step": step, "marks": marks}
    Path(os.environ["LOCKSTEP_PROGRESS_FILE"]).write_text(json.dumps(record))
"""


def program(stage: Stage, source: str) -> None:
    """Writes a program that starts with the lines above."""
    import textwrap

    stage.program(SUPPORT + textwrap.dedent(source))


def lines(stage: Stage) -> list[dict[str, Any]]:
    """What the launcher has reported."""
    return [json.loads(line) for line in (stage.directory / "report.jsonl").read_text().splitlines()]


def test_all_tasks_start_again_until_they_finish(stage: Stage) -> None:
    program(
        stage,
        """
        mark(f"{me()}-{generation}", os.environ["TF_CONFIG"])
        if me() == "worker-1" and generation < 3:
            wait_for(f"worker-0-{generation}")
            sys.exit(5)
        if generation < 3:
            stay()
        print("done")
        """,
    )
    result = stage.run(workers=2, max_restarts=2, settle=0.1, restart_delay=0.1)
    assert result.returncode == 0, result.stderr
    assert "Starting all tasks again in 0.1 s: restart 1 of 2." in result.stderr
    assert "Starting all tasks again in 0.2 s: restart 2 of 2." in result.stderr
    assert sorted(result.stdout.splitlines()) == ["[worker 0] done", "[worker 1] done"]
    clusters = [json.loads(stage.await_event(f"worker-0-{g}"))["cluster"] for g in (1, 2, 3)]
    assert all(len(c["worker"]) == 2 for c in clusters)


def test_without_the_option_nothing_starts_again(stage: Stage) -> None:
    program(stage, "mark(f'{me()}-{generation}')\nsys.exit(5)")
    result = stage.run(workers=1)
    assert result.returncode == 5
    assert "again" not in result.stderr
    assert not (stage.directory / "worker-0-2").exists()


def test_the_last_failure_is_reported_when_the_budget_is_used_up(stage: Stage) -> None:
    program(stage, "sys.exit(4 + generation)")
    result = stage.run(workers=1, max_restarts=1, restart_delay=0, report="report.jsonl")
    assert result.returncode == 6
    assert result.stderr.endswith("[lockstep] Not starting again: --max-restarts 1 is used up.\n")
    assert "worker 0 failed first: exit code 6" in result.stderr
    assert [line["event"] for line in lines(stage)] == ["failure", "failure", "end"]
    assert lines(stage)[0]["code"] == 5 and lines(stage)[-1]["code"] == 6


def test_survivors_are_killed_rather_than_waited_for(stage: Stage) -> None:
    program(
        stage,
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        mark(f"{me()}-{generation}", str(os.getpid()))
        if generation == 1:
            stay()
        """,
    )
    # Who waited for them would wait longer than the test does.
    launcher = stage.start(workers=2, max_restarts=1, restart_delay=0, settle=10 * PATIENCE, grace=10 * PATIENCE)
    pids = stage.await_pids("worker-0-1", "worker-1-1")
    os.kill(pids[1], signal.SIGKILL)
    assert stage.finish(launcher).returncode == 0
    assert not any(map(is_alive, pids))


def test_preemptions_have_a_budget_of_their_own(stage: Stage) -> None:
    program(stage, "mark(f'{me()}-{generation}')\nsys.exit(143 if generation < 3 else 5)")
    result = stage.run(workers=2, max_restarts=0, max_preemptions=2)
    assert result.returncode == 5
    assert "A task was asked to end (SIGTERM), and all have ended: exit code 143.\n" in result.stderr
    assert "Starting all tasks again: preemption 2 of 2." in result.stderr
    assert not (stage.directory / "worker-0-4").exists()


def test_a_preempted_job_ends_with_its_exit_code(stage: Stage) -> None:
    program(
        stage,
        """
        if me() == "evaluator-0":
            mark(me(), str(os.getpid()))
            stay()
        wait_for("evaluator-0")
        mark(me(), str(os.getpid()))
        if me() == "worker-1":
            wait_for("worker-0")
            await_end(int(Path("worker-0").read_text()))
            time.sleep(1.5)  # It saves, longer than others are given to settle after a failure.
            mark("saved")
        sys.exit(143)
        """,
    )
    result = stage.run(workers=2, evaluator=True, settle=0.1)
    assert result.returncode == 143
    assert (stage.directory / "saved").exists()
    assert "worker 0 has ended as asked: exit code 143; the others follow." in result.stderr
    assert result.stderr.endswith("Start them again to go on.\n")
    assert not is_alive(stage.await_pids("evaluator-0")[0])


def test_a_failure_beside_a_preemption_is_the_cause(stage: Stage) -> None:
    program(
        stage,
        """
        if me() == "worker-1":
            wait_for("worker-0")
            report("disk full", at=time.time())
            sys.exit(1)
        mark(me())
        sys.exit(143)
        """,
    )
    result = stage.run(workers=2, max_preemptions=3, settle=0.1)
    assert result.returncode == 1
    assert "worker 1 failed first: exit code 1, ValueError: disk full" in result.stderr


def test_a_failure_that_repeats_at_the_same_step_ends_the_job(stage: Stage) -> None:
    program(
        stage,
        """
        tell(step=[0, 10, 25, 25][generation], dispatches=[0, 10, 20, 15][generation])
        report(f"bad example {generation}", at=time.time())
        sys.exit(1)
        """,
    )
    result = stage.run(workers=1, max_restarts=10)
    assert result.returncode == 1
    assert result.stderr.endswith("Not starting again: the same failure came twice in a row, at step 25.\n")


def test_an_exception_before_there_is_a_strategy_is_not_tried_three_times(stage: Stage) -> None:
    """Nothing has reported it, but stderr has its traceback."""
    program(stage, "raise KeyError(f'lost {generation}')")
    result = stage.run(workers=1, max_restarts=10, restart_delay=0, report="report.jsonl")
    assert result.returncode == 1
    assert result.stderr.endswith("Not starting again: the same failure came twice in a row, at dispatch 0.\n")
    assert "failed first: exit code 1\n" in result.stderr
    assert lines(stage)[0]["cause"] == "KeyError: 'lost 1'"


def test_the_way_back_to_training_is_timed(stage: Stage) -> None:
    program(
        stage,
        """
        if generation == 1:
            sys.exit(5)
        now = time.time()
        tell(7, joined=now - 0.3, run=now - 0.25, called=now - 0.2, stepped=now)
        if me() == "worker-0":
            wait_for("reported")
        """,
    )
    launcher = stage.start(workers=2, max_restarts=1, settle=0.1, restart_delay=0, report="report.jsonl")
    stage.await_event("report.jsonl")
    eventually(lambda: "recovery" in (stage.directory / "report.jsonl").read_text(), "the report")
    stage.mark("reported")
    result = stage.finish(launcher)
    assert result.returncode == 0
    assert "Training again " in result.stderr
    found = next(line for line in lines(stage) if line["event"] == "recovery")
    assert found["step"] == 7 and found["generation"] == 1 and found["task"] in ("worker 0", "worker 1")
    parts = [found[name] for name in ("detect", "wait", "restart", "restore", "compile")]
    assert abs(sum(parts) - found["seconds"]) < 0.02
    assert abs(found["compile"] - 0.2) < 0.01


def test_an_evaluator_that_fails_is_started_again_by_itself(stage: Stage) -> None:
    program(
        stage,
        """
        if me() == "evaluator-0":
            mark(f"evaluator-{os.getpid()}")
            if not Path("second").exists():
                mark("second")
                sys.exit(6)
            mark("evaluated")
        else:
            mark("started-" + me())
            wait_for("evaluated")
        """,
    )
    result = stage.run(workers=2, evaluator=True, max_restarts=1)
    assert result.returncode == 0, result.stderr
    assert "[lockstep] evaluator 0 failed: exit code 6.\n" in result.stderr
    assert "Starting evaluator 0 again; 0 more times at most. The training goes on." in result.stderr
    assert "Starting all tasks" not in result.stderr


def test_an_evaluator_that_fails_for_good_shows_in_the_exit_code(stage: Stage) -> None:
    program(stage, "sys.exit(6) if me() == 'evaluator-0' else wait_for('go')")
    launcher = stage.start(workers=1, evaluator=True, max_restarts=1)
    for _ in range(2):
        stage.await_line(launcher, "evaluator 0 failed")
    stage.mark("go")
    assert stage.finish(launcher).returncode == 6


def test_a_signal_ends_the_wait_for_a_restart(stage: Stage) -> None:
    program(stage, "mark(f'failed-{generation}')\nsys.exit(5)")
    launcher = stage.start(workers=1, max_restarts=3, restart_delay=60)
    stage.await_line(launcher, "Starting all tasks again in 60 s")
    launcher.send_signal(signal.SIGTERM)
    assert stage.finish(launcher).returncode == 128 + signal.SIGTERM
    assert not (stage.directory / "failed-2").exists()


def test_ports_that_were_asked_for_are_used_again(stage: Stage) -> None:
    port = free_port()
    program(stage, "mark(f'{me()}-{generation}', os.environ['TF_CONFIG'])\nsys.exit(0 if generation == 2 else 5)")
    assert stage.run(workers=1, max_restarts=1, restart_delay=0, port_base=port).returncode == 0
    for generation in (1, 2):
        config = json.loads(stage.await_event(f"worker-0-{generation}"))
        assert config["cluster"]["worker"] == [f"127.0.0.1:{port}"]


def budget(**options: Any) -> Budget:
    return Budget(Options(workers=2, **options))


def test_pauses_grow_until_there_are_new_steps() -> None:
    decide = budget(max_restarts=20, restart_delay=2.0).decide
    signals = [Failure("exit -9", step=10 + i % 2, dispatches=3) for i in range(8)]
    assert [decide(f).delay for f in signals] == [0.0, 0.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0]
    assert decide(Failure("exit -9", step=12, dispatches=1)).delay == 0.0
    assert decide(Failure("exit -9", step=None, dispatches=0)).delay == 2.0


def test_budgets_are_separate() -> None:
    decide = budget(max_restarts=1, max_preemptions=2).decide
    crash = [Failure("exit 1", dispatches=i) for i in range(3)]
    preemption = Failure("exit 143", is_preemption=True, dispatches=1)
    assert [decide(f).again for f in (crash[0], preemption, preemption, crash[1])] == [True, True, True, False]
    assert decide(preemption).reason == "--max-preemptions 2 is used up"


@pytest.mark.parametrize(
    ("failures", "again"),
    [
        ([Failure("E: a", was_raised=True, step=5, dispatches=5), Failure("E: a", was_raised=True, step=5)], False),
        ([Failure("E: batch 3", was_raised=True, step=5), Failure("E: batch 4", was_raised=True, step=5)], False),
        ([Failure("E: a", was_raised=True, step=5), Failure("E: a", was_raised=True, step=6)], True),
        ([Failure("E: a", was_raised=True, step=5), Failure("E: b", was_raised=True, step=5)], True),
        ([Failure("E: a", was_raised=True), Failure("E: a", was_raised=True)], False),
        ([Failure("exit -9", step=5, dispatches=1)] * 2, True),
        ([Failure("exit -9", step=5, dispatches=1)] * 3, False),
        ([Failure("exit -9")] * 5, True),
    ],
)
def test_what_counts_as_the_same_failure(failures: list[Failure], again: bool) -> None:
    decide = budget(max_restarts=10).decide
    *before, last = failures
    for failure in before:
        assert decide(failure).again
    assert decide(last).again == again


@pytest.mark.parametrize("option", ["max_restarts", "max_preemptions", "restart_delay"])
def test_options_below_zero_are_refused(stage: Stage, option: str) -> None:
    stage.program("")
    name = "--" + option.replace("_", "-")
    result = stage.run_command("--workers", 1, f"{name}=-1", "program.py")
    assert result.returncode == 2
    assert f"{name} must be at least 0, received -1" in result.stderr


def test_a_temporary_directory_that_is_removed_is_made_again(stage: Stage) -> None:
    """As by what cleans /tmp: the launcher still learns of the first cause, and starts all tasks again."""
    program(
        stage,
        """
        from pathlib import Path

        report = Path(os.environ["LOCKSTEP_ERROR_FILE"])
        if generation == 1:
            mark(f"started-{me()}", str(report.parent.parent))
        if me() == "worker-1" and generation == 1:
            wait_for("removed")
            while not report.parent.exists():
                time.sleep(0.01)
            error = {"task": "worker 1", "time": time.time(), "type": "OSError", "message": "disk gone"}
            report.write_text(json.dumps({**error, "traceback": "", "secondary": False}))
            sys.exit(5)
        if generation == 1:
            stay()
        print("done", report.parent.is_dir())
        """,
    )
    launcher = stage.start(workers=2, max_restarts=1, settle=0.1, restart_delay=0.1)
    places = {stage.await_event(f"started-worker-{i}") for i in range(2)}
    assert len(places) == 1
    shutil.rmtree(places.pop())
    stage.mark("removed")
    result = stage.finish(launcher)
    assert result.returncode == 0, result.stderr
    assert "OSError: disk gone" in result.stderr
    assert sorted(result.stdout.splitlines()) == ["[worker 0] done True", "[worker 1] done True"]
    assert not list(stage.directory.glob("lockstep-*"))


def test_a_temporary_directory_that_is_removed_between_two_starts_is_made_again(stage: Stage) -> None:
    program(
        stage,
        """
        import shutil
        from pathlib import Path

        if me() == "worker-0" and generation == 1:
            shutil.rmtree(Path(os.environ["LOCKSTEP_ERROR_FILE"]).parent.parent)
            sys.exit(5)
        print("done")
        """,
    )
    result = stage.run(workers=1, max_restarts=1, settle=0.1, restart_delay=0.1)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["[worker 0] done"]
