"""Row 14: whoever does not belong to the job connects to its ports.

`python -m tests.faults.fuzz_ports` does the same with 100,000 connections.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import fuzz_ports


@pytest.mark.cluster
@pytest.mark.parametrize("apart", [False, True], ids=["one machine", "several machines with a secret"])
def test_14_strangers_change_no_bit_and_cost_no_memory(apart: bool, tmp_path: Path) -> None:
    env = {"LOCKSTEP_CLUSTER_SECRET": fuzz_ports.SECRET} if apart else {}
    found = fuzz_ports.train(tmp_path, 24, 600, apart=apart, **env)
    assert len(set(found.weights)) == 1
    assert _undisturbed(tmp_path.parent) in found.weights
    assert sum(found.sent.values()) == 600
    assert {ip for ip, _ in found.ports} == {"127.0.0.1"}, "only the interface that the cluster names is bound"
    assert found.growth < 1.1, found.sizes
    for before, after in found.sizes:
        assert after.descriptors <= before.descriptors + fuzz_ports.SPARE
    refused = "A connection from 127.0.0.1 was refused at the address of worker 0"
    assert [text.count(refused) for text in found.errors] == [1, 0], "told once"


_known: list[str] = []


def _undisturbed(directory: Path) -> str:
    """The weights of the same training without strangers."""
    if not _known:
        quiet = directory / "quiet"
        quiet.mkdir()
        _known.extend(fuzz_ports.train(quiet, 24, 0).weights)
    assert len(set(_known)) == 1
    return _known[0]
