"""Wrong arguments: exit code 2, and a message instead of a traceback."""

from __future__ import annotations

import ast
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from typer.main import get_command

import lockstep._launch
from lockstep._launch.cli import app
from lockstep._launch.launcher import launch
from lockstep._launch.options import _FLAGS, Options, shield_module
from lockstep._launch.task import Reservation
from lockstep.errors import AddressError, ArgumentError
from tests.launch.staging import Stage
from tests.support.ports import free_port


def refusal(stage: Stage, *arguments: object) -> str:
    stage.program("mark('started')")
    result = stage.run_command(*arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert not (stage.directory / "started").exists()
    return result.stderr


@contextmanager
def free_and_busy() -> Iterator[int]:
    """Holds a port that only the program may listen on, and makes the one after it busy."""
    while True:
        base = free_port()
        with suppress(OSError, OverflowError):
            busy = socket.create_server(("127.0.0.1", base + 1))
            break
    with busy:
        yield base


def test_a_missing_script_is_named(stage: Stage) -> None:
    message = refusal(stage, "--workers", 1, "missing.py")
    assert message.startswith("lockstep: error: The script must be an existing file, received 'missing.py'")


def test_a_module_needs_a_name(stage: Stage) -> None:
    assert "-m must be followed by the name of a module" in refusal(stage, "--workers", 1, "-m")


def test_there_is_at_least_one_worker(stage: Stage) -> None:
    assert "--workers must be at least 1, received 0" in refusal(stage, "--workers", 0, "program.py")


def test_a_busy_port_is_named(stage: Stage) -> None:
    with free_and_busy() as base:
        message = refusal(stage, "--workers", 2, "--port-base", base, "program.py")
    assert f"port {base + 1} cannot be used" in message


def test_a_log_directory_that_cannot_be_made_is_named(stage: Stage) -> None:
    message = refusal(stage, "--workers", 1, "--log-dir", "program.py/logs", "program.py")
    assert "--log-dir must be a directory" in message


def test_unknown_options_and_missing_ones_are_refused(stage: Stage) -> None:
    assert "--wrong" in refusal(stage, "--wrong", "program.py")
    assert "--workers" in refusal(stage, "program.py")
    assert "PROGRAM" in refusal(stage, "--workers", 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"workers": 0},
        {"workers": -1},
        {"workers": 1, "devices_per_worker": 0},
        {"workers": 1, "join_timeout": 0.0},
        {"workers": 1, "join_timeout": float("nan")},
        {"workers": 1, "join_timeout": float("inf")},
        {"workers": 1, "port_base": 0},
        {"workers": 3, "port_base": 65534},
        {"workers": 2, "port_base": 65534, "chief": True},
        {"workers": 2, "port_base": 65534, "evaluator": True},
    ],
    ids=repr,
)
def test_options_refuse_what_cannot_be_started(wrong: dict[str, float]) -> None:
    with pytest.raises(ArgumentError, match=r"received .*\. (Give|Leave)"):
        Options(**wrong)


def test_the_last_port_can_be_used() -> None:
    assert Options(workers=2, port_base=65534).port_base == 65534


def test_launching_nothing_is_refused() -> None:
    with pytest.raises(ArgumentError, match="A task needs a program"):
        launch([], workers=1)


def test_reserved_ports_are_held_until_they_are_freed() -> None:
    with Reservation(3, None) as ports:
        numbers = [int(address.rpartition(":")[2]) for address in ports.addresses]
        assert len(set(numbers)) == 3
        with pytest.raises(AddressError, match=f"port {numbers[0]} "):
            Reservation(1, numbers[0])
    base = free_port()
    with Reservation(1, base) as ports:
        ports.free()
        with Reservation(1, base) as again:
            assert again.addresses == [f"127.0.0.1:{base}"]


def test_ports_follow_the_base() -> None:
    base = free_port()
    with Reservation(1, base) as ports:
        assert ports.addresses == [f"127.0.0.1:{base}"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("run --workers 2 -m a --x", "run --workers 2 -- -m a --x"),
        ("run --workers=2 --evaluator -m a", "run --workers=2 --evaluator -- -m a"),
        ("run -m a --workers 2", "run -- -m a --workers 2"),
        ("run --workers 2 a.py -m b", "run --workers 2 a.py -m b"),
        ("run --workers 2 -- -m b", "run --workers 2 -- -m b"),
        ("run --log-dir -m a", "run --log-dir -m a"),
        ("run --help", "run --help"),
        ("run", "run"),
        ("", ""),
    ],
)
def test_a_module_ends_the_options(given: str, expected: str) -> None:
    assert shield_module(given.split()) == expected.split()


def test_every_option_without_a_value_is_known_as_such() -> None:
    params = get_command(app).commands["run"].params
    flags = {option for param in params if getattr(param, "is_flag", False) for option in param.opts}
    assert flags | {"--help"} == _FLAGS


def test_the_launcher_knows_the_cluster_and_the_errors_only() -> None:
    directory = Path(lockstep._launch.__file__).parent
    allowed = ("lockstep._launch", "lockstep._messages", "lockstep.errors", "lockstep.cluster_resolver")
    allowed += ("lockstep._engine.runtime",)
    imported = {name for path in directory.glob("*.py") for name in imports(path)}
    assert not imported & {"jax", "keras", "numpy"}
    # The table of commands also names those of other packages, which import as little, or when they are used.
    allowed = (
        *allowed,
        "lockstep._doctor.command",
        "lockstep._migrate",
        "lockstep._templates.command",
        "lockstep.report.internal",
    )
    assert not {name for name in imported if name.startswith("lockstep.") and not name.startswith(allowed)}


def imports(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
