"""What a user sees on a terminal."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager

from tests.launch.staging import PATIENCE, Stage, eventually


class Terminal:
    """The launcher's terminal, from the side of who looks at it."""

    def __init__(self, descriptor: int, launcher: subprocess.Popen[str]) -> None:
        self.launcher = launcher
        self.seen = ""
        self._descriptor = descriptor

    def look(self) -> bool:
        """Read what is there; return whether there may be more."""
        try:
            data = os.read(self._descriptor, 65536)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.seen += data.decode()
        return bool(data)

    def await_text(self, text: str) -> None:
        """Look until `text` has been shown."""
        eventually(lambda: self.look() and text in self.seen, f"{text!r} on the terminal")

    def finish(self) -> str:
        """Look until the launcher has ended, and return everything that was shown."""
        eventually(lambda: not self.look(), "the terminal is closed")
        self.launcher.wait(PATIENCE)
        return self.seen


@contextmanager
def terminal(stage: Stage, *, no_color: str = "", **options: object) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 60))
    env = {"TERM": "xterm", "NO_COLOR": no_color}
    launcher = stage.start(env=env, pipes={"stdout": theirs, "stderr": theirs}, **options)
    os.close(theirs)
    os.set_blocking(ours, False)
    try:
        yield Terminal(ours, launcher)
    finally:
        os.close(ours)


def test_labels_have_the_colour_of_their_task(stage: Stage) -> None:
    stage.program("print('\\x1b[1mhi\\x1b[2K', sys.stdout.isatty())")
    with terminal(stage, workers=2, evaluator=True) as screen:
        seen = screen.finish()
    assert "\x1b[36m[worker 0]\x1b[0m \x1b[1mhi True\x1b[0m\r\n" in seen
    assert "\x1b[32m[worker 1]\x1b[0m \x1b[1mhi False\x1b[0m\r\n" in seen
    assert "\x1b[33m[evaluator 0]\x1b[0m \x1b[1mhi False\x1b[0m\r\n" in seen


def test_no_color_is_heeded(stage: Stage) -> None:
    stage.program("print('\\x1b[1mhi', end='')\nmark('written')\nwait_for('seen')\nsys.exit(1)")
    with terminal(stage, workers=1, no_color="1") as screen:
        screen.await_text("[worker 0] hi")
        stage.mark("seen")
        seen = screen.finish()
    assert "\x1b" not in seen
    assert "failed first" in seen


def test_a_failure_stands_out(stage: Stage) -> None:
    stage.program("sys.exit(3)")
    with terminal(stage, workers=1) as screen:
        seen = screen.finish()
    assert "\x1b[31mlockstep: worker 0 failed first: exit code 3\x1b[0m\r\n" in seen


def test_the_progress_of_worker_0_is_live(stage: Stage) -> None:
    stage.program(r"""
        for step in range(1, 4):
            if me() == "worker-0":
                sys.stdout.write("\b" * 6 + "\r" + f"step {step}")
                wait_for(f"seen-{step}")
            if me() == "worker-1" and step == 2:
                wait_for("seen-1")
                print("between")
        print()
    """)
    with terminal(stage, workers=2) as screen:
        screen.await_text("[worker 0]\x1b[0m step 1")
        stage.mark("seen-1")
        screen.await_text("between")
        screen.await_text("[worker 0]\x1b[0m step 2")
        stage.mark("seen-2")
        screen.await_text("[worker 0]\x1b[0m step 3")
        stage.mark("seen-3")
        seen = screen.finish()
    assert screen.launcher.returncode == 0
    assert displayed(seen).count("[worker 0] step 3") == 1
    assert "step 1" not in displayed(seen)
    assert "[worker 1] between" in displayed(seen).splitlines()


def displayed(text: str) -> str:
    """What stays on the screen: the last state of each line, without colours."""
    without_colours = "".join(piece.partition("m")[2] for piece in f"m{text}".split("\x1b["))
    lines = without_colours.replace("\r\n", "\n").split("\n")
    return "\n".join(line.rpartition("\r")[2] for line in lines)


def test_progress_on_stderr_is_live_too(stage: Stage) -> None:
    stage.program("sys.stderr.write('\\r50 %')\nwait_for('seen')\nsys.stderr.write('\\r99 %\\n')")
    with terminal(stage, workers=1) as screen:
        screen.await_text("50 %")
        stage.mark("seen")
        assert "[worker 0] 99 %" in displayed(screen.finish()).splitlines()


def test_a_long_unfinished_line_is_cut_to_the_terminal(stage: Stage) -> None:
    stage.program("print('x' * 200, end='')\nwait_for('seen')")
    with terminal(stage, workers=1) as screen:
        # However few of its letters come at a time.
        room = 60 - 1 - len("[worker 0] ")
        eventually(lambda: screen.look() and widest(screen.seen) >= room, "a full line on the terminal")
        live = screen.seen
        stage.mark("seen")
        assert "x" * 200 in screen.finish()
    assert widest(live) == room


def widest(text: str) -> int:
    """The most letters x in a state of a line."""
    return max(state.count("x") for state in re.split(r"[\r\n]", text))


def test_worker_0_knows_the_room_it_has(stage: Stage) -> None:
    stage.program("print(os.get_terminal_size().columns)")
    with terminal(stage, workers=1) as screen:
        assert "[worker 0] 49" in displayed(screen.finish()).splitlines()


def test_output_before_the_end_is_never_lost(stage: Stage) -> None:
    stage.program("for n in range(3000): print(n)")
    with terminal(stage, workers=1) as screen:
        shown = displayed(screen.finish()).splitlines()
    assert [line for line in shown if line] == [f"[worker 0] {n}" for n in range(3000)]


def test_a_terminal_that_goes_away_ends_the_run(stage: Stage) -> None:
    stage.program("mark(me(), str(os.getpid()))\nstay()")
    with terminal(stage, workers=1) as screen:
        stage.await_event("worker-0")
    screen.launcher.send_signal(signal.SIGHUP)  # as the kernel does to who controls a terminal
    assert screen.launcher.wait(PATIENCE) == 128 + signal.SIGHUP


def test_logs_hold_what_was_printed_on_a_terminal_too(stage: Stage) -> None:
    stage.program(r"print('\x1b[1mone\rtwo')")
    with terminal(stage, workers=1, log_dir="logs") as screen:
        screen.finish()
    assert (stage.directory / "logs/worker-0.log").read_bytes() == b"\x1b[1mone\rtwo\n"
