"""Bombards every port of a job of two workers while it trains; the job must not feel it.

    python -m tests.faults.fuzz_ports --connections 100000 [--secret] [--apart]

It trains the same model twice: undisturbed, and while strangers connect to whatever its processes listen at. The final
weights must be the same bits, and the processes must have neither more memory nor more descriptors than before. With
`--apart` each worker takes itself to be on a machine of its own, so that they speak through the network.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from lockstep._engine.runtime import authentication
from tests.support.cluster import environment, tf_configs

SECRET = "of a cluster that is fuzzed"
PATIENCE = 300.0
# Descriptors that a process may have more than before.
SPARE = 2
_HELD = 64
_PROGRAM = """
from __future__ import annotations
import os, sys
if os.environ.get("FUZZ_APART"):
    from lockstep._engine.runtime import unix_sockets
    unix_sockets._boot = lambda: os.environ["TF_CONFIG"].encode()
import hashlib
import numpy as np
import lockstep as ls
strategy = ls.distribute.MultiWorkerMirroredStrategy()
import keras
keras.utils.set_random_seed(1)
with strategy.scope():
    layers = [keras.Input((64,)), keras.layers.Dense(64, "tanh"), keras.layers.Dropout(0.1), keras.layers.Dense(4)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse")
random = np.random.default_rng(0)
x, y = random.normal(size=(2048, 64)).astype("float32"), random.normal(size=(2048, 4)).astype("float32")
epochs = int(sys.argv[1])

class Waits(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 0:
            print("training", flush=True)
        if epoch == epochs - 2:
            print("waiting", flush=True)
            input()

model.fit(x, y, 32, epochs=epochs, verbose=0, callbacks=[Waits()])
print(hashlib.sha256(b"".join(w.tobytes() for w in model.get_weights())).hexdigest(), flush=True)
"""


@dataclass(frozen=True)
class Size:
    """What a process takes: resident memory in KiB, and descriptors."""

    memory: int
    descriptors: int


@dataclass
class Outcome:
    """What came of it.

    Attributes:
        weights: Of each worker, as a digest.
        ports: Where the workers listened.
        sent: How many connections of each kind were made, and how many were not let in.
        sizes: Of each worker before and after.
        errors: What the workers have printed to standard error.
        seconds: How long the strangers were at it.
    """

    weights: list[str]
    ports: list[tuple[str, int]] = field(default_factory=list)
    sent: Counter[str] = field(default_factory=Counter)
    sizes: list[tuple[Size, Size]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def growth(self) -> float:
        """By which factor the memory of the worker that has grown most has."""
        return max(after.memory / before.memory for before, after in self.sizes)


class Job:
    """Two workers, as processes."""

    def __init__(self, directory: Path, epochs: int, apart: bool, **env: str) -> None:
        program = directory / "program.py"
        program.write_text(_PROGRAM)
        more = {"FUZZ_APART": "1"} if apart else {}
        self._logs = [directory / f"{i}.log" for i in range(2)]
        self.processes = [
            _started([str(program), str(epochs)], environment(TF_CONFIG=config, **env, **more), log)
            for config, log in zip(tf_configs(2), self._logs, strict=True)
        ]

    def await_word(self, word: str) -> None:
        """Waits until all have printed a line."""
        for process in self.processes:
            assert process.stdout is not None
            for line in process.stdout:
                if line.strip() == word:
                    break
            else:
                raise AssertionError(f"ended before {word!r}:\n" + "\n".join(self.errors()))

    def finish(self) -> list[str]:
        """Lets all go on to their ends; returns their last lines."""
        told: list[str] = []
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in self.processes:
            out, _ = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, self.errors()
            told.append(out.strip().splitlines()[-1])
        return told

    def errors(self) -> list[str]:
        """What they have printed to standard error."""
        return [log.read_text(errors="replace")[-3000:] for log in self._logs]

    def sizes(self) -> list[Size]:
        """What each takes."""
        return [_size(process.pid) for process in self.processes]

    def ports(self) -> list[tuple[str, int]]:
        """Where they listen."""
        return sorted({place for process in self.processes for place in listening(process.pid)})

    def close(self) -> None:
        """Ends what is left."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.communicate()


def _started(arguments: list[str], env: dict[str, str], log: Path) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    with log.open("wb") as stderr:
        return subprocess.Popen(
            [sys.executable, *arguments], env=env, stdin=pipe, stdout=pipe, stderr=stderr, text=True
        )


def listening(pid: int) -> set[tuple[str, int]]:
    """Returns the addresses of the network at which a process listens, as the kernel tells them."""
    own: set[str] = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            own.add(os.readlink(descriptor))
    found: set[tuple[str, int]] = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            ip, _, port = fields[1].partition(":")
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                words = [bytes.fromhex(ip[i : i + 8])[::-1] for i in range(0, len(ip), 8)]
                found.add((socket.inet_ntop(family, b"".join(words)).removeprefix("::ffff:"), int(port, 16)))
    return found


def _size(pid: int) -> Size:
    status = Path(f"/proc/{pid}/status").read_text()
    memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    return Size(memory, len(list(Path(f"/proc/{pid}/fd").iterdir())))


def payload(random: random.Random) -> tuple[str, bytes]:
    """Returns bytes of some kind, and its name."""
    nonce = random.randbytes(16).hex()
    hello = {"process": 1, "generation": 0, "task": "worker 1", "cluster": {"worker": ["a:1", "b:2"]}, "versions": {}}
    sealed = {"says": json.dumps(hello), "proof": random.randbytes(32).hex()}
    kinds = {
        "nothing": b"",
        "garbage": random.randbytes(random.randrange(1, 2000)),
        "eight bytes": random.randrange(64).to_bytes(8, "little"),
        "zeros": bytes(random.randrange(1, 64)),
        "HTTP": b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + random.randbytes(random.randrange(100)),
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + random.randbytes(500),
        "SSH": b"SSH-2.0-OpenSSH_9.9\r\n",
        "pickle": b"cos\nsystem\n(S'touch /tmp/pwned'\ntR.",
        "greeting": authentication.nonce_line(nonce),
        "half a greeting": authentication.nonce_line(nonce)[: random.randrange(1, 40)],
        "long line": b"x" * random.randrange(500, 4000),
        "deep JSON": b"[" * random.randrange(100, 400) + b"\n",
        "wrong types": authentication.line({"lockstep": [2], "nonce": {"a": None}}),
        "hello at once": authentication.nonce_line(nonce) + authentication.line(sealed),
        "hello": authentication.line(sealed),
        "wrong hello": authentication.line({"says": json.dumps({**hello, "process": "1"}), "proof": ""}),
        "of another cluster": authentication.line({"says": json.dumps({**hello, "process": 99}), "proof": ""}),
    }
    name = random.choice(sorted(kinds))
    return name, kinds[name]


def attack(places: list[tuple[str, int]], connections: int, seed: int, threads: int = 2) -> Counter[str]:
    """Makes so many connections; some hold on, some hang up at once, some answer as a task would."""
    sent: Counter[str] = Counter()
    lock = threading.Lock()

    def work(number: int) -> None:
        rng = random.Random(f"{seed} {number}")
        held: list[socket.socket] = []
        mine: Counter[str] = Counter()
        for _ in range(connections // threads):
            kind = _connect(rng.choice(places), rng, held)
            mine[kind] += 1
        for sock in held:
            sock.close()
        with lock:
            sent.update(mine)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sent


def _connect(place: tuple[str, int], rng: random.Random, held: list[socket.socket]) -> str:
    kind, data = payload(rng)
    sock = socket.socket(socket.AF_INET6 if ":" in place[0] else socket.AF_INET)
    # Where packets are dropped, a stranger need not wait: its attempt has been made.
    sock.settimeout(0.002)
    try:
        sock.connect(place)
    except OSError:
        sock.close()
        return "not let in"
    with contextlib.suppress(OSError):
        if kind in ("hello", "wrong hello", "of another cluster"):
            sock.settimeout(1.0)
            sock.sendall(authentication.nonce_line("0" * 32))
            sock.recv(1000)
            # Right where there is no secret.
            sock.sendall(authentication.line({"says": "{}", "proof": ""}))
            sock.recv(1000)
        sock.sendall(data)
    if rng.random() < 0.05:
        held.append(sock)
        if len(held) > _HELD:
            held.pop(0).close()
    else:
        sock.close()
    return kind


def train(directory: Path, epochs: int, connections: int, seed: int = 0, apart: bool = False, **env: str) -> Outcome:
    """Trains while so many strangers connect, or none."""
    job = Job(directory, epochs, apart, **env)
    try:
        job.await_word("training")
        before, ports = job.sizes(), job.ports()
        assert ports, "the first task at least stays at its address"
        start = time.monotonic()
        sent = attack(ports, connections, seed) if connections else Counter[str]()
        seconds = time.monotonic() - start
        job.await_word("waiting")
        # Connections that were made may still wait to be refused.
        until = time.monotonic() + PATIENCE
        while any(s.descriptors > b.descriptors + SPARE for b, s in zip(before, job.sizes(), strict=True)):
            if time.monotonic() > until:
                break
            time.sleep(0.05)
        sizes = list(zip(before, job.sizes(), strict=True))
        return Outcome(job.finish(), ports, sent, sizes, job.errors(), seconds)
    finally:
        job.close()


def main() -> None:
    """Prints what came of it as JSON; ends with 1 if the job felt it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=100_000)
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--secret", action="store_true")
    parser.add_argument("--apart", action="store_true")
    given = parser.parse_args()
    env = {"LOCKSTEP_CLUSTER_SECRET": SECRET} if given.secret else {}
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        quiet = train(Path(one), given.epochs, 0, apart=given.apart, **env)
        found = train(Path(other), given.epochs, given.connections, given.seed, given.apart, **env)
    told = {
        "connections": sum(found.sent.values()),
        "kinds": found.sent,
        "ports": found.ports,
        "seconds": round(found.seconds, 1),
        "memory, times": round(found.growth, 4),
        "memory undisturbed, times": round(quiet.growth, 4),
        "descriptors": [[before.descriptors, after.descriptors] for before, after in found.sizes],
        "same weights": len({*quiet.weights, *found.weights}) == 1,
    }
    print(json.dumps(told, indent=1))
    sys.exit(not told["same weights"] or found.growth > max(1.05, quiet.growth + 0.05))


if __name__ == "__main__":
    main()
