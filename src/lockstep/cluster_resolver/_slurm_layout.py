"""Where Slurm puts the ranks of a step: on which node, and as which of the tasks there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ._address import check_port, join_address
from ._environ import check_rank, first_variable, variable
from ._field import MISSING, Field
from ._hostlist import expand_counts, expand_hosts
from ._task import MOST_TASKS

_NODE_LISTS = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")
_TASK_COUNTS = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")


@dataclass(frozen=True)
class Layout:
    """The node of every rank, and the rank of this process.

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
        check_port(Field("port_base", port_base))
        check_port(Field("port_base + tasks per node - 1", port_base + self.tasks_on_node - 1))
        return [join_address(node, port_base + position) for node, position in self.places]


def read_layout(tasks_per_node: int | Mapping[str, int] | None) -> Layout:
    """Returns the layout that Slurm's variables tell, or that `tasks_per_node` does in place of some of them.

    Raises:
        ClusterSpecError: A variable is missing or malformed, or they contradict one another.
    """
    nodes = _given_nodes(tasks_per_node) if isinstance(tasks_per_node, Mapping) else _slurm_nodes(tasks_per_node)
    places = tuple((node, position) for node, count in nodes for position in range(count))
    rank = check_rank(variable("SLURM_PROCID"), len(places), "the number of tasks")
    if not isinstance(tasks_per_node, Mapping):
        _check_node_name(places[rank][0])
    return Layout(places, rank, max(count for _, count in nodes))


def check_count(field: Field) -> int:
    """Returns the number in an argument; raises `ClusterSpecError` unless it is an integer from 0 to 100000."""
    count = field.value
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_TASKS:
        raise field.error(f"must be an integer from 0 to {MOST_TASKS}", 2)
    return count


def _given_nodes(tasks_per_node: Mapping[str, int]) -> list[tuple[str, int]]:
    field = Field("tasks_per_node", tasks_per_node)
    return [(node, check_count(field.item(node, count))) for node, count in tasks_per_node.items()]


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


def _check_node_name(node: str) -> None:
    field = variable("SLURMD_NODENAME")
    if field.value not in (MISSING, node):
        rule = f"must be {node}, where this rank is if ranks fill one node after the other"
        raise field.error(rule, "srun --distribution=block ...")
