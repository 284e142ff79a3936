"""Workers arrive, as processes: when they are late, wrong, too many, or not alone on the wire."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lockstep._engine.runtime import addresses as addressing
from lockstep._messages.reading import is_pointer
from tests.engine.runtime.jobs import JOIN, Job, Task, addresses, eventually, tf_config
from tests.support.exhaustive import always

# What a process may need beyond the limit that it was given: to start, to answer, to end.
SPARE = 15.0


def assert_all_fail(tasks: list[Task], *told: str) -> None:
    """Every task ends by itself with an error that says `told`."""
    for task in tasks:
        assert task.wait(SPARE) == 1, task.err[-3000:]
        # The line below the message names its page.
        *_, last, pointer = task.err.strip().splitlines()
        assert is_pointer(pointer)
        for text in told:
            assert text in last, task.err[-3000:]


def listeners(port: int) -> set[str]:
    """The addresses of this machine on which something listens at `port`, as the kernel tells them."""
    found: set[str] = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state = line.split()[:4]
            ip, _, number = local.partition(":")
            if int(number, 16) == port and state == "0A":
                words = [bytes.fromhex(ip[i : i + 8])[::-1] for i in range(0, len(ip), 8)]
                found.add(socket.inet_ntop(family, b"".join(words)).removeprefix("::ffff:"))
    return found


def await_listener(address: str) -> None:
    """Waits until the first task listens."""
    port = addressing.split(address)[1]
    eventually(lambda: listeners(port), lambda: f"somebody listens at {address}")


def test_a_worker_that_never_arrives(job: Job) -> None:
    workers = addresses(3)
    tasks = [job.join(workers, i, LOCKSTEP_JOIN_TIMEOUT="2") for i in (0, 1)]
    assert_all_fail(
        tasks,
        "MissingTaskError: Every task must arrive within 2 s",
        f"Arrived: worker 0 ({workers[0]}), worker 1 ({workers[1]}). Missing: worker 2 ({workers[2]}).",
    )


def test_a_chief_that_never_arrives(job: Job) -> None:
    workers = addresses(3)
    tasks = [job.join(workers, i, LOCKSTEP_JOIN_TIMEOUT="2") for i in (1, 2)]
    assert_all_fail(tasks, "MissingTaskError: Every task must arrive within 2 s", f"Missing: worker 0 ({workers[0]})")


def test_the_chief_s_port_is_in_use(job: Job) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        task = job.join([address, *addresses(1)], 0)
        assert_all_fail(
            [task],
            f"AddressError: The first task must be able to listen on its own address. worker 0 cannot "
            f"listen on {address!r} (127.0.0.1): Address already in use",
        )


def test_a_host_that_nobody_knows(job: Job) -> None:
    began = time.monotonic()
    workers = ["no-such-host.invalid:2222", *addresses(1)]
    tasks = [job.join(workers, i) for i in (0, 1)]
    assert_all_fail(tasks, "AddressError", "'no-such-host.invalid:2222', the address of worker 0, does not: ")
    assert time.monotonic() - began < 5 + SPARE


# Names as the DNS or /etc/hosts of a task's machine have them: NAMES, so many seconds after they were first looked up.
NAMED = """
    import json, os, socket, time
    known, real, first = json.loads(os.environ["NAMES"]), socket.getaddrinfo, []
    def look_up(host, port, *args, **kwargs):
        if host not in known:
            return real(host, port, *args, **kwargs)
        first.append(time.monotonic())
        if not known[host] or first[-1] < first[0] + float(os.environ.get("APPEARS", 0)):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [found for ip in known[host] for found in real(ip, port, *args, **kwargs)]
    socket.getaddrinfo = look_up
