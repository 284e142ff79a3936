"""The resolver of Slurm."""

from __future__ import annotations

from collections.abc import Mapping

from ._environ import check_number, first_variable
from ._field import Field
from ._placement import unless_missing
from ._resolver import ClusterResolver
from ._slurm_gpus import plan_gpus
from ._slurm_layout import check_count, read_layout
from ._spec import ClusterSpec
from ._task import check_job

TASK_TOTALS = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")


class SlurmClusterResolver(ClusterResolver):
    """Reads the cluster from a Slurm step; corresponds to `tf.distribute.cluster_resolver.SlurmClusterResolver`.

    Slurm's variables are read once, when the resolver is made: SLURM_PROCID, and of the step, or else of the job, the
    node list, the tasks on each node and the number of tasks. Ranks are expected to fill one node after the other in
    the order of the node list, which is how `srun` places them unless told otherwise. Jobs get their ranks in
    alphabetical order: chief, evaluator, ps, worker.

    Args:
        jobs: The number of tasks of each job; default: all tasks are workers.
        port_base: The port of the first task on each node; the others there have the ports after it.
        gpus_per_node: How many GPUs a node has; default: those in CUDA_VISIBLE_DEVICES, else what nvidia-smi lists.
        gpus_per_task: How many GPUs a task gets; default: those of its node, divided evenly.
        tasks_per_node: The number of tasks on every node, or on each by host name; default: as Slurm says.
        auto_set_gpu: Whether to narrow CUDA_VISIBLE_DEVICES, in this process's environment and at once, to the GPUs of
            this task. Nothing is changed where there are fewer GPUs than tasks, or where Slurm itself gave each task
            its own (`--gpus-per-task`).
        rpc_layer: What `master()` puts before "://".

    Raises:
        ClusterSpecError: A variable is missing or malformed, or tasks, nodes, ports and GPUs do not add up.
    """

    def __init__(
        self,
        jobs: Mapping[str, int] | None = None,
        port_base: int = 8888,
        gpus_per_node: int | None = None,
        gpus_per_task: int | None = None,
        tasks_per_node: int | Mapping[str, int] | None = None,
        auto_set_gpu: bool = True,
        rpc_layer: str | None = "grpc",
    ) -> None:
        layout = read_layout(tasks_per_node)
        ranks = _ranks_by_job(jobs, len(layout.places))
        addresses = layout.addresses(port_base)
        self._cluster_spec = ClusterSpec({job: [addresses[rank] for rank in ranks[job]] for job in ranks})
        self._task_type, self._task_id = _own_task(ranks, layout.rank)
        self.rpc_layer = rpc_layer
        gpus = plan_gpus(layout.tasks_on_node, _count(gpus_per_node, "node"), _count(gpus_per_task, "task"))
        self._gpu_count = gpus.count()
        if auto_set_gpu:
            gpus.bind(layout.local_rank)

    def cluster_spec(self) -> ClusterSpec:
        """Returns the cluster of this step."""
        return self._cluster_spec

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """Returns the address of a task, by default of this one, after the RPC layer."""
        return self._task_master(task_type, task_id, rpc_layer)

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: object = None
    ) -> dict[str, int]:
        """Returns the number of GPUs of every task as {"GPU": n}, {} for none; starts no device."""
        del task_type, task_id, config_proto
        return {"GPU": self._gpu_count} if self._gpu_count else {}

    def get_task_info(self) -> tuple[str | None, int | None]:
        """Returns the type and the index of this task."""
        return self.task_type, self.task_id


def _ranks_by_job(jobs: Mapping[str, int] | None, total: int) -> dict[str, range]:
    sizes = _all_workers(total) if jobs is None else _job_sizes(Field("jobs", jobs), total)
    ends = {job: sum(sizes[other] for other in sizes if other <= job) for job in sorted(sizes)}
    return {job: range(end - sizes[job], end) for job, end in ends.items()}


def _all_workers(total: int) -> dict[str, int]:
    field = first_variable(*TASK_TOTALS)
    if check_number(field, lowest=1) != total:
        raise field.error(f"must be the number of tasks on all nodes, which is {total}", f"{field.name}={total}")
    return {"worker": total}


def _job_sizes(jobs: Field, total: int) -> dict[str, int]:
    example = f'{{"worker": {total}}}'
    if not isinstance(jobs.value, Mapping):
        raise jobs.error("must map each job to its number of tasks", example)
    sizes = {check_job(Field(jobs.name, job)): check_count(jobs.item(job, n)) for job, n in jobs.value.items()}
    if sum(sizes.values()) != total:
        raise jobs.error(f"must have as many tasks as Slurm started, which is {total}", example)
    return sizes


def _own_task(ranks: Mapping[str, range], rank: int) -> tuple[str, int]:
    return next((job, mine.index(rank)) for job, mine in ranks.items() if rank in mine)


def _count(gpus: int | None, holder: str) -> int | None:
    return unless_missing(Field(f"gpus_per_{holder}", gpus), check_count)
