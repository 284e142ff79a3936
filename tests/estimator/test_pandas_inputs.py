from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from lockstep.data import Dataset
from lockstep.errors import ArgumentError
from lockstep.estimator._input_fns.arrays import pandas_input_fn

pandas: Any = pytest.importorskip("pandas")


def lists(dataset: Dataset) -> list[Any]:
    return [jax.tree.map(lambda a: a.tolist(), batch) for batch in dataset.as_numpy_iterator()]


@pytest.fixture
def table() -> Any:
    values = {"a": np.arange(4.0), "b": np.arange(32, 36), "c": ["x", "y", "z", "x"]}
    return pandas.DataFrame(values, index=np.arange(100, 104))


def test_columns_of_a_table(table: Any) -> None:
    found = lists(pandas_input_fn(table[["a", "c"]], table["b"], batch_size=3, shuffle=False)())
    assert found == [
        ({"a": [0, 1, 2], "c": [b"x", b"y", b"z"]}, [32, 33, 34]),
        ({"a": [3], "c": [b"x"]}, [35]),
    ]
    found = lists(pandas_input_fn(table[["a"]], table[["b", "c"]], batch_size=4, shuffle=False)())
    assert found == [({"a": [0, 1, 2, 3]}, {"b": [32, 33, 34, 35], "c": [b"x", b"y", b"z", b"x"]})]
    assert lists(pandas_input_fn(table[["b"]], batch_size=4, num_epochs=1, shuffle=False)()) == [
        {"b": [32, 33, 34, 35]}
    ]


def test_a_table_is_copied(table: Any) -> None:
    input_fn = pandas_input_fn(table[["a"]], batch_size=4, shuffle=True, queue_capacity=None)
    table["a"] = -1.0
    assert sorted(lists(input_fn())[0]["a"]) == [0, 1, 2, 3]


def test_what_pandas_input_fn_refuses(table: Any) -> None:
    x, y = table[["a", "b"]], table["a"]
    for arguments, rule in [
        ({"shuffle": None}, "shuffle must be provided"),
        ({"x": {"a": [1]}}, "must be a pandas.DataFrame"),
        ({"target_column": 3}, "target_column a string"),
        ({"target_column": "b"}, "Cannot use name b for target column"),
        ({"y": [1, 2, 3, 4]}, "must be a pandas.Series"),
        ({"y": y.reset_index(drop=True)}, "Index for x and y are mismatched"),
        ({"batch_size": 0}, "batch_size must be"),
    ]:
        with pytest.raises(ArgumentError, match=rule):
            pandas_input_fn(**{"x": x, "y": y, "shuffle": False, **arguments})
