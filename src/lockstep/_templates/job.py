"""Description of a job, from which each template is written."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.errors import ArgumentError

# RFC 1123, as Kubernetes takes it for names; less than its 63 characters, since names of roles and numbers follow.
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
# `KillWait`, the time between SIGTERM and SIGKILL, and the platforms' own delays come on top of the tasks' grace.
_SPARE_SECONDS = 15
_LAST_PORT = 65535


@dataclass(frozen=True, kw_only=True)
class Job:
    """Job to be deployed.

    Attributes:
        name: Of the job; its objects, hosts and files have names that begin with it.
        image: The container image, with the program and lockstep installed.
        program: What each task runs: a script or `-m` and a module, and arguments.
        workers: The number of workers.
        chief: Whether a chief trains beside them.
        evaluator: Whether an evaluator follows the checkpoints.
        ps: The number of parameter servers.
        gpus: NVIDIA GPUs of each task that trains.
        cpus: Processors of each task.
        memory: Gigabytes (GiB) of each task.
        port: The port on which each task listens.
        shared: The directory that all tasks share, for checkpoints.
        grace: Seconds that tasks have for a checkpoint, from SIGTERM on.
        max_restarts: How often all tasks are started again after a failure.
        file: The file that the template is written to, as a word of the commands in its comments.
    """

    # An example of each, so that a template without options can be read as a whole.
    name: str = "train"
    image: str = "registry.example.com/train:1"
    program: Sequence[str] = ("train.py",)
    workers: int = 2
    chief: bool = False
    evaluator: bool = False
    ps: int = 0
    # None unless asked for: a cluster without GPUs would leave the pods pending without a word.
    gpus: int = 0
    cpus: int = 4
    memory: int = 16
    # TensorFlow's in its own examples of TF_CONFIG, and Kubeflow's operator's.
    port: int = 2222
    shared: str = "/shared"
    # Above the default of LOCKSTEP_GRACE, 25 s, which fits into the 30 s that Kubernetes gives by default: here the
    # platform's limit is set as well.
    grace: int = 60
    max_restarts: int = 10
    file: str = "FILE"

    def __post_init__(self) -> None:
        """Refuses what no scheduler can run."""
        if not _NAME.fullmatch(self.name):
            raise ArgumentError(
                "--name must be at most 40 lower-case letters, digits and hyphens, and begin with a letter, as hosts "
                f"are named after it. Received: {self.name!r}. Give one such as train-1."
            )
        lowest = {"workers": 1, "ps": 0, "gpus": 0, "cpus": 1, "memory": 1, "port": 1, "grace": 1, "max_restarts": 0}
        for field, least in lowest.items():
            if (given := getattr(self, field)) < least:
                raise ArgumentError(f"--{field.replace('_', '-')} must be at least {least}. Received: {given}.")
        if self.port > _LAST_PORT:
            raise ArgumentError(f"--port must be at most {_LAST_PORT}. Received: {self.port}.")
        if not self.shared.startswith("/"):
            raise ArgumentError(
                f"--shared must be an absolute path, the same in every task. Received: {self.shared!r}. "
                f"Give one such as /{self.shared}."
            )
        if not self.image or any(character.isspace() or not character.isprintable() for character in self.image):
            raise ArgumentError(f"--image must name a container image. Received: {self.image!r}.")

    @property
    def command(self) -> list[str]:
        """The command of each task."""
        # By the name that an activated environment and an image both have, not by this machine's path.
        return ["python", *self.program]

    @property
    def kill_after(self) -> int:
        """Seconds from SIGTERM until the platform kills a task: more than the task's own grace."""
        return self.grace + _SPARE_SECONDS

    @property
    def roles(self) -> dict[str, int]:
        """The number of tasks of each type, those that train first."""
        counts = {"chief": int(self.chief), "worker": self.workers, "ps": self.ps, "evaluator": int(self.evaluator)}
        return {role: count for role, count in counts.items() if count}

    def gpus_of(self, role: str) -> int:
        """Returns the GPUs of a task: an evaluator computes too, a parameter server only adds."""
        return 0 if role == "ps" else self.gpus

    def tf_config(self, host: str, task: str) -> str:
        """Returns TF_CONFIG with the hosts that `host` makes of {role} and {index}, and `task` as it stands."""
        cluster = {
            role: [f"{host.format(role=role, index=index)}:{self.port}" for index in range(count)]
            for role, count in self.roles.items()
        }
        # The task is not JSON yet: the platform puts its number into it.
        return f'{{"cluster": {json.dumps(cluster)}, "task": {task}}}'
