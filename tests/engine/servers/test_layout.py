"""Layouts: each row on one server, ids to their servers, text that is bounded."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep._engine.servers.layout import Layout, Variable
from lockstep.errors import ArgumentError

TABLE = Variable("emb", (13, 2), "float32", "rows")


def test_tables_are_divided_as_by_tensorflow_and_others_spread_by_bytes() -> None:
    big, small = Variable("big", (100,), "float32", "dense"), Variable("small", (), "float32", "dense")
    layout = Layout.make([small, TABLE, big], 2)
    assert [s.stop - s.start for s in Layout.make([TABLE], 5).shards_of("emb")] == [3, 3, 3, 2, 2]
    assert layout.shards_of("big")[0].server != layout.shards_of("small")[0].server
    assert {s.server for s in layout.shards_of("emb")} == {0, 1}


@given(
    sizes=st.lists(st.integers(0, 5), min_size=1, max_size=6),
    servers=st.integers(1, 4),
    picks=st.lists(st.integers(0, 10_000), max_size=20),
)
def test_ids_find_their_servers(sizes: list[int], servers: int, picks: list[int]) -> None:
    rows = sum(sizes)
    variable = Variable("emb", (rows, 2), "float32", "rows")
    layout = Layout.make([variable], servers, {"emb": sizes})
    ids = np.asarray([p % rows for p in picks] if rows else [], np.int64)
    parts = layout.split_rows("emb", ids)
    assert len(parts) == servers
    assert sorted(int(p) for index, _ in parts for p in np.arange(ids.size)[index]) == list(range(ids.size))
    for server, (positions, own) in enumerate(parts):
        np.testing.assert_array_equal(ids[positions], own)
        shards = [s for s in layout.of_server(server) if s.start < s.stop]
        assert all(any(s.start <= i < s.stop for s in shards) for i in own)


def test_layouts_travel_as_text() -> None:
    layout = Layout.make([TABLE, Variable("b", (), "bfloat16", "delta")], 3)
    assert Layout.from_json(layout.to_json()) == layout
    assert Layout.from_json(layout.to_json()).digest() == layout.digest()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"servers": 0}, "1 to"),
        ({"servers": "many"}, "same version"),
        ({"shards": []}, "all rows"),
        ({"shards": [["emb", 0, 0, 5], ["emb", 0, 6, 13]]}, "follow one another"),
        ({"shards": [["emb", 7, 0, 13]]}, "of the layout"),
        ({"variables": [["emb", [1 << 60, 2], "float32", "rows"]]}, "bytes"),
        ({"variables": [["emb", [13, 2], "float33", "rows"]]}, "dtype"),
        ({"variables": [["emb", [13, 2], "float32", "pickle"]]}, "kind"),
        ({"variables": [["emb", [13, 2], "float32", "rows"]] * 2}, "unique"),
    ],
)
def test_text_that_is_no_layout_is_refused(change: dict[str, object], message: str) -> None:
    record = json.loads(Layout.make([TABLE], 1).to_json())
    with pytest.raises(ArgumentError, match=message):
        Layout.from_json(json.dumps({**record, **change}))


def test_what_is_no_row_of_a_table_is_refused_by_its_name() -> None:
    with pytest.raises(ArgumentError, match=r"'emb'.*13"):
        Layout.make([TABLE], 2).split_rows("emb", np.asarray([3, 13]))
    with pytest.raises(ArgumentError, match="add up"):
        Layout.make([TABLE], 2, {"emb": [5, 5]})
