"""Selects the resolver for a process whose program passes none: TF_CONFIG, else the variables of its launcher.

Launchers nest: `srun` starts `torchrun`, which starts the program, and each leaves its variables. The innermost one
has started this process, and counts if what it says agrees with those around it. Otherwise nothing tells how many
processes belong together, and a guess would train several models, or wait for tasks that nobody starts.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from lockstep.cluster_resolver._field import MISSING, check_number, check_rank, first_variable, variable
from lockstep.cluster_resolver._resolver import ClusterResolver
from lockstep.cluster_resolver._slurm import TASK_TOTALS, SlurmClusterResolver
from lockstep.cluster_resolver._tf_config import TFConfigClusterResolver
from lockstep.cluster_resolver._torchrun_mpi import MPIClusterResolver, TorchrunClusterResolver
from lockstep.errors import ClusterSpecError

_log = logging.getLogger("lockstep")

# Set in each task of a step, and not in a batch script, to which Slurm also gives SLURM_PROCID=0 and SLURM_NTASKS.
_STEP_VARIABLES = ("SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS")
# All that tell of torchrun, for messages.
_TORCH_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "TORCHELASTIC_RUN_ID")
_ALONE = "TF_CONFIG='{}'"
_CHOICE = (
    "To choose, pass cluster_resolver=TorchrunClusterResolver(), MPIClusterResolver() or SlurmClusterResolver(), or "
    f"set TF_CONFIG; {_ALONE} has this process train alone."
)


@dataclass(frozen=True)
class Launcher:
    """A launcher of this process, and the rank that its variables give.

    Attributes:
        name: Of the launcher.
        size: How many processes it has started.
        rank: The number of this process among them; `None` where no variable tells.
        seen: The variables, by name.
        resolver: Makes the resolver of these variables.
        agents: How many of its own processes started the `size`, where variables tell: torchrun has one a node.
        is_evident: Whether it has certainly started this process itself. RANK and WORLD_SIZE may be set by hand.
    """

    name: str
    size: int
    rank: int | None
    seen: dict[str, str]
    resolver: Callable[[], ClusterResolver]
    agents: int | None = None
    is_evident: bool = True

    def fits(self, outer: Launcher) -> bool:
        """Returns whether this launcher's processes are all those that run in the tasks of `outer`."""
        # Around it one process, or one for each of its agents: `srun torchrun` on every node.
        if outer.size == 1 or self.agents == outer.size:
            return True
        if not self.is_evident:
            return (self.size, self.rank) == (outer.size, outer.rank)
        # mpirun starts a daemon for each node but its own by Slurm; each starts ranks, so there are not fewer.
        return self.agents is None and self.size >= outer.size

    def describe(self) -> str:
        """Returns what was seen, for messages."""
        variables = ", ".join(f"{name}={value}" for name, value in self.seen.items())
        process = "a process" if self.rank is None else f"process {self.rank}"
        return f"{self.name} ({variables}): {process} of {self.size}"


def default_resolver() -> ClusterResolver:
    """Returns the resolver of the cluster that the environment describes; its cluster is empty for a process alone.

    TF_CONFIG wins if it is set. Otherwise it is the resolver of the launcher that has started this process as one of
    several; the log says which. A launcher of one process is none.

    Raises:
        ClusterSpecError: Launchers contradict each other, one does not tell enough, or a variable is malformed.
    """
    return launcher_resolver() or TFConfigClusterResolver()


def launcher_resolver(for_training: bool = True) -> ClusterResolver | None:
    """Returns the resolver of the launcher, `None` where TF_CONFIG is set or this process is alone.

    Args:
        for_training: Whether this process prepares to train: Slurm's resolver then narrows CUDA_VISIBLE_DEVICES, and
            the log says which resolver it is.

    Raises:
        ClusterSpecError: As `default_resolver`.
    """
    # Whoever sets it has decided: TF_CONFIG='{}' is how a program in a launcher's job trains alone.
    if os.environ.get("TF_CONFIG", "").strip():
        return None
    launcher = _innermost(for_training)
    if launcher is None:
        if for_training:
            _warn_of_batch_script()
        return None
    try:
        resolver = launcher.resolver()
    except ClusterSpecError as error:
        raise ClusterSpecError(f"{error}\nTF_CONFIG is not set; seen: {launcher.describe()}. {_CHOICE}") from error
    if for_training:
        # No plain information, which nobody sees: a program that was meant to train alone would wait without a word.
        _log.warning(
            "TF_CONFIG is not set: %s takes the cluster from %s.", type(resolver).__name__, launcher.describe()
        )
    return resolver


