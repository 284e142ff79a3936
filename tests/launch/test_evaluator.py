"""An evaluator beside the workers: restarts, also after they have finished, and time limits."""

from __future__ import annotations

import json
import os
import signal
import textwrap

import pytest

from tests.launch.staging import Stage, eventually, is_alive

# The first process of the evaluator, once the workers have finished.
LATE = """
import json
from pathlib import Path

if me() == "worker-0":
    wait_for("started")
    mark("finished", str(os.getpid()))
    sys.exit(0)
mark("started")
wait_for("finished")
await_end(int(Path("finished").read_text()))
"""
ENDS = {
    "an error": "sys.exit(6)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "SIGTERM, in order": "sys.exit(143)",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
}


def late(stage: Stage, source: str) -> None:
    """Writes a program whose evaluator does this after the workers, and evaluates when it is started again."""
    stage.program(LATE + "if Path('second').exists():\n    mark('evaluated')\n    sys.exit(0)\nmark('second')\n")
    with (stage.directory / "program.py").open("a") as file:
        file.write(textwrap.dedent(source))


@pytest.mark.parametrize("end", list(ENDS))
def test_one_that_ends_after_the_workers_is_started_again(stage: Stage, end: str) -> None:
    late(stage, ENDS[end])
    option = "max_preemptions" if "SIGTERM" in end else "max_restarts"
    result = stage.run(workers=1, evaluator=True, **{option: 1})
    assert result.returncode == 0, result.stderr
    assert (stage.directory / "evaluated").exists()
    assert "Starting evaluator 0 again; 0 more times at most. The workers have finished." in result.stderr


def test_preemptions_and_failures_are_counted_apart(stage: Stage) -> None:
    stage.program(
        LATE
        + textwrap.dedent(
            """
            number = len(list(Path().glob("start-*")))
            left = [os.environ[f"LOCKSTEP_{name}_LEFT"] for name in ("RESTARTS", "PREEMPTIONS")]
            mark(f"start-{number}", " ".join(left))
            if number < 3:
                sys.exit((143, 6, 143)[number])
            """
        )
    )
    result = stage.run(workers=1, evaluator=True, max_restarts=1, max_preemptions=2)
    assert result.returncode == 0, result.stderr
    assert [stage.await_event(f"start-{i}") for i in range(4)] == ["1 2", "1 1", "0 1", "0 0"]


def test_a_signal_ends_the_wait_for_its_restart(stage: Stage) -> None:
    late(stage, "sys.exit(6)")
    launcher = stage.start(workers=1, evaluator=True, max_restarts=1, restart_delay=600)
    stage.await_line(launcher, "evaluator 0 failed: exit code 6")
    launcher.send_signal(signal.SIGTERM)
    assert stage.finish(launcher).returncode == 128 + signal.SIGTERM
    assert not (stage.directory / "evaluated").exists()


def test_one_that_is_stopped_for_good_is_named_and_ended(stage: Stage) -> None:
    late(stage, "mark('stopped', str(os.getpid()))\nos.kill(os.getpid(), signal.SIGSTOP)")
    result = stage.finish(stage.start(workers=1, evaluator=True, env={"LOCKSTEP_SILENCE_TIMEOUT": "0.5"}))
    pid = stage.await_pids("stopped")[0]
    assert result.returncode == 128 + signal.SIGKILL
    assert f"evaluator 0 (process {pid}) has been stopped, by SIGSTOP or a terminal, for 0.5 s" in result.stderr
    assert "LOCKSTEP_SILENCE_TIMEOUT" in result.stderr
    assert "ran out of memory" not in result.stderr
    assert not is_alive(pid)


def test_one_that_is_stopped_is_started_again_while_the_workers_go_on(stage: Stage) -> None:
    stage.program(
        """
        if me() == "worker-0":
            wait_for("evaluated")
        elif os.path.exists("second"):
            mark("evaluated")
        else:
            mark("second")
            os.kill(os.getpid(), signal.SIGSTOP)
        """
    )
    env = {"LOCKSTEP_SILENCE_TIMEOUT": "0.5"}
    result = stage.finish(stage.start(workers=1, evaluator=True, max_restarts=1, env=env))
    assert result.returncode == 0, result.stderr
    assert "The training goes on." in result.stderr


def test_one_that_is_continued_in_time_is_left_alone(stage: Stage) -> None:
    late(stage, "mark('stopped', str(os.getpid()))\nos.kill(os.getpid(), signal.SIGSTOP)\nmark('continued')")
    launcher = stage.start(workers=1, evaluator=True, env={"LOCKSTEP_SILENCE_TIMEOUT": "600"})
    pid = stage.await_pids("stopped")[0]
    eventually(lambda: _state(pid) == "T", "the evaluator is stopped")
    os.kill(pid, signal.SIGCONT)
    assert stage.finish(launcher).returncode == 0
    assert (stage.directory / "continued").exists()


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_one_that_makes_no_step_after_the_workers_is_named_and_ended(stage: Stage) -> None:
    late(stage, "mark('stuck')\nstay()")
    result = stage.finish(stage.start(workers=1, evaluator=True, env={"LOCKSTEP_LEAVE_TIMEOUT": "0.5"}))
    assert result.returncode == 128 + signal.SIGKILL
    assert "The workers have finished, and evaluator 0 (process " in result.stderr
    assert "has made no step for 0.5 s (LOCKSTEP_LEAVE_TIMEOUT)" in result.stderr


def test_one_that_makes_steps_may_take_longer(stage: Stage) -> None:
    late(
        stage,
        """
        # All of it takes longer than the limit, each step far less.
        for number in range(60):
            record = {"dispatches": number, "step": None, "marks": {}}
            part = Path("part")
            part.write_text(json.dumps(record))
            part.rename(os.environ["LOCKSTEP_PROGRESS_FILE"])
            time.sleep(0.1)
        """,
    )
    result = stage.finish(stage.start(workers=1, evaluator=True, env={"LOCKSTEP_LEAVE_TIMEOUT": "5"}))
    assert result.returncode == 0, result.stderr


def test_all_tasks_of_a_launch_have_its_id_and_no_others(stage: Stage) -> None:
    stage.program(
        """
        mark(f"{os.environ['LAUNCH']}-{me()}-{os.environ['LOCKSTEP_GENERATION']}", os.environ["LOCKSTEP_RUN_ID"])
        if me() == "evaluator-0":
            wait_for(f"{os.environ['LAUNCH']}-worker-0-{os.environ['LOCKSTEP_GENERATION']}")
        elif os.environ["LOCKSTEP_GENERATION"] == "1":
            wait_for(f"{os.environ['LAUNCH']}-evaluator-0-1")
            sys.exit(5)
        """
    )
    for launch in ("a", "b"):
        env = {"LAUNCH": launch, "LOCKSTEP_RUN_ID": "inherited"}
        launcher = stage.start(workers=1, evaluator=True, max_restarts=1, restart_delay=0, env=env)
        assert stage.finish(launcher).returncode == 0
    ids = {launch: {p.read_text() for p in stage.directory.glob(f"{launch}-*")} for launch in ("a", "b")}
    assert len(ids["a"]) == len(ids["b"]) == 1
    assert not ids["a"] & ids["b"]
    assert "inherited" not in json.dumps([sorted(i) for i in ids.values()])
