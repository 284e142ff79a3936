"""RunConfig: settings of an Estimator, and this process' role by TF_CONFIG."""

from __future__ import annotations

import copy
import logging
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from numbers import Integral, Real
from typing import Any, NamedTuple

from lockstep.cluster_resolver import ClusterSpec
from lockstep.cluster_resolver.internal import TFConfig
from lockstep.distribute import Strategy
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.estimator._role import Environment, Role, read_environment, role_of
from lockstep.estimator._session_config import ConfigProto

_log = logging.getLogger("lockstep")

REPLACEABLE = (
    "model_dir",
    "tf_random_seed",
    "save_summary_steps",
    "save_checkpoints_steps",
    "save_checkpoints_secs",
    "session_config",
    "keep_checkpoint_max",
    "keep_checkpoint_every_n_hours",
    "log_step_count_steps",
    "train_distribute",
    "device_fn",
    "protocol",
    "eval_distribute",
    "experimental_distribute",
    "experimental_max_worker_delay_secs",
    "session_creation_timeout_secs",
    "checkpoint_save_graph_def",
)

_OF_THE_ROLE = tuple(field.name for field in fields(Role))
_STRATEGIES = ("train_distribute", "eval_distribute")
# TensorFlow's default.
_DEFAULT_SECS = 600
_BOTH = (
    "Checkpoints are saved by steps or by seconds. Received: save_checkpoints_steps={} and save_checkpoints_secs={}. "
    "Leave one of them out."
)


class _Default:
    def __repr__(self) -> str:
        return "600 seconds, unless the other is given"


_DEFAULT: Any = _Default()


class DistributeConfig(NamedTuple):
    """Strategies for training and evaluation, as `RunConfig(experimental_distribute=...)` takes them.

    Attributes:
        train_distribute: See `RunConfig`.
        eval_distribute: See `RunConfig`.
        remote_cluster: Must be `None`: each task of a cluster is a process that runs the program, with a TF_CONFIG.

    Source: tensorflow.python.distribute.distribute_config.DistributeConfig.
    """

    train_distribute: Strategy | None = None
    eval_distribute: Strategy | None = None
    remote_cluster: Any = None


