"""Manifests: valid by the published schemas, and each pod finds its place."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep._templates.job import Job
from lockstep._templates.jobset import jobset
from lockstep._templates.kubeflow import kubeflow
from lockstep._templates.kubernetes import kubernetes
from tests.templates.support import ALL_JOBS, check_cluster, documents, substituted


def validate(document: dict[str, Any]) -> None:
    """Validates against the schema that Kubernetes publishes, in which unknown fields are errors."""
    validator = pytest.importorskip("kubernetes_validate", reason="the schemas of Kubernetes are not installed")
    for version in ("1.31", validator.latest_version()):
        validator.validate(document, version, strict=True)


def pod_of(template: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": template["spec"]}


@ALL_JOBS
def test_kubernetes_is_valid_and_each_pod_has_its_name(job: Job) -> None:
    found = documents(kubernetes(job))
    for document in found:
        validate(document)
    (service,) = [each for each in found if each["kind"] == "Service"]
    jobs = {each["spec"]["template"]["metadata"]["labels"]["role"]: each for each in found if each["kind"] == "Job"}
    assert {role: each["spec"]["completions"] for role, each in jobs.items()} == job.roles
    for role, each in jobs.items():
        spec = each["spec"]["template"]["spec"]
        # Labels select, names and the subdomain make the host: what TF_CONFIG has must be what Kubernetes makes.
        assert service["spec"]["selector"].items() <= each["spec"]["template"]["metadata"]["labels"].items()
        assert spec["subdomain"] == service["metadata"]["name"]
        for index in range(job.roles[role]):
            config = check_cluster(job, role, index, substituted(spec["containers"][0]["env"], index)["TF_CONFIG"])
            host = f"{each['metadata']['name']}-{index}.{spec['subdomain']}:{job.port}"
            assert config["cluster"][role][index] == host


@ALL_JOBS
def test_containers_end_in_order_and_share_what_they_must(job: Job) -> None:
    for document in documents(kubernetes(job)):
        if document["kind"] != "Job":
            continue
        spec = document["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        environment = {each["name"]: each.get("value") for each in container["env"]}
        assert spec["terminationGracePeriodSeconds"] > int(environment["LOCKSTEP_GRACE"]) == job.grace
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        assert mounts["shared"] == job.shared
        assert environment["LOCKSTEP_CLUSTER_SECRET_FILE"].startswith(mounts["secret"])
        assert set(mounts) == {each["name"] for each in spec["volumes"]}
        # Kubernetes replaces $(NAME) in commands, and $$(NAME) by $(NAME).
        assert [word.replace("$$(", "$(") for word in container["command"]] == ["python", *job.program]
        gpus = job.gpus_of(document["spec"]["template"]["metadata"]["labels"]["role"])
        assert int(container["resources"]["limits"].get("nvidia.com/gpu", 0)) == gpus


@pytest.mark.slow
@ALL_JOBS
def test_jobset_is_valid_and_each_pod_has_its_name(job: Job) -> None:
    claim, found = documents(jobset(job))
    validate(claim)
    models = pytest.importorskip("kubeflow_trainer_api.models", reason="the models of JobSet are not installed")
    read = models.JobsetV1alpha2JobSet.from_dict(found).to_dict()
    # The models drop what they do not know: nothing may be missing of what was written.
    assert not missing(found, read)
    assert found["spec"]["network"]["subdomain"] == job.name
    targets = found["spec"]["successPolicy"]["targetReplicatedJobs"]
    assert set(targets) == set(job.roles) - {"ps"}
    for replicated in found["spec"]["replicatedJobs"]:
        role, inner = replicated["name"], replicated["template"]["spec"]
        assert inner["completions"] == inner["parallelism"] == job.roles[role]
        validate({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": inner})
        for index in range(job.roles[role]):
            environment = substituted(inner["template"]["spec"]["containers"][0]["env"], index)
            config = check_cluster(job, role, index, environment["TF_CONFIG"])
            assert config["cluster"][role][index] == f"{job.name}-{role}-0-{index}.{job.name}:{job.port}"
    assert found["spec"]["failurePolicy"]["maxRestarts"] == job.max_restarts


def missing(written: object, read: object, path: str = "") -> list[str]:
    """The paths in `written` whose values are not in `read`; quantities may be spelt as numbers."""
    if isinstance(written, dict) and isinstance(read, dict):
        return [each for key in written for each in missing(written[key], read.get(key), f"{path}.{key}")]
    if isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        pairs = enumerate(zip(written, read, strict=True))
        return [each for i, (a, b) in pairs for each in missing(a, b, f"{path}[{i}]")]
    return [] if str(written) == str(read) else [path]


def test_what_a_model_does_not_know_is_noticed() -> None:
    assert missing({"a": {"b": 1, "c": [1, 2]}}, {"a": {"b": 1, "c": [1]}}) == [".a.c"]
    assert missing({"a": {"b": 1}}, {"a": {}}) == [".a.b"]


@ALL_JOBS
def test_the_pods_of_kubeflow_are_valid(job: Job) -> None:
    claim, found = documents(kubeflow(job))
    validate(claim)
    replicas = found["spec"]["tfReplicaSpecs"]
    assert {kind.lower(): each["replicas"] for kind, each in replicas.items()} == job.roles
    for each in replicas.values():
        validate(pod_of(each["template"]))
        (container,) = each["template"]["spec"]["containers"]
        # Both are what the operator looks for; TF_CONFIG is its own to set.
        assert container["name"] == "tensorflow"
        assert container["ports"] == [{"name": "tfjob-port", "containerPort": job.port}]
        assert "TF_CONFIG" not in {variable["name"] for variable in container["env"]}


@ALL_JOBS
def test_the_operator_knows_every_field(job: Job) -> None:
    # Not among the development packages: it holds back the client of Kubernetes, and brings tests of its own.
    models = pytest.importorskip("kubeflow.training.models", reason="Kubeflow's models are not installed")
    known(models, models.KubeflowOrgV1TFJob, documents(kubeflow(job))[1])


def known(models: Any, kind: Any, written: dict[str, Any]) -> None:
    """Checks that a model of the operator has every field that was written, down to the pods."""
    types = {kind.attribute_map[name]: text for name, text in kind.openapi_types.items()}
    for key, value in written.items():
        assert key in types, f"{kind.__name__} has no field {key!r}"
        inner = types[key].removeprefix("dict(str, ").removesuffix(")")
        model = getattr(models, inner, None)
        if model is not None and hasattr(model, "attribute_map"):
            for each in value.values() if types[key].startswith("dict") else [value]:
                known(models, model, each)


def test_a_field_that_the_operator_does_not_have_is_noticed() -> None:
    models = pytest.importorskip("kubeflow.training.models", reason="Kubeflow's models are not installed")
    with pytest.raises(AssertionError, match="no field 'wrong'"):
        known(models, models.KubeflowOrgV1TFJob, {"spec": {"tfReplicaSpecs": {"Worker": {"wrong": 1}}}})


def test_a_field_that_kubernetes_does_not_have_is_noticed() -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="the schemas of Kubernetes are not installed")
    service = next(each for each in documents(kubernetes(Job())) if each["kind"] == "Service")
    service["spec"]["wrong"] = 1
    with pytest.raises(validator.ValidationError):
        validate(service)
