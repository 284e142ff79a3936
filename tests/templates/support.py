"""Jobs that templates are written for, and what the tests of all templates have in common."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lockstep._templates.job import Job

JOBS = {
    "workers": Job(),
    "one": Job(workers=1, name="a", gpus=1),
    "all": Job(
        name="every-role-1",
        image="registry.example.com:5000/team/train@sha256:0123",
        program=("-m", "pkg.train", "--text", 'it\'s $(HOME) "quoted" $x', "--steps=3"),
        workers=3,
        chief=True,
        evaluator=True,
        ps=2,
        gpus=2,
        cpus=7,
        memory=31,
        port=5000,
        shared="/mnt/a b",
        grace=90,
        max_restarts=3,
    ),
}
ALL_JOBS = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)


def documents(text: str) -> list[dict[str, Any]]:
    """The documents of a manifest."""
    yaml = pytest.importorskip("yaml")
    return [each for each in yaml.safe_load_all(text) if each]


def substituted(environment: list[dict[str, Any]], index: int) -> dict[str, str]:
    """Environment variables as Kubernetes makes them for the pod of an index: $(NAME) takes from those before."""
    known: dict[str, str] = {}
    for each in environment:
        value = str(index) if "valueFrom" in each else each["value"]
        for name, text in known.items():
            value = value.replace(f"$({name})", text)
        known[each["name"]] = value
    return known


def check_cluster(job: Job, role: str, index: int, tf_config: str) -> dict[str, Any]:
    """Checks that TF_CONFIG is that of a task, as lockstep reads it, and returns it."""
    from lockstep.cluster_resolver.internal import parse_tf_config

    assert parse_tf_config(tf_config).task() == (role, index)
    config = json.loads(tf_config)
    assert {name: len(hosts) for name, hosts in config["cluster"].items()} == job.roles
    hosts = [host for hosts in config["cluster"].values() for host in hosts]
    assert len(set(hosts)) == len(hosts)
    assert all(host.endswith(f":{job.port}") for host in hosts)
    return config
