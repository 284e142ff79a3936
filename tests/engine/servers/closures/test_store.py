"""One server's variables for a coordinator: effects of a ticket are applied once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lockstep._engine.servers.closures.plan import export_code
from lockstep._engine.servers.closures.store import PREFIX, VariableStore
from lockstep._engine.servers.messages import Message
from lockstep.errors import MismatchError

FACTS = {"names": ["v"], "part_of": [-1], "payload_part": [-1], "sizes": []}


def _ask(store: VariableStore, kind: str, arrays: Any = None, coordinator: str = "a", **facts: Any) -> Message:
    return store.handle(Message(PREFIX + kind, {**facts, "coordinator": coordinator}, arrays or {}))


@pytest.fixture
def store() -> VariableStore:
    made = VariableStore()
    shape = jax.ShapeDtypeStruct((2,), jnp.float32)
    code = export_code(lambda v, x: [v + x], [shape, shape], "cpu", "add")
    _ask(made, "begin")
    _ask(made, "assign", {"v": np.zeros(2, np.float32)})
    _ask(made, "define", {"code": np.frombuffer(code, np.uint8)}, program="add", **FACTS)
    return made


def _push(store: VariableStore, ticket: int, finished: int = 0) -> str:
    return _ask(store, "push", {"0": np.ones(2, np.float32)}, ticket=ticket, finished=finished, program="add").kind


def _value(store: VariableStore, have: int = -1) -> Any:
    return _ask(store, "pull", have={"v": have})


def test_a_ticket_counts_once_in_any_order(store: VariableStore) -> None:
    assert [_push(store, t) for t in (3, 0, 3, 7, 0)] == ["applied", "applied", "duplicate", "applied", "duplicate"]
    answer = _value(store)
    np.testing.assert_array_equal(answer.arrays["v"], [3, 3])
    assert not _value(store, answer.facts["versions"]["v"]).arrays


def test_what_comes_after_its_ticket_is_finished_is_late(store: VariableStore) -> None:
    assert _push(store, 5, finished=4) == "applied"
    assert [_push(store, t) for t in (2, 3, 4)] == ["duplicate", "duplicate", "applied"]


def test_another_coordinator_begins_anew_and_the_former_ones_workers_are_told(store: VariableStore) -> None:
    assert _ask(store, "pull", coordinator="b", have={"v": -1}).kind == "lost"
    assert _ask(store, "begin", coordinator="b").kind == "begun"
    assert _push(store, 9) == "lost"
    with pytest.raises(MismatchError, match="what its coordinator has assigned"):
        _ask(store, "pull", coordinator="b", have={"v": -1})


def test_values_keep_their_types(store: VariableStore) -> None:
    values = {"d": np.array([1e-300]), "i": np.array(2**40), "b": np.array([True]), "h": np.float16(0.5)}
    _ask(store, "assign", values)
    found = _ask(store, "pull", have=dict.fromkeys(values, -1)).arrays
    for name, value in values.items():
        assert found[name].dtype == np.asarray(value).dtype
        np.testing.assert_array_equal(found[name], value)


def test_what_is_too_large_for_one_answer_comes_in_several(
    store: VariableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstep._engine.servers.closures.store.MAX_ARRAYS", 100)
    values = {str(n): np.full(10, n, np.float32) for n in range(5)}
    _ask(store, "assign", values)
    left, found = list(values), dict[str, Any]()
    while left:
        answer = _ask(store, "pull", have=dict.fromkeys(left, -1))
        assert 1 <= len(answer.arrays) <= 2
        found.update(answer.arrays)
        left = answer.facts["left"]
    assert list(found) == list(values)
