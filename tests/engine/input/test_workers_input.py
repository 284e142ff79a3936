"""Datasets on two, three and four worker processes, beside one."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.cluster import Cluster, shared

CASES = "tests.engine.input.input_cases"


plain = shared(0)
pair = shared(2, 2)
three = shared(3)
four = shared(4)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Files of different length; one is empty."""
    directory = tmp_path_factory.mktemp("files")
    names: list[str] = []
    for i, length in enumerate([9, 2, 0, 5, 7]):
        path = directory / f"{i}.txt"
        path.write_text("".join(f"{100 * i + k}\n" for k in range(length)))
        names.append(str(path))
    return names


def sequence(results: list[dict[str, Any]], name: str) -> list[list[Any]]:
    """The global batches that the workers' values for each replica make up."""
    found = [json.loads(str(r[name])) for r in results]
    assert len({len(f) for f in found}) == 1, "the same number of steps"
    return [list(chain.from_iterable(chain.from_iterable(step))) for step in zip(*found, strict=True)]


@pytest.mark.parametrize("rows", [pytest.param(40, marks=pytest.mark.exhaustive), 37])
@pytest.mark.parametrize("eager", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_fit_is_that_of_one_device(plain: Cluster, pair: Cluster, rows: int, eager: bool) -> None:
    (expected,) = plain.run(f"{CASES}:fit", rows=rows, size=8)
    for found in pair.run(f"{CASES}:fit", rows=rows, size=8, eager=eager):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=0, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("count", [5, 2, 1])
@pytest.mark.parametrize("eager", [False, True])
def test_every_example_of_uneven_files_is_seen(pair: Cluster, files: list[str], count: int, eager: bool) -> None:
    chosen = files[-count:]
    total = sum(float(v) for name in chosen for v in Path(name).read_text().split())
    for found in pair.run(f"{CASES}:fit_by_files", files=chosen, size=4, eager=eager):
        assert found["seen"].tolist() == [total, total]


def test_fewer_files_than_workers(three: Cluster, files: list[str]) -> None:
    total = sum(float(v) for v in Path(files[0]).read_text().split())
    for found in three.run(f"{CASES}:fit_by_files", files=files[:1], size=4):
        assert found["seen"].tolist() == [total, total]


def test_what_replicas_get(pair: Cluster, three: Cluster) -> None:
    first, second = (json.loads(str(r["batches"])) for r in pair.run(f"{CASES}:iterate", count=14, size=8))
    assert first == [[[0, 1], [2, 3]], [[8, 9], [10, 11]]]
    assert second == [[[4, 5], [6, 7]], [[12, 13], []]]
    found = [json.loads(str(r["batches"])) for r in three.run(f"{CASES}:iterate", count=4, size=3)]
    assert found == [[[[0]], [[3]]], [[[1]], [[]]], [[[2]], [[]]]]


def test_pipelines_of_different_length(pair: Cluster) -> None:
    first, second = (json.loads(str(r["batches"])) for r in pair.run(f"{CASES}:from_function", count=7))
    assert first == [[[0], [2]], [[4], [6]]]
    assert second == [[[1], [3]], [[5], []]]


@pytest.mark.parametrize("policy", [pytest.param("DATA", marks=pytest.mark.exhaustive), "FILE"])
def test_a_position_of_four_workers(
    four: Cluster, three: Cluster, pair: Cluster, files: list[str], policy: str
) -> None:
    for point in (0, 3):
        results = four.run(f"{CASES}:begin", files=files, policy=policy, point=point)
        positions = {str(r["position"]) for r in results}
        assert len(positions) == 1 or policy == "DATA"
        rest = sequence(results, "rest")
        assert len(rest) > 2
        for others in (pair, three, four):
            again = others.run(f"{CASES}:resume", files=files, policy=policy, position=str(results[0]["position"]))
            assert sequence(again, "rest") == rest


def test_different_datasets_are_found_out(pair: Cluster) -> None:
    for found in pair.run(f"{CASES}:different"):
        assert "Batch(4, False)" in str(found["message"])
        assert "Batch(8, False)" in str(found["message"])


def test_what_cannot_be_read_is_named_on_all_workers(pair: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "numbers.txt"
    path.write_text("1\n2\nthree\n4\n")
    first, second = (str(r["message"]) for r in pair.run(f"{CASES}:broken", path=str(path)))
    for message in (first, second):
        assert "numbers.txt, record 2" in message
