"""`multi_worker_test_base` and `multi_process_runner`, as far as one process goes."""

from __future__ import annotations

import json
import os
import unittest
from typing import Any

from tests.conformance.absent import AbsentError
from tests.conformance.helpers.case import TestCase


def pick_unused_port() -> int:
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def create_cluster_spec(
    has_chief: bool = False, num_workers: int = 1, num_ps: int = 0, has_eval: bool = False
) -> dict[str, list[str]]:
    """Returns addresses of the tasks of a cluster."""
    counts = {"chief": int(has_chief), "worker": num_workers, "ps": num_ps, "evaluator": int(has_eval)}
    return {job: [f"localhost:{pick_unused_port()}" for _ in range(n)] for job, n in counts.items() if n}


def _processes(*args: Any, **kwargs: Any) -> Any:
    raise AbsentError("processes", "several processes")


create_in_process_cluster = create_multi_process_cluster = run = get_barrier = manager = _processes


class MultiProcessRunner:
    """Runner of several processes, which a test of one process cannot have."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Creates a runner that cannot run."""

    run = start = join = staticmethod(_processes)


MultiProcessPoolRunner = MultiProcessRunner


class UnexpectedSubprocessExitError(RuntimeError):
    """Error for `except` clauses."""


class SubprocessTimeoutError(RuntimeError):
    """Error for `except` clauses."""


class NotInitializedError(RuntimeError):
    """Error for `except` clauses."""


def test_main() -> None:
    unittest.main()


test_main.__test__ = False  # pyright: ignore[reportFunctionMemberAccess]


def is_oss() -> bool:
    return True


class MultiWorkerTestBase(TestCase):
    """Base of tests with servers of sessions."""

    @classmethod
    def setUpClass(cls, num_workers: int = 2, num_ps: int = 1) -> None:
        super().setUpClass()

    def setUp(self) -> None:
        super().setUp()
        _processes()


class SingleWorkerTestBaseEager(TestCase):
    """Base of tests of one worker."""


class SingleWorkerTestBaseGraph(TestCase):
    """Base of tests of one worker's graph."""

    def setUp(self) -> None:
        super().setUp()
        raise AbsentError("graph", "graph mode")


class IndependentWorkerTestBase(TestCase):
    """Base of tests whose workers are threads with a TF_CONFIG each."""

    def run_multiple_tasks_in_threads(self, *args: Any, **kwargs: Any) -> Any:
        return _processes()


MultiWorkerMultiProcessTest = IndependentWorkerTestBase


def skip_if_grpc_server_cant_be_started(test_obj: Any) -> None:
    """Does nothing: no server is started."""


def _task() -> dict[str, Any]:
    return json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {})


def get_tf_config_task() -> dict[str, Any]:
    return _task()


def get_tf_config_cluster_spec() -> dict[str, Any]:
    return json.loads(os.environ.get("TF_CONFIG", "{}")).get("cluster", {})


def get_task_type() -> str:
    return _task()["type"]


def get_task_index() -> int:
    return _task()["index"]


def is_chief() -> bool:
    return _task().get("type") == "chief" or ("chief" not in get_tf_config_cluster_spec() and get_task_index() == 0)
