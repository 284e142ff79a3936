"""lockstep: tf.distribute's programming model on Keras 3 and JAX, with one device's trajectory.

Import it before Keras: it chooses Keras' JAX backend, on which everything here runs.
"""

from __future__ import annotations

from lockstep import _backend as _backend
from lockstep import cluster_resolver as cluster_resolver
from lockstep import config as config
from lockstep import datasets as datasets
from lockstep import distribute as distribute
from lockstep import errors as errors

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "cluster_resolver",
    "config",
    "datasets",
    "distribute",
    "errors",
]