def _innermost(for_training: bool) -> Launcher | None:
    """Returns the launcher that has started this process as one of several."""
    # From the innermost out, in the only order in which they are nested in practice.
    seen = [each for each in (_torchrun(), _open_mpi(), _slurm(for_training)) if each is not None]
    # WORLD_SIZE without RANK does not number this process: it counts only where nothing else does.
    if any(each.size > 1 and each.rank is not None for each in seen):
        seen = [each for each in seen if each.rank is not None]
    # Only where no launcher has told more.
    if not seen:
        _check_indexed_job()
    if all(each.size == 1 for each in seen):
        return None
    if any(not inner.fits(outer) for inner, outer in pairwise(seen)):
        raise ClusterSpecError(
            "Where TF_CONFIG is not set, the variables of all launchers must describe one cluster. Received: "
            f"{'; '.join(each.describe() for each in seen)}. {_CHOICE}"
        )
    return seen[0]


def _torchrun() -> Launcher | None:
    # By its variables and not by torchrun's own: Kubeflow's PyTorchJob and others set the same ones.
    size = variable("WORLD_SIZE")
    if size.value is MISSING:
        return None
    count, rank, local = check_number(size, lowest=1), variable("RANK"), variable("LOCAL_WORLD_SIZE")
    groups = variable("GROUP_WORLD_SIZE")
    if groups.value is not MISSING:
        agents = check_number(groups, lowest=1)
    else:
        # Older releases of torchrun do not tell how many agents there are; all have as many workers.
        agents = None if local.value is MISSING else -(-count // check_number(local, lowest=1))
    return Launcher(
        "torchrun's variables",
        count,
        None if rank.value is MISSING else check_rank(rank, count, "WORLD_SIZE"),
        _values(*_TORCH_VARIABLES),
        TorchrunClusterResolver,
        agents,
        is_evident=variable("TORCHELASTIC_RUN_ID").value is not MISSING,
    )


def _open_mpi() -> Launcher | None:
    size, rank = variable("OMPI_COMM_WORLD_SIZE"), variable("OMPI_COMM_WORLD_RANK")
    if size.value is MISSING or rank.value is MISSING:
        return None
    count = check_number(size, lowest=1)
    own = check_rank(rank, count, size.name)
    return Launcher("Open MPI", count, own, _values(rank.name, size.name), MPIClusterResolver)


def _slurm(for_training: bool) -> Launcher | None:
    rank, size = variable("SLURM_PROCID"), first_variable(*TASK_TOTALS)
    if rank.value is MISSING or size.value is MISSING:
        # In the shell of salloc, for one.
        return None
    if _is_batch_script():
        return None
    count = check_number(size, lowest=1)
    own = check_rank(rank, count, size.name)

    def resolver() -> ClusterResolver:
        # Without training nobody asks for GPUs, and none need be counted.
        return SlurmClusterResolver() if for_training else SlurmClusterResolver(gpus_per_node=0, auto_set_gpu=False)

    return Launcher("Slurm", count, own, _values(rank.name, size.name), resolver)


def _is_batch_script() -> bool:
    """Returns whether this process runs in a job's script itself, and not in a step, which srun starts."""
    is_in_step = any(variable(name).value is not MISSING for name in _STEP_VARIABLES)
    return variable("ENVIRONMENT").value == "BATCH" and variable("SLURM_PROCID").value == "0" and not is_in_step


def _warn_of_batch_script() -> None:
    # `sbatch --ntasks=4` with the program in the script is the usual mistake, and trains one model on one task.
    size = variable("SLURM_NTASKS")
    if _is_batch_script() and size.value not in (MISSING, "1"):
        _log.warning(
            "This process trains alone, though SLURM_NTASKS is %s: it runs in the batch script of the job. Start the "
            "program with srun to train on all its tasks.",
            size.value,
        )


def _check_indexed_job() -> None:
    """Raises `ClusterSpecError` in a pod of an indexed Job, which knows its number but not how many there are."""
    # The variables that every pod has, such as KUBERNETES_SERVICE_HOST, say nothing of a job.
    index = variable("JOB_COMPLETION_INDEX")
    if index.value is not MISSING:
        raise index.error(
            "says that this pod is one of an indexed Job of Kubernetes, but nothing in its environment says of how "
            "many, or where the first one is. Set RANK (to the index), WORLD_SIZE (to the Job's completions), "
            "MASTER_ADDR and MASTER_PORT in the pod's template, or TF_CONFIG, or pass "
            f"cluster_resolver=KubernetesClusterResolver(...) with its task. If each pod trains alone, set {_ALONE}",
            "RANK=$(JOB_COMPLETION_INDEX) WORLD_SIZE=4 MASTER_ADDR=myjob-0.myservice MASTER_PORT=2222",
        )


def _values(*names: str) -> dict[str, str]:
    return {name: str(field.value) for name in names if (field := variable(name)).value is not MISSING}