"""


def named(job: Job, workers: list[str], index: int, names: dict[str, list[str]], **env: str) -> Task:
    """Starts a worker that joins, on a machine that knows these names."""
    return job.start(NAMED + JOIN, workers, index, NAMES=json.dumps(names), **env)


def ports(count: int) -> list[int]:
    return [addressing.split(address)[1] for address in addresses(count)]


def test_a_name_that_appears_after_the_tasks_have_started(job: Job) -> None:
    """A pod may start before its record in the DNS exists, and wait for it as long as for a task."""
    workers = [f"pod-{i}:{port}" for i, port in enumerate(ports(2))]
    names = {f"pod-{i}": ["127.0.0.1"] for i in range(2)}
    tasks = [named(job, workers, i, names, APPEARS="11", LOCKSTEP_JOIN_TIMEOUT="60") for i in range(2)]
    assert [task.wait() for task in tasks] == [0, 0], tasks[0].err + tasks[1].err
    for task in tasks:
        assert task.err.count(f"'{workers[0]}', the address of worker 0, does not resolve yet: ") == 1, task.err


def test_a_name_with_addresses_that_lead_elsewhere(job: Job) -> None:
    """On the first task one is not its own; where another looks the first one up, nobody listens, or something else."""
    first, second = ports(2)
    workers = [f"chief:{first}", f"other:{second}"]
    others = {"other": ["127.0.0.1"]}
    with (
        socket.create_server(("127.0.0.3", first)) as elsewhere,
        ThreadPoolExecutor() as threads,
        contextlib.ExitStack() as ending,
    ):
        ending.callback(elsewhere.shutdown, socket.SHUT_RDWR)

        def answer() -> None:
            with contextlib.suppress(OSError):  # Closed at the end.
                while True:
                    with elsewhere.accept()[0] as sock:
                        sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threads.submit(answer)
        chief = named(job, workers, 0, {"chief": ["203.0.113.7", "127.0.0.1"], **others})
        other = named(job, workers, 1, {"chief": ["::1", "127.0.0.3", "127.0.0.1"], **others})
        assert [task.wait() for task in (chief, other)] == [0, 0], chief.err + other.err


def test_each_task_may_reach_the_first_at_another_address(job: Job) -> None:
    first, *more = ports(3)
    workers = [f"chief:{first}", *(f"127.0.0.1:{port}" for port in more)]
    seen = [["127.0.0.2", "::1", "127.0.0.1"], ["::1"], ["127.0.0.2"]]
    tasks = [named(job, workers, i, {"chief": ips}) for i, ips in enumerate(seen)]
    assert [task.wait() for task in tasks] == [0, 0, 0], "".join(task.err for task in tasks)


def test_a_name_that_is_on_the_loopback_interface_of_the_first_task(job: Job) -> None:
    """Debian's /etc/hosts has the machine's own name at 127.0.1.1."""
    first, second = ports(2)
    workers = [f"node1:{first}", f"node2:{second}"]
    limit = {"LOCKSTEP_JOIN_TIMEOUT": "2"}
    chief = named(job, workers, 0, {"node1": ["127.0.1.1"], "node2": []}, **limit)
    other = named(job, workers, 1, {"node1": ["127.0.0.1", "127.0.0.2"], "node2": ["127.0.1.1"]}, **limit)
    assert_all_fail([chief, other], "MissingTaskError: Every task must arrive within 2 s", "loopback interface")
    assert "'node1:" in chief.err and "is 127.0.1.1 here, on the loopback interface." in chief.err, "at once"
    assert "(127.0.0.1: Connection refused; 127.0.0.2: Connection refused)" in other.err


def test_the_cluster_is_the_same_everywhere(job: Job) -> None:
    workers = addresses(2)
    odd = [workers[0], *addresses(1)]
    tasks = [job.join(workers, 0), job.join(odd, 1)]
    assert_all_fail(
        tasks,
        "MismatchError: All tasks must see the same cluster.",
        f'worker 1: worker[1] is "{odd[1]}", but "{workers[1]}" on worker 0',
    )


def test_the_number_of_workers_is_the_same_everywhere(job: Job) -> None:
    """One of three sees two: the others tell it, and end as well."""
    workers = addresses(3)
    tasks = [job.join(workers, 0), job.join(workers[:2], 1), job.join(workers, 2)]
    assert_all_fail(tasks, "MismatchError: All tasks must see the same cluster.", "worker 1: worker is [")


def test_a_worker_too_many(job: Job) -> None:
    workers = addresses(3)
    chief = job.join(workers[:2], 0)
    await_listener(workers[0])
    assert_all_fail([job.join(workers, 2), chief], "MismatchError: All tasks must see the same cluster.", "worker 2: ")


def test_the_versions_are_the_same_everywhere(job: Job) -> None:
    other = """
        from lockstep._engine.runtime import fingerprint
        mine = fingerprint.installed_versions()
        fingerprint.installed_versions = lambda: {**mine, "keras": "3.0.1"}
        import lockstep as ls
        ls.distribute.MultiWorkerMirroredStrategy()
    """
    workers = addresses(2)
    tasks = [job.join(workers, 0), job.start(other, workers, 1)]
    assert_all_fail(tasks, 'All tasks must see the same versions. worker 1: keras is "3.0.1", but "')


def test_the_options_are_the_same_everywhere(job: Job) -> None:
    other = """
        import lockstep as ls
        ls.distribute.MultiWorkerMirroredStrategy(batch_statistics="replica")
    """
    workers = addresses(2)
    tasks = [job.join(workers, 0), job.start(other, workers, 1)]
    told = 'All tasks must have the same strategy options. worker 1: batch_statistics is "replica", but "global" on'
    assert_all_fail(tasks, told)


def test_a_task_started_twice_while_the_others_are_awaited(job: Job) -> None:
    workers = addresses(3)
    chief, *twins = job.join(workers, 0), job.join(workers, 1), job.join(workers, 1)
    eventually(lambda: any(t.process.poll() is not None for t in twins), lambda: "one of the two is refused")
    refused = next(t for t in twins if t.process.poll() is not None)
    assert_all_fail([refused], f"JoinError: Each task of a cluster runs once. worker 1 ({workers[1]}) has already")
    others = [t for t in (chief, *twins, job.join(workers, 2)) if t is not refused]
    assert [t.wait() for t in others] == [0, 0, 0]
    assert all("joined 3" in t.out for t in others)


WAITING = """
    import lockstep as ls
    strategy = ls.distribute.MultiWorkerMirroredStrategy()
    print("joined", flush=True)
    input()
    with strategy.scope():
        import keras
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(keras.ops.ones((4, 2)), keras.ops.ones((4, 1)), verbose=0)
    print("trained", flush=True)
