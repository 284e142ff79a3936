"""The settings of a run in its environment, as far as they may be shown."""

from __future__ import annotations

from collections.abc import Mapping

# What the report needs to start a run again. Not all of the environment, which may hold secrets.
_SETTINGS = ("CUDA_VISIBLE_DEVICES", "KERAS_BACKEND", "XLA_FLAGS", "OMP_NUM_THREADS", "TF_CONFIG")
_PREFIXES = ("JAX_", "LOCKSTEP_", "KERAS_", "NCCL_")
# Secrets, and what a launcher sets for each start anew.
_LEFT_OUT = (
    "LOCKSTEP_CLUSTER_SECRET",
    "LOCKSTEP_ERROR_FILE",
    "LOCKSTEP_PROGRESS_FILE",
    "LOCKSTEP_GENERATION",
    "LOCKSTEP_RUN_ID",
)
# Judged by the name, since a secret's value looks like any other. A setting too few costs a line of the report; one too
# many is in a page that people pass around.
_SECRET_WORDS = ("SECRET", "TOKEN", "PASSWORD", "KEY")


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings that a run was started with, without secrets and what launchers set for each start."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if (name in _SETTINGS or name.startswith(_PREFIXES))
        and name not in _LEFT_OUT
        and not any(word in name for word in _SECRET_WORDS)
    }
