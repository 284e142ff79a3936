"""The resolver of Slurm: host lists, the layout of ranks on nodes, and the GPUs of each task."""

from __future__ import annotations

import math
import os
import re
import subprocess
from collections.abc import Mapping, Sized
from dataclasses import dataclass
from itertools import product

from lockstep.cluster_resolver._address import check_port, join_address
from lockstep.cluster_resolver._field import (
    MISSING,
    MOST_TASKS,
    Field,
    check_number,
    check_rank,
    check_set,
    first_variable,
    variable,
)
from lockstep.cluster_resolver._resolver import ClusterResolver
from lockstep.cluster_resolver._roles import unless_missing
from lockstep.cluster_resolver._spec import ClusterSpec, check_job

_HOSTS_EXAMPLE = "node[1-3,7],other"
_COUNTS_EXAMPLE = "2(x3),1"
# One item of a list: text and bracketed ranges by turns, up to a comma that something follows.
_ITEM = re.compile(r"((?:[^\[\],\s]|\[[0-9,-]+\])+)(?:,(?=.)|\Z)")
_PART = re.compile(r"\[([0-9,-]+)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_COUNT = re.compile(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?")
_NODE_LISTS = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")
_TASK_COUNTS = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
_VISIBLE = "CUDA_VISIBLE_DEVICES"
# What was visible before this module narrowed it: a second resolver, or a child process, must not narrow it again.
_NODE_GPUS = "LOCKSTEP_SLURM_NODE_GPUS"
_NOT_DEVICES = ("", "-1", "NoDevFiles")  # Slurm writes the last where a job has no GPUs.
# nvidia-smi takes seconds where persistence mode is off, and hangs where a driver does.
_QUERY_SECONDS = 30
TASK_TOTALS = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")


def expand_hosts(field: Field) -> list[str]:
    """Returns the hosts that Slurm's list in `field` names, in its order, which is that of the ranks.

    Ranges keep their zeros ("n[009-011]"), and a name may have several ("rack[1-2]n[1-4]").
    """
    text = check_set(field, _HOSTS_EXAMPLE)
    hosts: list[str] = []
    position = 0
    while position < len(text):
        match = _ITEM.match(text, position)
        if not match:
            raise field.error("must be a list of hosts as Slurm writes it", f"{field.name}={_HOSTS_EXAMPLE}")
        position = match.end()
        parts = [_expand_ranges(field, ranges) if ranges else [name] for ranges, name in _PART.findall(match[1])]
        # Before anything is made of it: the product of a few short brackets can be beyond any memory.
        if math.prod(len(part) for part in parts) > MOST_TASKS:
            raise field.error(f"must name at most {MOST_TASKS} hosts", f"{field.name}={_HOSTS_EXAMPLE}")
        hosts += map("".join, product(*parts))
        _check_length(field, hosts, _HOSTS_EXAMPLE)
    return hosts


def expand_counts(field: Field) -> list[int]:
    """Returns the number of tasks on each host, as Slurm's list in `field` gives it: "2(x3),1" is 2, 2, 2, 1."""
    counts: list[int] = []
    for part in check_set(field, _COUNTS_EXAMPLE).split(","):
        match = _COUNT.fullmatch(part)
        if not match:
            raise field.error("must be numbers of tasks as Slurm writes them", f"{field.name}={_COUNTS_EXAMPLE}")
        # One more than the limit shows that it is passed; "1(x999999)" in a row would fill the memory first.
        counts += [int(match[1])] * min(int(match[2] or 1), MOST_TASKS + 1)
        _check_length(field, counts, _COUNTS_EXAMPLE)
    return counts


def _expand_ranges(field: Field, ranges: str) -> list[str]:
    """Returns the numbers in a bracket, such as "1-3,7", as they stand in names."""
    numbers: list[str] = []
    for text in ranges.split(","):
        match = _RANGE.fullmatch(text)
        low, high = (match[1], match[2] or match[1]) if match else ("1", "0")
        if int(low) > int(high):
            raise field.error(f'has a range that is none: "{text}"', f"{field.name}={_HOSTS_EXAMPLE}")
        last = min(int(high), int(low) + MOST_TASKS)
        numbers += (str(number).zfill(len(low)) for number in range(int(low), last + 1))
        _check_length(field, numbers, _HOSTS_EXAMPLE)
    return numbers


def _check_length(field: Field, entries: Sized, example: str) -> None:
    if len(entries) > MOST_TASKS:
        raise field.error(f"must have at most {MOST_TASKS} entries", f"{field.name}={example}")


@dataclass(frozen=True)
class Layout:
    """Placement of ranks on nodes.

    Attributes:
        places: By rank: the node, and the position among the tasks of that node.
        rank: The rank of this process.
        tasks_on_node: The greatest number of tasks on one node.
    """

    places: tuple[tuple[str, int], ...]
    rank: int
    tasks_on_node: int

    @property
    def local_rank(self) -> int:
        """The position of this process among the tasks of its node."""
        return self.places[self.rank][1]

    def addresses(self, port_base: int) -> list[str]:
        """Returns the address of each rank: consecutive ports on each node, from `port_base`."""
        # Every node has as many ports, whether or not it needs them: one rule for all, told before anything starts.
        check_port(Field("port_base", port_base))
        check_port(Field("port_base + tasks per node - 1", port_base + self.tasks_on_node - 1))
        return [join_address(node, port_base + position) for node, position in self.places]


