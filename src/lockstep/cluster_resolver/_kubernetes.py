"""The resolver of Kubernetes."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.cluster_resolver._address import check_port, join_address
from lockstep.cluster_resolver._field import Field
from lockstep.cluster_resolver._resolver import ClusterResolver
from lockstep.cluster_resolver._spec import ClusterSpec, check_job

_LABELS_EXAMPLE = '{"worker": ["job-name=training"]}'
_DIGITS = re.compile(r"([0-9]+)")


class KubernetesClusterResolver(ClusterResolver):
    """Finds pods by label; corresponds to `tf.distribute.cluster_resolver.KubernetesClusterResolver`.

    Pods cannot tell which of them a process runs in: set `task_type` and `task_id`. The tasks of a job are the pods of
    its selectors, one selector after the other, sorted by name so that "worker-10" comes after "worker-9".

    Args:
        job_to_label_mapping: For each job, the label selectors of its pods; default:
            `{"worker": ["job-name=tensorflow"]}`.
        tf_server_port: The port on which every pod listens.
        rpc_layer: What `master()` puts before "://".
        override_client: What to ask in place of `kubernetes.client.CoreV1Api()`: an object with
            `list_pod_for_all_namespaces(label_selector=...)`. Its credentials are yours to load.

    Raises:
        ClusterSpecError: An argument is malformed, or the package `kubernetes` is needed and not installed.
    """

    def __init__(
        self,
        job_to_label_mapping: Mapping[str, Sequence[str]] | None = None,
        tf_server_port: int = 8470,
        rpc_layer: str | None = "grpc",
        override_client: Any = None,
    ) -> None:
        labels = job_to_label_mapping or {"worker": ["job-name=tensorflow"]}
        self._selectors = _check_selectors(Field("job_to_label_mapping", labels))
        self._port = check_port(Field("tf_server_port", tf_server_port))
        self._client = _installed_client() if override_client is None else override_client
        self.rpc_layer = rpc_layer

    def cluster_spec(self) -> ClusterSpec:
        """Returns the cluster of the pods that run now; Kubernetes is asked on each call.

        Raises:
            ClusterSpecError: A selector finds no pod, a pod is not running, or two pods share an address.
        """
        return ClusterSpec(
            {
                job: [join_address(_ip(pod), self._port) for selector in selectors for pod in self._pods(selector)]
                for job, selectors in self._selectors.items()
            }
        )

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """Returns the address of a task after the RPC layer; '' while neither the call nor the resolver names one."""
        return self._task_master(task_type, task_id, rpc_layer)

    def _pods(self, selector: str) -> list[Any]:
        # Over all namespaces, as TensorFlow asks: a label that is not the job's own finds foreign pods.
        pods = self._client.list_pod_for_all_namespaces(label_selector=selector).items
        if not pods:
            rule = "must select at least one pod, and selects none"
            raise Field("label selector", selector).error(rule, "kubectl get pods -A -l " + selector)
        # The digits as numbers: "worker-10" comes after "worker-9", as the StatefulSet numbers its pods.
        return sorted(
            pods,
            key=lambda pod: [int(p) if i % 2 else p for i, p in enumerate(_DIGITS.split(pod.metadata.name))],
        )


def _check_selectors(labels: Field) -> dict[str, list[str]]:
    if not isinstance(labels.value, Mapping):
        raise labels.error("must map each job to its label selectors", _LABELS_EXAMPLE)
    return {
        check_job(Field(labels.name, job)): _selector_list(labels.item(job, selectors))
        for job, selectors in labels.value.items()
    }


def _selector_list(selectors: Field) -> list[str]:
    # A string is a sequence of strings too, and each of its letters would be a selector.
    given = selectors.value
    if not isinstance(given, list | tuple) or not given or not all(isinstance(each, str) for each in given):
        raise selectors.error("must be a list of label selectors", '["job-name=training"]')
    return list(given)


def _ip(pod: Any) -> str:
    """Returns the address at which a pod can be reached; raises `ClusterSpecError` if it is not running."""
    if pod.status.phase != "Running":
        raise Field(f"phase of pod {pod.metadata.name}", pod.status.phase).error("must be Running", "Running")
    # TensorFlow takes the host's address, which two pods of one node share; it is the pod's own with hostNetwork.
    pod_ip = getattr(pod.status, "pod_ip", None)
    return pod_ip if isinstance(pod_ip, str) and pod_ip else str(pod.status.host_ip)


def _installed_client() -> Any:
    try:
        client, config = importlib.import_module("kubernetes.client"), importlib.import_module("kubernetes.config")
    except ImportError:
        field = Field("override_client", None)
        raise field.error(
            "must be given where the package `kubernetes` is not installed: run `pip install kubernetes`, or set "
            "TF_CONFIG and use TFConfigClusterResolver",
            "KubernetesClusterResolver(override_client=kubernetes.client.CoreV1Api())",
        ) from None
    # As `kubernetes` advises: the pod's service account, or the user's kubeconfig outside of the cluster.
    try:
        config.load_incluster_config()
    except config.ConfigException:
        config.load_kube_config()
    return client.CoreV1Api()