"""


def test_strangers_and_twins_do_not_disturb_a_running_cluster(job: Job) -> None:
    """On one pair: who listens where; the same tasks once more; bytes from strangers; and then it trains."""
    workers = addresses(2)
    port = addressing.split(workers[0])[1]
    chief = job.start(WAITING, workers, 0)
    await_listener(workers[0])
    assert listeners(port) == {"127.0.0.1"}
    with contextlib.ExitStack() as held:
        for data in (
            b"",
            b"GET / HTTP/1.1\r\n\r\n",
            b'{"lockstep": 1, "process": true}\n',
            b'{"process": 1}\n',
            b"\xff" * 300_000,
        ):
            sock = held.enter_context(socket.create_connection(("127.0.0.1", port)))
            with contextlib.suppress(OSError):
                sock.sendall(data)
        other = job.start(WAITING, workers, 1)
        for task in (chief, other):
            task.await_line("joined")
    assert listeners(port) == {"127.0.0.1"}
    twins = [job.join(workers, i, LOCKSTEP_JOIN_TIMEOUT="3") for i in (0, 1)]
    assert_all_fail(twins[:1], "AddressError", "Address already in use")
    assert_all_fail(twins[1:], "JoinError: Each task of a cluster runs once. The cluster runs already, with another")
    for task in (chief, other):
        task.tell("go")
    assert [t.wait() for t in (chief, other)] == [0, 0], chief.err + other.err
    assert "trained" in chief.out and "trained" in other.out


# As if each process were on a machine of its own.
APART = """
    import os
    from lockstep._engine.runtime import unix_sockets
    unix_sockets._boot = lambda: os.environ["TF_CONFIG"].encode()
