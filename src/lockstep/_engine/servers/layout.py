"""The layout: which rows of which variable lie on which parameter server.

Source: "div" sharding of `tf.distribute.ParameterServerStrategy`: ranges of axis 0, in order.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, cast, get_args

import numpy as np

from lockstep._types import Array
from lockstep.errors import ArgumentError

Kind = Literal["rows", "dense", "delta"]

# A layout comes over a network before anything else: what it may make a server reserve is bounded.
_MOST_VARIABLES = 100_000
_MOST_BYTES = 1 << 50
_MOST_TEXT = 64 << 20
_MOST_SERVERS = 10_000


@dataclass(frozen=True)
class Variable:
    """A variable that servers hold.

    Attributes:
        name: Unique among the variables; Keras' path.
        shape: Of the whole variable.
        dtype: NumPy's name of the type.
        kind: "rows" is read and updated by rows (tables of embeddings), "dense" is read and updated whole, to "delta"
            differences are added (averages of BatchNormalization).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: Kind

    @property
    def rows(self) -> int:
        """The length of axis 0; 1 for a scalar."""
        return self.shape[0] if self.shape else 1

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row; `()` for a scalar."""
        return self.shape[1:]

    @property
    def row_size(self) -> int:
        """The number of elements of a row."""
        return math.prod(self.row_shape)

    @property
    def bytes(self) -> int:
        """The size of the whole variable, without slots."""
        return self.rows * self.row_size * dtype_of(self.dtype).itemsize


@dataclass(frozen=True)
class Shard:
    """Rows `start` to `stop` (axis 0) of a variable on a server; a scalar's are 0 to 1."""

    variable: str
    server: int
    start: int
    stop: int


def dtype_of(name: str) -> np.dtype[np.generic]:
    """Returns a NumPy type by its name, also bfloat16 and the types of 8 bits that jax adds."""
    import jax.numpy as jnp

    return np.dtype(jnp.dtype(name))


