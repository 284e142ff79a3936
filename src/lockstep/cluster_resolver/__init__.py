"""Who takes part: clusters, tasks, and resolvers that read them from TF_CONFIG, Slurm, Kubernetes, torchrun or MPI.

Everything here is a plain value, checked when it is made; nothing opens a socket or starts a device. Corresponds to
`tf.distribute.cluster_resolver` and `tf.train.ClusterSpec`.
"""

from __future__ import annotations

from ._kubernetes import KubernetesClusterResolver as KubernetesClusterResolver
from ._mpi import MPIClusterResolver as MPIClusterResolver
from ._resolver import ClusterResolver as ClusterResolver
from ._simple import SimpleClusterResolver as SimpleClusterResolver
from ._slurm import SlurmClusterResolver as SlurmClusterResolver
from ._spec import ClusterSpec as ClusterSpec
from ._task import Task as Task
from ._tfconfig_resolver import TFConfigClusterResolver as TFConfigClusterResolver
from ._torchrun import TorchrunClusterResolver as TorchrunClusterResolver
from ._union import UnionResolver as UnionResolver

__all__ = [
    "ClusterResolver",
    "ClusterSpec",
    "KubernetesClusterResolver",
    "MPIClusterResolver",
    "SimpleClusterResolver",
    "SlurmClusterResolver",
    "TFConfigClusterResolver",
    "Task",
    "TorchrunClusterResolver",
    "UnionResolver",
]
