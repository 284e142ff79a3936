"""The order of causes, and the words for them."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep._launch.child import Exit
from lockstep._launch.root_cause import Ended, manner, root_cause
from lockstep._launch.task import Task
from lockstep._launch.task_files import ErrorRecord
from lockstep._launch.warden_process import surviving


def ended(index: int, code: int, at: float, error: ErrorRecord | None = None, asked_at: float | None = None) -> Ended:
    return Ended(Task("worker", index), Exit(code, at, asked_at), error)


def record(at: float, *, secondary: bool = False) -> ErrorRecord:
    return ErrorRecord(at, "ValueError", "wrong", "Traceback", secondary)


IN_ORDER = [
    ended(0, -signal.SIGKILL, 50.0),
    ended(1, -signal.SIGSEGV, 60.0, record(5.0)),
    ended(2, 1, 70.0, record(10.0)),
    ended(3, -signal.SIGABRT, 65.0, record(11.0)),
    ended(4, 1, 20.0),
    ended(5, 2, 30.0),
    ended(6, -signal.SIGABRT, 1.0),
    ended(7, 1, 2.0, record(0.5, secondary=True)),
    ended(8, -signal.SIGSEGV, 3.0, record(0.5, secondary=True)),
]
NO_CAUSE = [
    ended(10, 0, 0.1),
    ended(11, 0, 0.1, record(0.1)),
    ended(12, -signal.SIGTERM, 0.1, asked_at=0.05),
    ended(13, 1, 0.1, record(0.1, secondary=True), asked_at=0.2),
    ended(14, 1, 0.1, record(0.1), asked_at=0.05),
]


@given(st.sets(st.integers(0, len(IN_ORDER) - 1), min_size=1), st.randoms(use_true_random=False))
def test_the_nearest_to_the_cause_is_found_in_any_order(chosen: set[int], random: object) -> None:
    ends = [*(IN_ORDER[index] for index in chosen), *NO_CAUSE]
    random.shuffle(ends)
    assert root_cause(ends) is IN_ORDER[min(chosen)]


def test_without_a_failure_there_is_no_cause() -> None:
    assert root_cause(NO_CAUSE) is None


_TAIL = (
    "Traceback (most recent call last):",
    '  File "program.py", line 3, in <module>',
    "    lose()",
    "KeyError: 'lost'",
)


@pytest.mark.parametrize(
    ("code", "tail", "error", "found"),
    [
        (1, _TAIL, None, "KeyError: 'lost'"),
        (1, _TAIL[1:], None, "KeyError: 'lost'"),
        (1, (*_TAIL, "Read on: lockstep explain cluster"), None, "KeyError: 'lost'"),
        (1, _TAIL[-1:], None, None),
        (1, (), None, None),
        (3, _TAIL, None, None),
        (-9, _TAIL, None, None),
        (1, _TAIL, record(1.0), None),
    ],
    ids=["traceback", "end of one", "with the page", "no traceback", "nothing", "exit", "signal", "reported"],
)
def test_a_traceback_tells_of_an_exception_that_was_not_reported(
    code: int, tail: tuple[str, ...], error: ErrorRecord | None, found: str | None
) -> None:
    assert Ended(Task("worker", 0), Exit(code, 1.0), error, tail).uncaught == found


def test_an_evaluator_comes_last() -> None:
    evaluator = Ended(Task("evaluator", 0), Exit(-signal.SIGKILL, 0.0))
    assert root_cause([evaluator, IN_ORDER[-1]]) is IN_ORDER[-1]
    assert root_cause([evaluator]) is evaluator


@pytest.mark.parametrize(
    ("code", "words", "shell"),
    [(3, "exit code 3", 3), (-9, "killed by signal 9 (SIGKILL)", 137), (-40, "killed by signal 40 (unnamed)", 168)],
)
def test_an_end_has_words_and_an_exit_code(code: int, words: str, shell: int) -> None:
    assert manner(code) == words
    assert ended(0, code, 1.0).exit_code == shell


def test_the_warden_kills_what_was_not_taken_back() -> None:
    assert surviving(["+10\n", "+11\n", "-10\n", "+12\n", "-99\n"]) == {11, 12}


def test_the_headline_of_an_error_of_keras_has_its_cause() -> None:
    message = (
        "Exception encountered when calling Dense.call().\n\n"
        "\x1b[1mMatrix size-incompatible: [2,3] and [4,5].\x1b[0m\n\n"
        "Arguments received by Dense.call():\n  • inputs=..."
    )
    record = ErrorRecord(0.0, "ValueError", message, "", False)
    assert record.headline == (
        "Exception encountered when calling Dense.call(). Matrix size-incompatible: [2,3] and [4,5]."
    )
    assert ErrorRecord(0.0, "ValueError", "one\ntwo", "", False).headline == "one"
    assert ErrorRecord(0.0, "ValueError", "", "", False).headline == ""
