"""A short schedule of kills of tasks with parameter servers; `make chaos` runs long ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.servers import Kill, problems, run, schedule

UPDATES = 120


@pytest.mark.alone
def test_each_update_counts_once_whatever_is_killed(tmp_path: Path) -> None:
    kills = [Kill("worker-1", 20, 0.01), Kill("ps-0", 50, 0.02), Kill("worker-0", 90, 0.0)]
    values, done = run(tmp_path / "job", "async", UPDATES, kills)
    assert done == 3 and not problems(values, {}, "async", UPDATES), (tmp_path / "job" / "log").read_text()[-4000:]


def test_a_seed_names_one_schedule() -> None:
    drawn = [schedule(seed, 4, 200) for seed in range(50)]
    assert drawn == [schedule(seed, 4, 200) for seed in range(50)]
    assert {kill.task for kills in drawn for kill in kills} == {"worker-0", "worker-1", "ps-0", "ps-1"}
    assert all(20 <= kill.at < 200 for kills in drawn for kill in kills)