@dataclass(frozen=True)
class Layout:
    """Where all variables lie. Each row of each variable lies on exactly one server.

    Attributes:
        variables: In the order of the model.
        shards: By variable, in the order of rows.
        num_servers: The number of servers, of which some may hold nothing.

    Raises:
        ArgumentError: If shards leave rows out, overlap, or name what is not there; or if a size is beyond all reason.
    """

    variables: tuple[Variable, ...]
    shards: tuple[Shard, ...]
    num_servers: int

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def make(
        cls, variables: Sequence[Variable], num_servers: int, partitions: Mapping[str, Sequence[int]] | None = None
    ) -> Layout:
        """Returns a layout: tables over all servers, others whole on the server that has the fewest bytes so far.

        Args:
            variables: What is to be held.
            num_servers: Over how many servers.
            partitions: By name, the sizes of the row ranges of a variable (a partitioner's answer), placed round robin.

        Raises:
            ArgumentError: If the sizes of a variable's ranges do not add up to its rows.
        """
        partitions = partitions or {}
        loads = [0] * num_servers
        shards: dict[str, list[Shard]] = {}
        # The largest first: then the last ones, which are small, level what is left uneven.
        for variable in sorted(variables, key=lambda v: -v.bytes):
            sizes = partitions.get(variable.name)
            if sizes is None and variable.kind == "rows" and variable.rows >= num_servers:
                sizes = _even(variable.rows, num_servers)
            sizes = [variable.rows] if sizes is None else list(sizes)
            if sum(sizes) != variable.rows or min(sizes, default=0) < 0:
                raise ArgumentError(
                    f"The row ranges of a variable add up to its rows. Received: {list(sizes)} for {variable.name!r} "
                    f"of shape {variable.shape}. Let the partitioner divide axis 0 alone."
                )
            first = int(np.argmin(loads))
            shards[variable.name] = own = []
            start = 0
            for i, size in enumerate(sizes):
                server = (first + i) % num_servers if len(sizes) != num_servers else i
                own.append(Shard(variable.name, server, start, start + size))
                loads[server] += size * variable.row_size
                start += size
        return cls(tuple(variables), tuple(s for v in variables for s in shards[v.name]), num_servers)

    def of_server(self, server: int) -> tuple[Shard, ...]:
        """Returns the shards of a server."""
        return self._of_servers.get(server, ())

    def variable(self, name: str) -> Variable:
        """Returns a variable by its name.

        Raises:
            KeyError: If no variable has this name.
        """
        return self._by_name[name]

    def shards_of(self, name: str) -> tuple[Shard, ...]:
        """Returns the shards of a variable, in the order of rows."""
        return self._of_variables[name]

    def split_rows(self, name: str, ids: Array) -> list[tuple[Array | slice, Array]]:
        """Divides ids among the servers.

        Args:
            name: Of the table.
            ids: Rows of the whole table, shape (n,), in any order.

        Returns:
            For each server: an index of `ids` to those that are its own, and these ids, still of the whole table.

        Raises:
            ArgumentError: If an id is no row of the table.
        """
        shards = self.shards_of(name)
        rows = self.variable(name).rows
        if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= rows):
            wrong = ids[(ids < 0) | (ids >= rows)][0]
            raise ArgumentError(
                f"Ids of {name!r} are from 0 to {rows - 1}. Received: {int(wrong)}. Give the Embedding an input_dim "
                "above the largest id, or check how the ids are made."
            )
        bounds = np.asarray([s.start for s in shards[1:]], ids.dtype)
        owners = [s.server for s in shards]
        if len(set(owners)) == len(owners) and bool((ids[1:] >= ids[:-1]).all()):
            # Each server has one range, and of ids in order one stretch.
            ends = dict(zip(owners, itertools.pairwise([0, *np.searchsorted(ids, bounds), ids.size]), strict=True))
            stretches = [slice(*ends.get(server, (0, 0))) for server in range(self.num_servers)]
            return [(own, ids[own]) for own in stretches]
        owner = np.asarray(owners)[np.searchsorted(bounds, ids, side="right")]
        positions = [np.flatnonzero(owner == server) for server in range(self.num_servers)]
        return [(own, ids[own]) for own in positions]

    def digest(self) -> str:
        """Returns a hash that is equal on tasks with the same layout."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Returns the layout as text, equal for equal layouts."""
        record = {
            "servers": self.num_servers,
            "variables": [[v.name, list(v.shape), v.dtype, v.kind] for v in self.variables],
            "shards": [[s.variable, s.server, s.start, s.stop] for s in self.shards],
        }
        return json.dumps(record, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Layout:
        """Returns the layout that `to_json` wrote.

        Raises:
            ArgumentError: If the text is no layout, or is larger than any.
        """
        if len(text) > _MOST_TEXT:
            raise ArgumentError(f"A layout has at most {_MOST_TEXT} characters. Received: {len(text)}.")
        try:
            record = json.loads(text)
            variables = tuple(
                Variable(str(name), tuple(int(n) for n in shape), str(dtype), cast("Kind", str(kind)))
                for name, shape, dtype, kind in record["variables"]
            )
            shards = tuple(Shard(str(name), int(a), int(b), int(c)) for name, a, b, c in record["shards"])
            servers = int(record["servers"])
        except (ValueError, TypeError, KeyError) as error:
            raise ArgumentError(
                f"A layout is the text that Layout.to_json writes. Received: {text[:80]!r} ({error}). Start all tasks "
                "with the same version of lockstep."
            ) from error
        return cls(variables, shards, servers)

    @cached_property
    def _by_name(self) -> dict[str, Variable]:
        return {v.name: v for v in self.variables}

    @cached_property
    def _of_servers(self) -> dict[int, tuple[Shard, ...]]:
        return {i: tuple(s for s in self.shards if s.server == i) for i in {s.server for s in self.shards}}

    @cached_property
    def _of_variables(self) -> dict[str, tuple[Shard, ...]]:
        groups: dict[str, list[Shard]] = {v.name: [] for v in self.variables}
        for shard in self.shards:
            groups[shard.variable].append(shard)
        return {name: tuple(own) for name, own in groups.items()}


def _even(rows: int, parts: int) -> list[int]:
    """Returns TensorFlow's "div" sizes: 13 rows in 5 parts are 3, 3, 3, 2, 2."""
    return [rows // parts + (i < rows % parts) for i in range(parts)]


def _check(layout: Layout) -> None:
    if not 1 <= layout.num_servers <= _MOST_SERVERS:
        raise ArgumentError(
            f"A layout has 1 to {_MOST_SERVERS} servers. Received: {layout.num_servers}. List the `ps` tasks "
            "in TF_CONFIG."
        )
    if len(layout.variables) > _MOST_VARIABLES or len(layout.shards) > _MOST_VARIABLES + layout.num_servers:
        raise ArgumentError(
            f"A layout has at most {_MOST_VARIABLES} variables and shards. Received: {len(layout.variables)} and "
            f"{len(layout.shards)}. Divide fewer variables."
        )
    expected: dict[str, int] = {}
    for v in layout.variables:
        if v.name in expected:
            raise ArgumentError(f"Names of variables are unique. Received: {v.name!r} twice. Rename one of the layers.")
        if v.kind not in get_args(Kind) or min(v.shape, default=1) < 0 or (v.kind == "rows" and not v.shape):
            raise ArgumentError(
                f"A variable is of kind {', '.join(get_args(Kind))}, and tables have rows. Received: {v}. Hold it as "
                "'dense'."
            )
        try:
            size = v.bytes
        except TypeError as error:
            raise ArgumentError(f"{v.name!r} has a dtype of NumPy or jax. Received: {v.dtype!r}.") from error
        if size > _MOST_BYTES:
            raise ArgumentError(f"A variable has at most {_MOST_BYTES} bytes. Received: {v}.")
        expected[v.name] = 0
    for s in layout.shards:
        if s.variable not in expected or not 0 <= s.server < layout.num_servers:
            raise ArgumentError(f"Shards are of a variable and a server of the layout. Received: {s}.")
        if s.start != expected[s.variable] or s.stop < s.start:
            raise ArgumentError(
                f"Shards of a variable follow one another. Received: {s} after row {expected[s.variable]}."
            )
        expected[s.variable] = s.stop
    for v in layout.variables:
        if expected[v.name] != v.rows:
            raise ArgumentError(f"Shards hold all rows of a variable. Received: {expected[v.name]} rows of {v}.")
