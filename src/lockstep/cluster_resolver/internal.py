"""Parts of `lockstep.cluster_resolver` for its sibling packages. Nothing here comes with a promise of stability."""

from __future__ import annotations

from lockstep.cluster_resolver._address import check_address as check_address
from lockstep.cluster_resolver._field import MISSING as MISSING
from lockstep.cluster_resolver._field import Field as Field
from lockstep.cluster_resolver._field import list_names as list_names
from lockstep.cluster_resolver._launchers import default_resolver as default_resolver
from lockstep.cluster_resolver._launchers import launcher_resolver as launcher_resolver
from lockstep.cluster_resolver._roles import chief_task as chief_task
from lockstep.cluster_resolver._roles import known_address as known_address
from lockstep.cluster_resolver._roles import training_tasks as training_tasks
from lockstep.cluster_resolver._spec import check_index as check_index
from lockstep.cluster_resolver._spec import check_index_in as check_index_in
from lockstep.cluster_resolver._spec import check_job as check_job
from lockstep.cluster_resolver._tf_config import TFConfig as TFConfig
from lockstep.cluster_resolver._tf_config import parse_tf_config as parse_tf_config

__all__ = [
    "Field",
    "MISSING",
    "TFConfig",
    "check_address",
    "check_index",
    "check_index_in",
    "check_job",
    "chief_task",
    "default_resolver",
    "known_address",
    "launcher_resolver",
    "list_names",
    "parse_tf_config",
    "training_tasks",
]
