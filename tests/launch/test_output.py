"""Where the output of tasks goes, when nobody watches on a terminal."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from tests.launch.staging import PATIENCE, Stage, eventually


def test_lines_are_labelled_and_keep_their_stream(stage: Stage) -> None:
    stage.program("print('to', 'out'); print('to err', file=sys.stderr); print(); print('no end', end='')")
    result = stage.run(workers=2, evaluator=True)
    assert result.returncode == 0
    for label in ("[worker 0]", "[worker 1]", "[evaluator 0]"):
        own = [line for line in result.stdout.splitlines() if line.startswith(label)]
        assert own == [f"{label} to out", label, f"{label} no end"]
        assert f"{label} to err\n" in result.stderr


def test_there_are_no_escape_codes_without_a_terminal(stage: Stage) -> None:
    stage.program(r"print('\x1b[1mbold\x1b[0m \x1b]0;title\x07\x1b[2Kplain\x00\x9b', sys.stdout.isatty())")
    assert stage.run(workers=1).stdout == "[worker 0] bold plain False\n"


def test_a_progress_bar_shows_its_last_state_only(stage: Stage) -> None:
    stage.program(r"""
        for step in range(1, 4):
            sys.stdout.write("\b" * 6 + "\r" + f"step {step}")
        sys.stdout.write("\n")
        sys.stdout.write("gone\r")
        sys.stdout.write("left\r\n")
    """)
    assert stage.run(workers=1).stdout == "[worker 0] step 3\n[worker 0] left\n"


def test_gloo_s_greeting_is_left_out(stage: Stage) -> None:
    stage.program(r"print('[Gloo] Rank 0 is connected to 1 peer ranks. Expected is : 1'); print('[Gloo] else')")
    assert stage.run(workers=1).stdout == "[worker 0] [Gloo] else\n"


def test_bytes_that_are_not_utf8_are_replaced(stage: Stage) -> None:
    stage.program(r"sys.stdout.buffer.write(b'caf\xe9 \xc3\xa9\n')")
    assert stage.run(workers=1).stdout == "[worker 0] caf\N{REPLACEMENT CHARACTER} é\n"


def test_lines_of_many_tasks_never_mix(stage: Stage) -> None:
    stage.program("for _ in range(2000): print(me() * 20)")
    result = stage.run(workers=3)
    expected = {f"[worker {index}] {f'worker-{index}' * 20}" for index in range(3)}
    lines = result.stdout.splitlines()
    assert len(lines) == 6000
    assert set(lines) == expected


def test_huge_output_does_not_grow_memory(stage: Stage) -> None:
    stage.program("""
        times = int(sys.argv[1])
        for _ in range(times):
            sys.stdout.write("x" * 1_000_000)
        for _ in range(times):
            sys.stdout.write("yyyyyyyyy\\n" * 50_000)
    """)
    assert peak_memory(stage, times=20) - peak_memory(stage, times=1) < 10_000


def peak_memory(stage: Stage, times: int) -> int:
    """Return the most memory that a launcher used, in KiB, on an output of 1.5 MB so many times."""
    code = (
        "import sys; from pathlib import Path; from lockstep._launch.launcher import launch\n"
        f"code = launch(['program.py', '{times}'], workers=1)\n"
        # Not what `getrusage` says: that counts this process, too, before the launcher's program took its place.
        "Path('status').write_text(Path('/proc/self/status').read_text())\n"
        "sys.exit(code)"
    )
    with (stage.directory / "out").open("wb") as out:
        launcher = stage._start(["-c", code], None, {"stdout": out, "stderr": subprocess.DEVNULL})
        assert launcher.wait(PATIENCE) == 0
    assert (stage.directory / "out").stat().st_size > times * 1_500_000
    lines = (stage.directory / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def test_a_reader_that_leaves_does_not_end_the_run(stage: Stage) -> None:
    stage.program("mark('started')\nwait_for('closed')\nprint('x' * 100_000)\nmark('finished')")
    launcher = stage.start(workers=1)
    stage.await_event("started")
    assert launcher.stdout is not None
    launcher.stdout.close()
    stage.mark("closed")
    assert launcher.wait(PATIENCE) == 0
    assert (stage.directory / "finished").exists()


def test_a_reader_that_does_not_read_does_not_keep_the_launcher(stage: Stage) -> None:
    stage.program("mark(me(), str(os.getpid()))\nwhile True: print('x' * 1000)")
    launcher = stage.start(workers=1)
    (pid,) = stage.await_pids("worker-0")
    eventually(lambda: is_blocked(pid), "the task waits for its reader")
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(PATIENCE) == 128 + signal.SIGTERM


def is_blocked(pid: int) -> bool:
    """Whether the process sleeps in a full pipe, seen twice."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.parent.parent.exists():
        return True
    before, after = (written(pid) for _ in range(2))
    return before == after > 0 and stat.read_text().rpartition(")")[2].split()[0] == "S"


def written(pid: int) -> int:
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["wchar"])


def test_logs_hold_what_was_printed(stage: Stage) -> None:
    stage.program(r"""
        sys.stdout.buffer.write(b"\x1b[1mone\x1b[0m\rtwo\xff\n")
        sys.stdout.flush()
        os.close(1)
    """)
    result = stage.run(workers=2, evaluator=True, log_dir="made/logs")
    assert result.returncode == 0
    for name in ("worker-0.log", "worker-1.log", "evaluator-0.log"):
        assert (stage.directory / "made/logs" / name).read_bytes() == b"\x1b[1mone\x1b[0m\rtwo\xff\n"


def test_logs_of_earlier_runs_are_kept(stage: Stage) -> None:
    stage.program("print(sys.argv[1])")
    for run in ("first", "second", "third"):
        assert stage.run(run, workers=1, log_dir="logs").returncode == 0
    texts = {path.name: path.read_text().strip() for path in (stage.directory / "logs").glob("*.log*")}
    assert texts == {"worker-0.log": "third", "worker-0.log.1": "first", "worker-0.log.2": "second"}
