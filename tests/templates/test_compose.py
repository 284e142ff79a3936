"""Docker Compose: valid by the Compose Specification, and each container finds its place."""

from __future__ import annotations

import pytest

from lockstep._templates.compose import compose
from lockstep._templates.job import Job
from tests.templates.support import ALL_JOBS, check_cluster, documents


@ALL_JOBS
def test_it_is_valid_by_the_specification(job: Job) -> None:
    specification = pytest.importorskip("compose_spec", reason="the Compose Specification's reader is not installed")
    specification.PyCompose.from_yaml(resolved(job))


def resolved(job: Job) -> str:
    """The file with its merge keys resolved, as Compose reads it."""
    import yaml

    (document,) = documents(compose(job))
    for service in document["services"].values():
        # The specification has "on-failure[:max-retries]", its schema any text, and this reader no number.
        assert service["restart"] == f"on-failure:{job.max_restarts}"
        service["restart"] = "on-failure"
    return yaml.safe_dump(document)


@ALL_JOBS
def test_each_service_is_a_task(job: Job) -> None:
    (document,) = documents(compose(job))
    tasks = [(role, index) for role, count in job.roles.items() for index in range(count)]
    assert list(document["services"]) == [f"{role}-{index}" for role, index in tasks]
    gpus: list[str] = []
    for (role, index), service in zip(tasks, document["services"].values(), strict=True):
        config = check_cluster(job, role, index, service["environment"]["TF_CONFIG"])
        assert config["cluster"][role][index] == f"{role}-{index}:{job.port}"
        assert [word.replace("$$", "$") for word in service["command"]] == ["python", *job.program]
        assert int(service["stop_grace_period"].removesuffix("s")) > int(service["environment"]["LOCKSTEP_GRACE"])
        assert service["secrets"] == list(document["secrets"])
        for device in service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", []):
            gpus += device["device_ids"]
    # Each GPU belongs to one task.
    assert gpus == [str(number) for number in range(sum(job.gpus_of(role) for role, _ in tasks))]
