"""`lockstep template`: prints, writes, refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from lockstep._launch.cli import app
from lockstep._templates.command import TEMPLATES
from lockstep.errors import ArgumentError


@pytest.mark.parametrize("platform", TEMPLATES)
def test_it_prints_the_file(platform: str) -> None:
    result = CliRunner().invoke(
        app, ["template", platform, "--workers", "3", "--name", "job-7", "--", "a.py", "--x", "1"]
    )
    assert result.exit_code == 0, result.output
    assert "job-7" in result.stdout
    assert "a.py" in result.stdout


@pytest.mark.parametrize("platform", TEMPLATES)
def test_what_is_written_differs_from_what_is_printed_in_its_own_name_alone(platform: str, tmp_path: Path) -> None:
    path = tmp_path / "the job.yaml"
    program = ["--", "a.py", "--data", "FILE"]
    printed = CliRunner().invoke(app, ["template", platform, *program]).stdout
    assert CliRunner().invoke(app, ["template", platform, "-o", str(path), *program]).exit_code == 0
    pairs = list(zip(printed.splitlines(), path.read_text().splitlines(), strict=True))
    changed = [written for shown, written in pairs if shown != written]
    assert changed
    assert all("'the job.yaml'" in line for line in changed)
    # The variable of the secret, and the program's own arguments, are not the file's name.
    assert not any("LOCKSTEP_" in line or "--data" in line for line in changed)


def test_it_writes_a_new_file_only(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    assert CliRunner().invoke(app, ["template", "jobset", "-o", str(path)]).exit_code == 0
    text = path.read_text()
    assert "kubectl apply -f job.yaml" in text
    result = CliRunner().invoke(app, ["template", "slurm", "-o", str(path)])
    assert isinstance(result.exception, ArgumentError)
    assert "must name a file that is not there yet" in str(result.exception)
    assert path.read_text() == text


@pytest.mark.parametrize(("platform", "option"), [("slurm", "--image"), ("ray", "--image"), ("ray", "--port")])
def test_an_option_without_a_meaning_is_refused(platform: str, option: str) -> None:
    result = CliRunner().invoke(app, ["template", platform, option, "2222"])
    assert isinstance(result.exception, ArgumentError)
    assert f"{option} has no meaning for {platform}" in str(result.exception)


def test_a_port_reaches_the_tasks_of_slurm() -> None:
    script = CliRunner().invoke(app, ["template", "slurm", "--port", "7000"]).stdout
    assert "port_base=7000" in script
    assert "TF_CONFIG=" not in CliRunner().invoke(app, ["template", "slurm"]).stdout


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (["--name", "Train_1"], "--name must be"),
        (["--name", "a" * 41], "--name must be"),
        (["--workers", "0"], "--workers must be at least 1. Received: 0"),
        (["--ps", "-1"], "--ps must be at least 0"),
        (["--port", "70000"], "--port must be at most 65535"),
        (["--shared", "data"], "--shared must be an absolute path"),
        (["--image", "a b"], "--image must name"),
        (["--max-restarts", "-1"], "--max-restarts must be at least 0"),
    ],
)
def test_what_cannot_be_deployed_is_refused(options: list[str], rule: str) -> None:
    result = CliRunner().invoke(app, ["template", "kubernetes", *options])
    assert isinstance(result.exception, ArgumentError)
    assert rule in str(result.exception)
