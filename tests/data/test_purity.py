"""Which map functions are traced is read from their bytecode: what is not understood is never traced."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lockstep.data import Dataset, _purity
from lockstep.data._transforms.map import Map
from lockstep.errors import InputError

# Of instructions that compilers use between their passes, that only class bodies and modules have, or whose effects on
# the stack are not followed.
REFUSED = {
    *("ENTER_EXECUTOR", "EXIT_INIT_CHECK", "INTERPRETER_EXIT", "JUMP", "JUMP_NO_INTERRUPT", "POP_BLOCK", "RESERVED"),
    *("SETUP_ANNOTATIONS", "SETUP_CLEANUP", "SETUP_FINALLY", "SETUP_WITH", "STORE_FAST_MAYBE_NULL", "PRINT_EXPR"),
    *("DELETE_NAME", "IMPORT_STAR", "LOAD_LOCALS", "LOAD_FROM_DICT_OR_DEREF", "LOAD_FROM_DICT_OR_GLOBALS"),
    *("LOAD_SUPER_ATTR", "LOAD_SUPER_METHOD", "LOAD_ZERO_SUPER_ATTR", "LOAD_ZERO_SUPER_METHOD"),
}


def is_in_order(function: Callable[..., Any]) -> bool:
    node = Dataset.range(3).map(function)._plan
    assert isinstance(node, Map)
    return node.program.in_order


def test_every_instruction_of_this_python_is_understood_or_refused() -> None:
    names = {name for name in dis.opmap if not name.startswith("INSTRUMENTED_")}
    if sys.version_info[:2] in _purity.PYTHONS:
        assert names - _purity.KNOWN <= REFUSED
    else:
        assert frozenset() == _purity.KNOWN


@pytest.mark.parametrize("name", sorted({s.opname for s in dis.get_instructions(lambda x: x["a"] + 1)} - {"CACHE"}))
def test_a_function_with_an_instruction_that_is_not_known_is_called_for_each_element(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plain(x: Any) -> Any:
        return {"a": x}

    def changed(x: Any) -> Any:
        return x["a"] + 1

    dataset = Dataset.range(5).map(plain)
    assert not is_in_order(plain)
    monkeypatch.setattr(_purity, "KNOWN", _purity.KNOWN - {name})
    after = dataset.map(changed)
    assert isinstance(after._plan, Map)
    assert after._plan.program.in_order
    assert [int(v) for v in after] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("implementation", "version"), [("cpython", (3, 14)), ("pypy", (3, 11)), ("cpython", (3, 99))])
def test_nothing_is_traced_on_a_python_that_is_not_known(
    implementation: str, version: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_purity, "KNOWN", _purity.known_opcodes(implementation, version))
    assert is_in_order(lambda x: x)
    assert is_in_order(lambda x: x + 1)


@pytest.fixture
def unknown_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python none of whose instructions is understood, as a newer one."""
    monkeypatch.setattr(_purity, "KNOWN", _purity.known_opcodes("cpython", (3, 14)))


def test_datasets_work_on_a_python_that_is_not_known(unknown_python: None) -> None:
    offset = np.int32(1)
    dataset = Dataset.range(5).map(lambda x: {"a": x + offset}).filter(lambda x: x["a"] % 2 == 1)
    assert [int(element["a"]) for element in dataset] == [1, 3, 5]
    assert dataset.element_spec["a"].shape == ()


@pytest.mark.parametrize("depth", [0, 1])
def test_an_iterator_of_the_program_is_not_advanced_on_a_python_that_is_not_known(
    unknown_python: None, depth: int
) -> None:
    class Source:
        def __init__(self) -> None:
            self.values = iter(range(10))

        def take(self, x: Any) -> Any:
            return x + next(self.values)

    source = Source()
    values = source.values
    function = source.take if depth else (lambda x: x + next(values))
    dataset = Dataset.range(3).map(function)
    with pytest.raises(InputError, match="a function of this dataset advances an iterator"):
        _ = dataset.element_spec
    assert [int(v) for v in dataset] == [0, 2, 4]


def test_instructions_that_were_specialised_make_no_difference() -> None:
    def function(x: Any) -> Any:
        return {"a": x * 2 + len(np.shape(x))}["a"]

    before = _purity.has_side_effects(function)
    for i in range(1000):
        function(np.int32(i))
    assert _purity.has_side_effects(function) is before is False