"""
SECRET = "of this test, and long enough"


def service_address(task: Task) -> str:
    """Where the task says that its jax looks for the coordination service."""
    return next(line.removeprefix("service ") for line in task.out.splitlines() if line.startswith("service "))


TELLING = WAITING.replace(
    'print("joined", flush=True)',
    'import jax; print("service", jax._src.distributed.global_state.coordinator_address); print("joined", flush=True)',
)


def test_on_several_machines_the_service_is_for_those_who_know_the_secret(
    job: Job, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """It listens where nobody but this user can enter; the way to it leads past the first task's gate."""
    workers = addresses(2)
    places = tmp_path_factory.mktemp("p")
    env = {"LOCKSTEP_CLUSTER_SECRET": SECRET, "TMPDIR": str(places)}
    tasks = [job.start(APART + TELLING, workers, i, **env) for i in range(2)]
    for task in tasks:
        task.await_line("joined")
        assert service_address(task).startswith("unix:/proc/self/fd/")
    assert list(places.iterdir()) == [], "all are connected, so nobody needs the doors"
    odd = [job.join(workers, 1), job.join(workers, 1, LOCKSTEP_CLUSTER_SECRET=SECRET + "!")]
    assert_all_fail(
        odd[:1], "JoinError: All tasks of a cluster must have the same secret, or none.", "this task has none"
    )
    assert_all_fail(odd[1:], "does not know the one that this task has")
    for task in tasks:
        task.tell("go")
    assert [t.wait() for t in tasks] == [0, 0], tasks[0].err + tasks[1].err
    assert tasks[0].err.count("A connection from 127.0.0.1 was refused at the address of worker 0") == 1


def test_without_a_secret_tasks_of_several_machines_reach_the_service_in_the_same_way(job: Job) -> None:
    workers = addresses(2)
    tasks = [job.start(APART + TELLING, workers, i) for i in range(2)]
    for task in tasks:
        task.await_line("joined")
        assert service_address(task).startswith("unix:/proc/self/fd/")
    assert listeners(addressing.split(workers[0])[1]) == {"127.0.0.1"}
    for task in tasks:
        task.tell("go")
    assert [t.wait() for t in tasks] == [0, 0], tasks[0].err + tasks[1].err


@pytest.mark.parametrize("name", always(["a%41b", "a#b", "a?b", "ä ß", "x" * 200], {"a%41b", "x" * 200}.__contains__))
def test_the_temporary_directory_may_have_any_name(name: str, job: Job, tmp_path: Path) -> None:
    """Also where its name means something in a URI, or is too long for the address of a socket."""
    odd = tmp_path / name
    odd.mkdir()
    workers = addresses(2)
    near = [job.start(JOIN, workers, i, TMPDIR=str(odd)) for i in range(2)]
    workers = addresses(2)
    apart = [job.start(APART + JOIN, workers, i, TMPDIR=str(odd)) for i in range(2)]
    assert [t.wait() for t in (*near, *apart)] == [0] * 4, "".join(t.err for t in (*near, *apart))
    assert list(odd.iterdir()) == []


def test_arrival_survives_more_strangers_than_there_are_descriptors(job: Job) -> None:
    few = """
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
        import lockstep as ls
        ls.distribute.MultiWorkerMirroredStrategy()
    """
    workers = addresses(2)
    chief = job.start(few, workers, 0)
    await_listener(workers[0])
    with contextlib.ExitStack() as held:
        for _ in range(300):
            held.enter_context(socket.create_connection(addressing.split(workers[0])))
        assert [t.wait() for t in (job.join(workers, 1), chief)] == [0, 0], chief.err


