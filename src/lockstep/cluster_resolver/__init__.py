"""Clusters, tasks, and resolvers that read them from TF_CONFIG, Slurm, Kubernetes, torchrun or MPI.

Everything here is a plain value, checked when it is made; nothing opens a socket or starts a device. Corresponds to
`tf.distribute.cluster_resolver` and `tf.train.ClusterSpec`.
"""

from __future__ import annotations

from lockstep.cluster_resolver._kubernetes import KubernetesClusterResolver as KubernetesClusterResolver
from lockstep.cluster_resolver._resolver import ClusterResolver as ClusterResolver
from lockstep.cluster_resolver._resolver import SimpleClusterResolver as SimpleClusterResolver
from lockstep.cluster_resolver._resolver import UnionResolver as UnionResolver
from lockstep.cluster_resolver._slurm import SlurmClusterResolver as SlurmClusterResolver
from lockstep.cluster_resolver._spec import ClusterSpec as ClusterSpec
from lockstep.cluster_resolver._spec import Task as Task
from lockstep.cluster_resolver._tf_config import TFConfigClusterResolver as TFConfigClusterResolver
from lockstep.cluster_resolver._torchrun_mpi import MPIClusterResolver as MPIClusterResolver
from lockstep.cluster_resolver._torchrun_mpi import TorchrunClusterResolver as TorchrunClusterResolver

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
