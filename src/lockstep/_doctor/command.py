"""`lockstep doctor`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer

from lockstep._doctor import report
from lockstep._doctor.finding import Finding, error


def doctor(
    cluster: Annotated[
        bool,
        typer.Option(
            "--cluster", help="Join the cluster and test it together with all other tasks, which run this too."
        ),
    ] = False,
    shared: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The directory for checkpoints, which all tasks share, to be tested too."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check versions, devices, memory, settings, the cluster's description, names, ports and directories.

    Each finding says what to do. The exit status is 1 if one is an error. With --cluster all tasks of the cluster are
    tested together, within two minutes; on one machine: lockstep run --workers 2 -m lockstep doctor --cluster
    """
    if cluster:
        from lockstep._doctor.cluster import examine

        reports, findings = examine(shared)
        title = f"lockstep doctor --cluster: {os.environ.get('TF_CONFIG', '')[:200]}"
    else:
        reports, findings = True, examine_machine(shared)
        title = "lockstep doctor"
    if as_json and reports:
        print(report.as_json(findings))
    elif reports:
        report.show(findings, title)
    raise typer.Exit(0 if report.is_healthy(findings) else 1)


def examine_machine(shared: Path | None) -> list[Finding]:
    """Runs every check of this machine; a check that breaks is a finding too."""
    from lockstep._doctor import machine, network, software

    description, findings = network.describe()
    others = description.has_other_machines
    checks: dict[str, Callable[[], Iterable[Finding]]] = {
        "versions": software.versions,
        "Keras": software.backend,
        "devices": software.devices,
        "settings": software.settings,
        "memory": machine.memory,
        "compile cache": machine.compile_cache,
        "cluster": lambda: findings,
        "peers": lambda: network.peers(description),
        "ports": lambda: network.ports(description),
        "secret": lambda: machine.secret(others),
        "shared directory": lambda: machine.shared_directory(shared, others),
        "clocks": network.clock,
    }
    return [finding for section, check in checks.items() for finding in _run(section, check)]


def _run(section: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    try:
        return list(check())
    # Whatever it is: the other checks are the ones that may explain it.
    except Exception as problem:
        text = f"The check itself failed: {type(problem).__name__}: {problem}"
        return [error(section, text, "Look into the message; it is a defect of lockstep if nothing here explains it.")]