def test_an_ipv6_cluster_behind_a_proxy(job: Job) -> None:
    """The address is bound as it is written, and no proxy comes between the tasks."""
    workers = [a.replace("127.0.0.1", "[::1]") for a in addresses(2)]
    nowhere = "http://127.0.0.1:9"
    env = {
        "http_proxy": nowhere,
        "https_proxy": nowhere,
        "HTTP_PROXY": nowhere,
        "HTTPS_PROXY": nowhere,
        "grpc_proxy": nowhere,
    }
    tasks = [job.start(WAITING, workers, i, **env) for i in range(2)]
    for task in tasks:
        task.await_line("joined")
    assert listeners(addressing.split(workers[0])[1]) == {"::1"}
    for task in tasks:
        task.tell("go")
    assert [t.wait() for t in tasks] == [0, 0], tasks[1].err


def test_a_chief_job(job: Job) -> None:
    """The chief comes before the workers, and a `ps` and an evaluator of the cluster take no part."""
    chief, worker, ps, evaluator = addresses(4)
    cluster = {"worker": [worker], "chief": [chief], "ps": [ps], "evaluator": [evaluator]}
    program = """
        import lockstep as ls
        strategy = ls.distribute.MultiWorkerMirroredStrategy()
        print(strategy._replicas.runtime.tasks, strategy._replicas.runtime.process, strategy.num_replicas_in_sync)
    """
    tasks = {}
    for kind in ("chief", "worker", "evaluator"):
        config = json.dumps({"cluster": cluster, "task": {"type": kind, "index": 0}})
        tasks[kind] = job.start(program, TF_CONFIG=config)
    assert {kind: task.wait() for kind, task in tasks.items()} == dict.fromkeys(tasks, 0)
    assert "('chief 0', 'worker 0') 0 2" in tasks["chief"].out.splitlines()
    assert "('chief 0', 'worker 0') 1 2" in tasks["worker"].out.splitlines()
    assert tasks["evaluator"].out == "('this process',) 0 1\n"


def test_a_process_joins_once(job: Job) -> None:
    twice = """
        import lockstep as ls
        first = ls.distribute.MultiWorkerMirroredStrategy()
        ls.distribute.MirroredStrategy()  # Strategies of this process alone may be many.
        ls.distribute.OneDeviceStrategy("cpu:0")
        try:
            ls.distribute.MultiWorkerMirroredStrategy()
        except ls.errors.StartupOrderError as error:
            print(error)
    """
    tasks = job.start_all(twice, 2)
    for task in tasks:
        assert task.wait() == 0, task.err
        first, second = re.findall(r"\S+\.py:\d+ \(`[^`]*`\)", task.out)
        assert first.endswith(":4 (`first = ls.distribute.MultiWorkerMirroredStrategy()`)")
        assert second.endswith(":8 (`ls.distribute.MultiWorkerMirroredStrategy()`)")


def test_the_order_is_explained_to_users_whose_directory_is_named_lockstep(job: Job, tmp_path: Path) -> None:
    inside = Job(tmp_path / "lockstep" / "src")
    inside.directory.mkdir(parents=True)
    job.tasks = inside.tasks
    task = inside.start(
        """
        import lockstep as ls
        import jax.numpy
        jax.numpy.ones(2)
        strategy = ls.distribute.MultiWorkerMirroredStrategy()
        """,
        addresses(2),
    )
    assert task.wait() == 1
    program = inside.directory / "task-0.py"
    assert f"Move {program}:6 (`strategy = ls.distribute.MultiWorkerMirroredStrategy()`) up, above" in task.err
    assert "StartupOrderError: Collective ops must be configured at program startup" in task.err


def test_a_cluster_of_one_needs_no_address(job: Job) -> None:
    """Nor does it matter what JAX has done before."""
    alone = """
        import lockstep as ls
        import jax
        jax.devices()
        print(ls.distribute.MultiWorkerMirroredStrategy().num_replicas_in_sync)
    """
    task = job.start(alone, TF_CONFIG=tf_config(["no-such-host.invalid:1"], 0))
    assert task.wait() == 0, task.err
    assert task.out == "1\n"