class RunConfig:
    """The settings of an Estimator; immutable, `replace` returns a changed copy.

    The role of this process is read from TF_CONFIG, or where that is not set from the variables of the launcher (Slurm,
    Open MPI, torchrun), when the object is made. With a `train_distribute` that has a cluster resolver, such as
    MultiWorkerMirroredStrategy, it is that of the resolver.

    | | no cluster | chief | worker i | ps i | evaluator |
    |---|---|---|---|---|---|
    | `is_chief` | True | True | False | False | False |
    | `cluster_spec` | empty | all | all | all | empty |
    | `num_worker_replicas` | 1 | workers, chief | the same | the same | 0 |
    | `num_ps_replicas` | 0 | of `ps` | the same | the same | 0 |
    | `global_id_in_cluster` | 0 | 0 | after the jobs before it | after all others | `None` |
    | `master` | "" | "grpc://" and its address | the same | the same | "" |

    * A cluster must have one `chief`, except with a `train_distribute`: then worker 0 is the chief where there is none.
    * `master`, the old name of `chief`, goes together with neither a `chief` nor an evaluator's task.
    * An index may be a text, such as "0". An evaluator's may be any from 0 up, and need not stand in the cluster.
    * Without a cluster the task must be worker 0, which is the default.
    * `master` is TF_CONFIG's "session_master" if it has one; it is "" in a cluster of one task.
    * TF_CONFIG may name the "model_dir", and a "service", an object that is handed on.

    Three things differ from TensorFlow. Every rule of `lockstep.cluster_resolver.ClusterSpec` holds, such as that
    addresses are "host:port" and differ. With a strategy the fields show the role that the process really has, where
    TensorFlow showed every task a process alone, which would have each of them take itself for the chief; an evaluator
    is not the chief, which TensorFlow told it inside of the model_fn. And `replace` follows changed strategies.

    Args:
        model_dir: The directory of checkpoints and summaries. Default: that of TF_CONFIG, else the Estimator's.
        tf_random_seed: The seed of everything random. Default: a new one in each run.
        save_summary_steps: Steps between summaries; 0 or `None` for no summaries.
        save_checkpoints_steps: Steps between checkpoints.
        save_checkpoints_secs: Seconds between checkpoints. Default: 600, unless steps are given. If both
            are `None` or 0, there are no checkpoints.
        session_config: `None`, or a tf.compat.v1.ConfigProto, whose settings change nothing.
        keep_checkpoint_max: Number of checkpoints to keep; 0 or `None` for all.
        keep_checkpoint_every_n_hours: Hours between checkpoints that are kept for good; with `None` none is.
        log_step_count_steps: Steps between messages of speed and loss; `None` for no messages.
        train_distribute: A `lockstep.distribute.Strategy` to train with.
        device_fn: Must be `None`: strategies place variables.
        protocol: Must be `None` or "grpc".
        eval_distribute: A strategy to evaluate with.
        experimental_distribute: A `DistributeConfig`, instead of the two.
        experimental_max_worker_delay_secs: Must be `None` or 0: workers train in lockstep, and start together.
        session_creation_timeout_secs: Seconds that a worker waits for the others at the start of training.
        checkpoint_save_graph_def: Ignored: there is no graph to save.

    Raises:
        ArgumentError: A value breaks a rule above.
        UnsupportedError: `device_fn`, `protocol` or `session_config` would change a computation.
        ClusterSpecError: TF_CONFIG or the launcher's cluster breaks a rule above, or launchers contradict each other.

    Attributes:
        cluster_spec: A `lockstep.cluster_resolver.ClusterSpec`.
        task_type: The job of this process: "chief", "master", "worker", "ps" or "evaluator".
        task_id: The index of this process in its job.
        is_chief: Whether this process saves checkpoints while it trains.
        num_worker_replicas: Number of workers that train, with the chief.
        num_ps_replicas: Number of tasks of the job `ps`.
        global_id_in_cluster: A number for each task: the chief, then the other jobs in alphabetical order, then `ps`.
        master: The address of this process.
        evaluation_master: TF_CONFIG's "eval_session_master", for a process alone or an evaluator; else "".
        service: TF_CONFIG's "service", else `None`.

    Source: tf.estimator.RunConfig.
    """

    model_dir: str | None
    tf_random_seed: int | None
    save_summary_steps: int | None
    save_checkpoints_steps: int | None
    save_checkpoints_secs: float | None
    session_config: ConfigProto | None
    keep_checkpoint_max: int | None
    keep_checkpoint_every_n_hours: float | None
    log_step_count_steps: int | None
    train_distribute: Strategy | None
    device_fn: None
    protocol: str | None
    eval_distribute: Strategy | None
    experimental_distribute: DistributeConfig | None
    experimental_max_worker_delay_secs: int | None
    session_creation_timeout_secs: float
    checkpoint_save_graph_def: bool
    cluster_spec: ClusterSpec
    task_type: str
    task_id: int
    is_chief: bool
    num_worker_replicas: int
    num_ps_replicas: int
    global_id_in_cluster: int | None
    master: str
    evaluation_master: str
    service: Mapping[str, object] | None
    _environment: Environment

    def __init__(
        self,
        model_dir: str | os.PathLike[str] | None = None,
        tf_random_seed: int | None = None,
        save_summary_steps: int | None = 100,
        save_checkpoints_steps: int | None = _DEFAULT,
        save_checkpoints_secs: float | None = _DEFAULT,
        session_config: ConfigProto | None = None,
        keep_checkpoint_max: int | None = 5,
        keep_checkpoint_every_n_hours: float | None = 10000,
        log_step_count_steps: int | None = 100,
        train_distribute: Strategy | None = None,
        device_fn: None = None,
        protocol: str | None = None,
        eval_distribute: Strategy | None = None,
        experimental_distribute: DistributeConfig | None = None,
        experimental_max_worker_delay_secs: int | None = None,
        session_creation_timeout_secs: float = 7200,
        checkpoint_save_graph_def: bool = True,
    ) -> None:
        # Before any other local: all arguments by name, as `replace` takes them.
        values = {name: value for name, value in locals().items() if name in REPLACEABLE}
        # Once: `replace` must give the same role, whatever the program does to the environment meanwhile.
        self._environment = read_environment()
        config = self._environment.config
        if config.values:
            _log.info("TF_CONFIG environment variable: %s", config.values)
        values["model_dir"] = _check_model_dir(config, _path(model_dir))
        # TensorFlow's default is seconds, and giving steps alone replaces it.
        steps, secs = save_checkpoints_steps, save_checkpoints_secs
        if steps is _DEFAULT and secs is _DEFAULT:
            secs = _DEFAULT_SECS
        values["save_checkpoints_steps"] = None if steps is _DEFAULT else steps
        values["save_checkpoints_secs"] = None if secs is _DEFAULT else secs
        self._set_fields(values)

    def replace(self, **kwargs: Any) -> RunConfig:
        """Returns a copy with other values; TF_CONFIG is not read again.

        Giving one of `save_checkpoints_steps` and `save_checkpoints_secs` sets the other one to `None`.

        Args:
            **kwargs: Arguments of the constructor.

        Raises:
            ArgumentError: There is no such argument, or the value breaks its rule.
        """
        for key in kwargs:
            if key not in REPLACEABLE:
                raise ArgumentError(
                    f"Replacing {key} is not supported. Allowed properties are {list(REPLACEABLE)}. The others follow "
                    "from TF_CONFIG: set it before the RunConfig is made."
                )
        # One cadence supersedes the other, as in TensorFlow; both together are refused below.
        superseded: dict[str, Any] = {}
        if kwargs.get("save_checkpoints_steps") is not None:
            superseded = {"save_checkpoints_secs": None}
        elif kwargs.get("save_checkpoints_secs") is not None:
            superseded = {"save_checkpoints_steps": None}
        new = copy.copy(self)
        values = {name: getattr(self, name) for name in REPLACEABLE}
        joint = self.experimental_distribute or DistributeConfig()
        # Strategies that `experimental_distribute` supplies are not arguments: they would be refused as given twice.
        supplied = [name for name in _STRATEGIES if getattr(joint, name) is not None and name not in kwargs]
        new._set_fields({**values, **dict.fromkeys(supplied), **superseded, **kwargs})
        return new

    def _set_fields(self, arguments: dict[str, Any]) -> None:
        """Checks the arguments and sets the fields, those of the role included: a strategy may bring a cluster."""
        values = {name: _check(name, arguments[name]) for name in REPLACEABLE}
        if values["save_checkpoints_steps"] is not None and values["save_checkpoints_secs"] is not None:
            raise ArgumentError(_BOTH.format(values["save_checkpoints_steps"], values["save_checkpoints_secs"]))
        values.update(_merge_strategies(values))
        strategy: Strategy | None = values["train_distribute"]
        role = role_of(self._environment, strategy and strategy.cluster_resolver, strategy is not None)
        # Past `__setattr__`, which refuses fields.
        vars(self).update(values, **vars(role))

    def __setattr__(self, name: str, value: object) -> None:
        """Refuses changes of fields, which are for `replace` and TF_CONFIG."""
        if name in REPLACEABLE or name in _OF_THE_ROLE:
            raise AttributeError(f"A RunConfig does not change. Received: {name} = {value!r}. Use replace({name}=...).")
        super().__setattr__(name, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> RunConfig:
        """Returns a shallow copy: fields are immutable, and strategies are not copied."""
        # A config inside of `params` is deep-copied for each call of a model_fn; a strategy owns devices and threads.
        return copy.copy(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def __str__(self) -> str:
        # TensorFlow logs vars(config), whose names have underscores.
        return str({f"_{name}": getattr(self, name) for name in (*REPLACEABLE, *_OF_THE_ROLE)})


def _merge_strategies(values: dict[str, Any]) -> dict[str, Any]:
    """Merges strategies given as arguments or by `experimental_distribute`."""
    joint: DistributeConfig = values["experimental_distribute"] or DistributeConfig()
    if joint.remote_cluster is not None:
        raise UnsupportedError(
            "remote_cluster must be None: each task of a cluster runs the program. Received: "
            f"{joint.remote_cluster!r}. Set TF_CONFIG in each process."
        )
    strategies: dict[str, Any] = {}
    for name in _STRATEGIES:
        argument, other = values[name], _check(name, getattr(joint, name))
        if argument is not None and other is not None:
            raise ArgumentError(f"Either {name} or experimental_distribute.{name} can be set. Received both.")
        strategies[name] = argument if other is None else other
    return strategies


def _path(value: object) -> Any:
    return os.fsdecode(value) if isinstance(value, (os.PathLike, bytes)) else value


def _check_model_dir(config: TFConfig, argument: str | None) -> str | None:
    """Returns the directory in TF_CONFIG, else the argument; raises `ArgumentError` if they differ."""
    named = config.text("model_dir")
    if named is None:
        return argument
    if not named or (argument and argument != named):
        raise ArgumentError(
            "model_dir must be a path, and the same in RunConfig and in TF_CONFIG. Received: "
            f'model_dir={argument!r} and TF_CONFIG["model_dir"]={named!r}. Leave one of them out.'
        )
    _log.info("Using model_dir in TF_CONFIG: %s", named)
    return named


def _is_whole(value: object) -> bool:
    # True and False are integers of Python, and a mistake here.
    return isinstance(value, Integral) and value is not True and value is not False


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and value is not True and value is not False and not math.isnan(value)


# The rule of each value but None: its description, and the check.
_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "model_dir": ("a path that is not empty", lambda value: isinstance(value, str) and value != ""),
    "tf_random_seed": ("a whole number", _is_whole),
    "save_summary_steps": ("a whole number from 0 up", lambda value: _is_whole(value) and value >= 0),
    "save_checkpoints_steps": ("a whole number from 0 up", lambda value: _is_whole(value) and value >= 0),
    "save_checkpoints_secs": ("a number from 0 up", lambda value: _is_number(value) and value >= 0),
    "keep_checkpoint_max": ("a whole number from 0 up", lambda value: _is_whole(value) and value >= 0),
    "keep_checkpoint_every_n_hours": ("a number above 0", lambda value: _is_number(value) and value > 0),
    "log_step_count_steps": ("a whole number above 0", lambda value: _is_whole(value) and value > 0),
    "train_distribute": ("a lockstep.distribute.Strategy", lambda value: isinstance(value, Strategy)),
    "eval_distribute": ("a lockstep.distribute.Strategy", lambda value: isinstance(value, Strategy)),
    "experimental_distribute": ("a DistributeConfig", lambda value: isinstance(value, DistributeConfig)),
    "session_creation_timeout_secs": ("a number above 0", lambda value: _is_number(value) and value > 0),
    "checkpoint_save_graph_def": ("True or False", lambda value: isinstance(value, bool)),
}
_UNSUPPORTED: dict[str, tuple[str, Callable[[Any], bool], str]] = {
    "session_config": (
        "a tf.compat.v1.ConfigProto",
        lambda value: isinstance(value, ConfigProto),
        "JAX is set up by jax.config and its environment variables.",
    ),
    "device_fn": ("None", lambda value: False, "Strategies place variables: pass train_distribute."),
    "experimental_max_worker_delay_secs": (
        "0",
        lambda value: _is_whole(value) and value == 0,
        "Workers train in step, and begin together: leave it out.",
    ),
    "protocol": ('"grpc"', lambda value: value == "grpc", "Strategies choose how tasks talk: CommunicationOptions."),
}
_NEVER_NONE = ("session_creation_timeout_secs", "checkpoint_save_graph_def")


def _check(name: str, value: object) -> Any:
    """Returns a value; raises `ArgumentError` if it breaks its rule."""
    value = _path(value) if name == "model_dir" else value
    if value is None and name not in _NEVER_NONE:
        return None
    if name in _UNSUPPORTED:
        rule, fits, advice = _UNSUPPORTED[name]
        if not fits(value):
            raise UnsupportedError(f"{name} must be {rule}, or None. Received: {value!r}. {advice}")
        return value
    rule, fits = _RULES[name]
    if not fits(value):
        other = "" if name in _NEVER_NONE else ", or None"
        raise ArgumentError(f"{name} must be {rule}{other}. Received: {value!r}. Leave it out for the default.")
    return value
