"""tf.distribute.cluster_resolver: lockstep.cluster_resolver itself."""

from __future__ import annotations

from lockstep.cluster_resolver import ClusterResolver as ClusterResolver
from lockstep.cluster_resolver import KubernetesClusterResolver as KubernetesClusterResolver
from lockstep.cluster_resolver import SimpleClusterResolver as SimpleClusterResolver
from lockstep.cluster_resolver import SlurmClusterResolver as SlurmClusterResolver
from lockstep.cluster_resolver import TFConfigClusterResolver as TFConfigClusterResolver
from lockstep.cluster_resolver import UnionResolver as UnionResolver
from lockstep.compat.tensorflow._missing import getter as _getter

__all__ = ["ClusterResolver", "KubernetesClusterResolver", "SimpleClusterResolver", "SlurmClusterResolver"]
__all__ += ["TFConfigClusterResolver", "UnionResolver"]

__getattr__ = _getter(__name__)
