"""The resolver of TF_CONFIG."""

from __future__ import annotations

import os

from ._field import Field
from ._placement import unless_missing
from ._resolver import ClusterResolver, check_text
from ._spec import ClusterSpec
from ._tfconfig import parse_tf_config


class TFConfigClusterResolver(ClusterResolver):
    """Reads the cluster from TF_CONFIG; corresponds to `tf.distribute.cluster_resolver.TFConfigClusterResolver`.

    TF_CONFIG is read and checked once, when the resolver is made. Without TF_CONFIG, or with an empty one, the cluster
    is empty: this process trains alone. A cluster needs a task, whose index is a JSON integer; an evaluator need not
    stand in the cluster.

    Args:
        task_type: Takes the place of TF_CONFIG's.
        task_id: Takes the place of TF_CONFIG's.
        rpc_layer: Takes the place of TF_CONFIG's "rpc_layer".
        environment: Takes the place of TF_CONFIG's "environment".

    Raises:
        ClusterSpecError: TF_CONFIG breaks a rule; the message names the field, what it held, and a correct example.
    """

    def __init__(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        environment: str | None = None,
    ) -> None:
        config = parse_tf_config(os.environ.get("TF_CONFIG", ""))
        self._cluster_spec = config.cluster
        self._task_type, self._task_id = config.task(task_type, task_id)
        self._session_master = config.text("session_master")
        own_rpc_layer = unless_missing(Field("rpc_layer", rpc_layer), check_text)
        own_environment = unless_missing(Field("environment", environment), check_text)
        named_rpc_layer, named_environment = config.text("rpc_layer"), config.text("environment")
        self._rpc_layer = named_rpc_layer if own_rpc_layer is None else own_rpc_layer
        self._environment = (named_environment if own_environment is None else own_environment) or ""

    def cluster_spec(self) -> ClusterSpec:
        """Returns the cluster that TF_CONFIG names, empty if it names none."""
        return self._cluster_spec

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """Returns TF_CONFIG's "session_master" if it has one, else the address of a task.

        It is '' where no other task exists to talk to: the cluster is empty or has one task, or the task is an
        evaluator that stands outside it.
        """
        if self._session_master is not None:
            return self._session_master
        asked_type = self.task_type if task_type is None else task_type
        outside = asked_type == "evaluator" and "evaluator" not in self._cluster_spec.jobs
        if len(self._cluster_spec.tasks) <= 1 or outside:
            return ""
        return self._task_master(task_type, task_id, rpc_layer)

    @property
    def environment(self) -> str:
        """What the constructor, else TF_CONFIG's "environment" says; '' if neither does."""
        return self._environment
