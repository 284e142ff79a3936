"""`lockstep doctor` on one machine: what each check finds, and what it advises."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from lockstep._doctor import machine, network, software
from lockstep._doctor.command import examine_machine
from lockstep._doctor.finding import Finding, Level, error, size
from lockstep._doctor.report import as_json, is_healthy, lines
from lockstep._engine.runtime import addresses, local_devices
from tests.support.ports import free_port

SOURCE = Path(software.__file__).resolve().parents[1]
LAUNCHERS = ("TF_CONFIG", "WORLD_SIZE", "RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "JOB_COMPLETION_INDEX")


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("LOCKSTEP_") or name in LAUNCHERS:
            monkeypatch.delenv(name)


def tf_config(cluster: dict[str, list[str]], kind: str = "worker", index: int = 0) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


def found(findings: list[Finding], level: Level, pattern: str) -> Finding:
    """The one finding of a level whose text matches."""
    matching = [each for each in findings if each.level == level and re.search(pattern, each.text)]
    assert len(matching) == 1, findings
    return matching[0]


def test_versions_are_held_against_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {each.data.get("package"): each for each in software.versions()}
    assert seen["jax"].level == seen["keras"].level == Level.OK
    right = metadata.version
    monkeypatch.setattr(
        metadata, "version", lambda name: {"keras": "2.15.0", "jaxlib": "0.4.1"}.get(name) or right(name)
    )
    findings = list(software.versions())
    assert found(findings, Level.ERROR, "keras 2.15.0 is outside of").advice.startswith("pip install 'keras")
    assert "does not belong to jax" in found(findings, Level.ERROR, "jaxlib 0.4.1").text


@pytest.mark.cluster
def test_devices_are_those_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "3")
    (finding,) = [each for each in software.devices() if each.level == Level.OK]
    assert finding.text.startswith("3 cpu device(s)")


@pytest.mark.cluster
def test_a_platform_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "nonsense")
    finding = found(list(software.devices()), Level.ERROR, "JAX does not start")
    assert "Unset JAX_PLATFORMS, which is 'nonsense'." in finding.advice


def test_gpus_that_are_not_used_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "0000:01:00.0").mkdir()
    monkeypatch.setattr(local_devices, "_NVIDIA", tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    finding = found(list(software._gpus(False)), Level.WARNING, r"1 NVIDIA GPU\(s\), and JAX does not use them")
    assert "CUDA_VISIBLE_DEVICES='-1'" in finding.text
    assert list(software._gpus(True)) == []


def test_a_misspelt_variable_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_JOIN_TIMOUT", "3")
    assert (
        found(list(software.settings()), Level.WARNING, "JOIN_TIMOUT").advice == "Did you mean LOCKSTEP_JOIN_TIMEOUT?"
    )
    monkeypatch.setenv("LOCKSTEP_GRACE", "soon")
    found(list(software.settings()), Level.ERROR, "LOCKSTEP_GRACE must be a positive number")


def test_the_doctor_knows_every_variable_that_is_read() -> None:
    # In quotes: the name of a variable; in prose or as a beginning it is none.
    texts = (path.read_text() for path in SOURCE.rglob("*.py") if "_doctor" not in path.parts)
    read = {name for text in texts for name in re.findall(r'"(LOCKSTEP_[A-Z_]*[A-Z])"', text)}
    assert read == software.VARIABLES


def test_the_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found(list(machine.secret(has_other_machines=False)), Level.OK, "Neither")
    assert "secrets.token_hex" in found(list(machine.secret(has_other_machines=True)), Level.WARNING, "Neither").advice
    path = tmp_path / "secret"
    path.write_text("0123456789abcdef" * 4)
    path.chmod(0o644)
    monkeypatch.setenv("LOCKSTEP_CLUSTER_SECRET_FILE", str(path))
    assert found(list(machine.secret(has_other_machines=True)), Level.WARNING, "Others can read").advice.startswith(
        "chmod"
    )
    path.chmod(0o600)
    found(list(machine.secret(has_other_machines=True)), Level.OK, "A secret is set")
    path.write_text("short")
    found(list(machine.secret(has_other_machines=True)), Level.ERROR, "must have 16 to 4096 bytes")


def test_the_compile_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCKSTEP_CACHE_DIR", str(tmp_path / "mine"))
    found(list(machine.compile_cache()), Level.OK, "0 files")
    (tmp_path / "mine").chmod(0o777)
    assert "chmod go-w" in found(list(machine.compile_cache()), Level.WARNING, "are not kept").advice


def test_the_shared_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found(list(machine.shared_directory(None, has_other_machines=True)), Level.NOTE, "No directory was given")
    found(list(machine.shared_directory(tmp_path / "absent", has_other_machines=False)), Level.ERROR, "cannot be used")
    monkeypatch.setattr(machine, "_file_system", lambda directory: "ext4")
    finding = found(list(machine.shared_directory(tmp_path, has_other_machines=False)), Level.OK, "MB/s")
    assert finding.data["bytes_per_second"] > 0
    found(list(machine.shared_directory(tmp_path, has_other_machines=True)), Level.WARNING, "this machine's own")
    monkeypatch.setattr(machine, "_file_system", lambda directory: "nfs4")
    found(list(machine.shared_directory(tmp_path, has_other_machines=True)), Level.OK, "nfs4")
    assert list(tmp_path.iterdir()) == []


def test_file_systems_are_those_of_the_kernel() -> None:
    assert machine._file_system(Path("/proc/self")) == "proc"
    assert machine._file_system(Path("/dev/shm")) == "tmpfs"


def test_a_process_alone_needs_no_cluster() -> None:
    description, findings = network.describe()
    found(findings, Level.OK, "No cluster is described")
    assert not description.has_other_machines
    assert list(network.peers(description)) == list(network.ports(description)) == []


def test_a_broken_tf_config_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", tf_config({"worker": ["a:1", "a:1"]}))
    _, findings = network.describe()
    assert not is_healthy(findings)
    assert any("TF_CONFIG" in each.text for each in findings)


def test_what_each_resolver_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", tf_config({"worker": ["localhost:1001", "localhost:1002"]}, index=1))
    for name, value in (("WORLD_SIZE", "3"), ("RANK", "2"), ("MASTER_ADDR", "localhost"), ("MASTER_PORT", "1003")):
        monkeypatch.setenv(name, value)
    _, findings = network.describe()
    found(findings, Level.OK, "TF_CONFIG says: worker x 2; this is worker 1")
    found(findings, Level.OK, r"torchrun \(WORLD_SIZE\) says: worker x 3; this is worker 2")
    found(findings, Level.OK, "TFConfigClusterResolver is used: 2 worker; this process is worker 1")


def lookup(address: str, right: Any = addresses.lookup) -> Any:
    """As a name server would answer at once: names of no machine are none."""
    if ".invalid:" in address:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return right(address)


def test_names_addresses_and_ports_of_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network.addresses, "lookup", lookup)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        # At the other one nobody listens, and nobody else will.
        hosts = [f"127.0.0.1:{port}" for port in (busy.getsockname()[1], free_port())]
        monkeypatch.setenv("TF_CONFIG", tf_config({"worker": [*hosts, "nowhere.invalid:5", "[::1]:1"]}, index=0))
        findings = list(network.peers(network.describe()[0]))
        # In use by another program: this process could not listen there.
        finding = found(findings, Level.ERROR, "worker 0 .* is this process, and it cannot listen there")
        assert "ss -ltnp" in finding.advice
        found(findings, Level.OK, "worker 1 .* the machine answers .* nothing listens there yet")
        found(findings, Level.ERROR, "worker 2 .* the name does not resolve")
        monkeypatch.setenv("TF_CONFIG", tf_config({"worker": hosts}, index=1))
        findings = list(network.peers(network.describe()[0]))
        found(findings, Level.OK, "worker 0 .* something listens there")
        found(findings, Level.OK, "worker 1 .* is this process; its port is free")


def test_a_name_that_leads_each_machine_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network.addresses, "lookup", lookup)
    description = network.Description(
        network.ClusterSpec({"worker": ["localhost:1", "elsewhere.invalid:1"]}), network.Task("worker", 0)
    )
    assert description.has_other_machines
    finding = found(list(network.peers(description)), Level.WARNING, "on the loopback interface")
    assert "/etc/hosts" in finding.advice
    found(list(network.ports(description)), Level.NOTE, r"worker 0's \(localhost:1\)")


def test_a_lookup_that_hangs_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    monkeypatch.setattr(network, "_SECONDS", 0.02)
    monkeypatch.setattr(network.addresses, "lookup", lambda address: released.wait(30) or [])
    description = network.Description(network.ClusterSpec({"worker": ["slow.invalid:1"]}), None)
    released = threading.Event()
    try:
        found(list(network.peers(description)), Level.ERROR, "its name is not answered for")
    finally:
        released.set()


def test_a_check_that_breaks_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError("no such thing")

    for name in ("devices", "versions"):
        monkeypatch.setattr(software, name, list)
    monkeypatch.setattr(machine, "memory", broken)
    found(examine_machine(None), Level.ERROR, "The check itself failed: OSError: no such thing")


def test_every_problem_says_what_to_do() -> None:
    with pytest.raises(AssertionError, match="must say what to do"):
        error("memory", "none left", "")


def test_sizes() -> None:
    assert [size(count) for count in (4, 2048, 3 << 20, 1.5 * (1 << 30))] == ["4 B", "2 KiB", "3 MiB", "1.5 GiB"]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lockstep", "doctor", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


@pytest.mark.cluster
def test_the_command_tells_by_lines_json_and_its_exit_status(tmp_path: Path) -> None:
    done = run("--shared", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^ok +devices: \d+ ", done.stdout, re.M)
    assert re.search(r"^ok +shared directory: ", done.stdout, re.M)
    assert done.stdout.splitlines()[-1].startswith("Healthy: 0 errors")
    assert "\x1b" not in done.stdout
    done = run("--json", TF_CONFIG="{")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert report["healthy"] is False
    assert [each["section"] for each in report["findings"] if each["level"] == "error"] == ["cluster"] * 2


@pytest.mark.cluster
def test_a_terminal_gets_a_table() -> None:
    reader, writer = os.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    with subprocess.Popen([sys.executable, "-m", "lockstep", "doctor"], stdout=writer, env=environment) as process:
        os.close(writer)
        shown = b""
        while True:
            try:
                data = os.read(reader, 65536)
            except OSError:  # Linux reports the end of a pseudo-terminal so.
                break
            if not data:
                break
            shown += data
    os.close(reader)
    assert process.returncode == 0
    assert b"\x1b[" in shown
    # The section stands once, before its first finding.
    assert len(re.findall(rb"versions", shown)) == 1


def test_lines_and_json_hold_the_same() -> None:
    findings = [error("peers", "worker 1 does not answer", "Start it.", task="worker 1")]
    assert list(lines(findings)) == ["ERROR   peers: worker 1 does not answer", "        -> Start it."]
    (record,) = json.loads(as_json(findings))["findings"]
    assert record == {
        "section": "peers",
        "level": "error",
        "text": "worker 1 does not answer",
        "advice": "Start it.",
        "data": {"task": "worker 1"},
    }