def read_layout(tasks_per_node: int | Mapping[str, int] | None) -> Layout:
    """Returns the layout that Slurm's variables tell, or that `tasks_per_node` does in place of some of them."""
    if isinstance(tasks_per_node, Mapping):
        field = Field("tasks_per_node", tasks_per_node)
        nodes = [(node, check_count(field.item(node, count))) for node, count in tasks_per_node.items()]
    else:
        nodes = _slurm_nodes(tasks_per_node)
    places = tuple((node, position) for node, count in nodes for position in range(count))
    rank = check_rank(variable("SLURM_PROCID"), len(places), "the number of tasks")
    # With another distribution than block, ranks would be on other nodes than their addresses say.
    field, node = variable("SLURMD_NODENAME"), places[rank][0]
    if not isinstance(tasks_per_node, Mapping) and field.value not in (MISSING, node):
        rule = f"must be {node}, where this rank is if ranks fill one node after the other"
        raise field.error(rule, "srun --distribution=block ...")
    return Layout(places, rank, max(count for _, count in nodes))


def check_count(field: Field) -> int:
    """Returns the number in an argument; raises `ClusterSpecError` unless it is an integer from 0 to 100000."""
    count = field.value
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_TASKS:
        raise field.error(f"must be an integer from 0 to {MOST_TASKS}", 2)
    return count


def _slurm_nodes(tasks_per_node: int | None) -> list[tuple[str, int]]:
    hosts = expand_hosts(first_variable(*_NODE_LISTS))
    if tasks_per_node is not None:
        return [(host, check_count(Field("tasks_per_node", tasks_per_node))) for host in hosts]
    field = first_variable(*_TASK_COUNTS)
    counts = expand_counts(field)
    if len(counts) != len(hosts):
        rule = f"must have a number for each node of the node list, which has {len(hosts)}"
        raise field.error(rule, f"{field.name}=1(x{len(hosts)})")
    return list(zip(hosts, counts, strict=True))


@dataclass(frozen=True)
class GpuPlan:
    """Division of a node's GPUs between its tasks.

    Attributes:
        ids: The GPUs of the node, as CUDA_VISIBLE_DEVICES names them.
        per_task: How many each task gets; `None` leaves all to each task, and CUDA_VISIBLE_DEVICES as it is.
    """

    ids: tuple[str, ...]
    per_task: int | None

    def bind(self, local_rank: int) -> None:
        """Makes only the GPUs of one task visible to this process and its children."""
        if self.per_task is None or not self.ids:
            return
        # "mine|all": as long as the variable is as it was left here, the second part is what the node has.
        before = ",".join(self.ids)
        mine = ",".join(self.ids[local_rank * self.per_task : (local_rank + 1) * self.per_task])
        os.environ[_NODE_GPUS], os.environ[_VISIBLE] = f"{mine}|{before}", mine

    def count(self) -> int:
        """Returns the number of GPUs that a task has."""
        return len(self.ids) if self.per_task is None else self.per_task


def plan_gpus(tasks_on_node: int, gpus_per_node: int | None, gpus_per_task: int | None) -> GpuPlan:
    """Returns the division of a node's GPUs; `None` stands for `SlurmClusterResolver`'s defaults."""
    ids = _node_gpus(gpus_per_node)
    if gpus_per_task is None:
        # `--gpus-per-task`: what a task sees is its own already, and must not be divided again.
        bound_by_slurm = gpus_per_node is None and variable("SLURM_GPUS_PER_TASK").value is not MISSING
        # TensorFlow leaves CUDA_VISIBLE_DEVICES alone where there are fewer GPUs than tasks; 0 a task would hide all.
        return GpuPlan(ids, None if bound_by_slurm else len(ids) // tasks_on_node or None)
    if gpus_per_task * tasks_on_node > len(ids):
        rule = f"must not ask for more than a node's GPUs, which are {len(ids)} for {tasks_on_node} tasks"
        raise Field("gpus_per_task", gpus_per_task).error(rule, len(ids) // tasks_on_node)
    return GpuPlan(ids, gpus_per_task)


def _node_gpus(count: int | None) -> tuple[str, ...]:
    visible = _visible_gpus()
    if visible is not None and (count is None or len(visible) >= count):
        return visible if count is None else visible[:count]
    return tuple(str(index) for index in range(_installed_gpus() if count is None else count))


def _visible_gpus() -> tuple[str, ...] | None:
    visible = os.environ.get(_VISIBLE)
    # The note counts only while the variable is as this module left it: a user may have set it anew since.
    narrowed, _, before = os.environ.get(_NODE_GPUS, "").partition("|")
    if visible is not None and before and visible == narrowed:
        visible = before
    if visible is None:
        return None
    return tuple(each.strip() for each in visible.split(",") if each.strip() not in _NOT_DEVICES)


def _installed_gpus() -> int:
    try:
        listing = subprocess.run(
            ["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=_QUERY_SECONDS, check=True
        )
    # A node without GPUs has no nvidia-smi, or one that fails for want of a driver.
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in listing.stdout.splitlines())


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
        own = next(job for job in ranks if layout.rank in ranks[job])
        self._task_type, self._task_id = own, ranks[own].index(layout.rank)
        self.rpc_layer = rpc_layer
        gpus = plan_gpus(
            layout.tasks_on_node,
            unless_missing(Field("gpus_per_node", gpus_per_node), check_count),
            unless_missing(Field("gpus_per_task", gpus_per_task), check_count),
        )
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
    # In alphabetical order, as TensorFlow's resolver numbers them: a program may be started with either.
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
