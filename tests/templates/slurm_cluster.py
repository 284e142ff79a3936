"""A Slurm of one machine: munged, slurmctld and slurmd as processes of the test, in a directory of their own."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.ports import free_ports

START_SECONDS = 180.0
JOB_SECONDS = 500.0


def missing_programs() -> list[str]:
    """The programs of Slurm that are not installed; Debian has them in slurmctld, slurmd, slurm-client and munge."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    wanted = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
    absent = [name for name in wanted if shutil.which(name, path=path) is None]
    # slurmd starts the steps of other users, and refuses to run as anybody but root.
    return absent if os.geteuid() == 0 or absent else ["root"]


class SlurmCluster:
    """Starts the daemons, and ends them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        directory.mkdir(mode=0o755)
        self._munge = Path(f"/tmp/munge-{os.getpid()}")
        self._munge.mkdir(mode=0o755, exist_ok=True)
        key = self._munge / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        # Of two that are free at the same time, or they may be one.
        controller, node = free_ports(2)
        host = socket.gethostname().partition(".")[0]
        self._socket = self._munge / "socket"
        (directory / "state").mkdir()
        (directory / "slurm.conf").write_text(
            "\n".join(
                [
                    "ClusterName=test",
                    f"SlurmctldHost={host}(127.0.0.1)",
                    f"SlurmctldPort={controller}",
                    f"SlurmdPort={node}",
                    f"SlurmUser={getpass.getuser()}",
                    "AuthType=auth/munge",
                    "CredType=cred/munge",
                    f"AuthInfo=socket={self._socket}",
                    f"StateSaveLocation={directory}/state",
                    f"SlurmdSpoolDir={directory}/spool",
                    f"SlurmctldPidFile={directory}/slurmctld.pid",
                    f"SlurmdPidFile={directory}/slurmd.pid",
                    # No cgroups, no accounting: what runs in a container.
                    "ProctrackType=proctrack/linuxproc",
                    "TaskPlugin=task/none",
                    "JobAcctGatherType=jobacct_gather/none",
                    "AccountingStorageType=accounting_storage/none",
                    "SchedulerType=sched/builtin",
                    "SelectType=select/cons_tres",
                    "SelectTypeParameters=CR_Core",
                    "MpiDefault=none",
                    "ReturnToService=2",
                    f"NodeName={host} NodeAddr=127.0.0.1 CPUs={max(2, os.cpu_count() or 1)} RealMemory=4000",
                    f"PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4",
                    "",
                ]
            )
        )
        self._environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith(("SLURM", "TF_CONFIG"))},
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}:/usr/sbin",
            "SLURM_CONF": str(directory / "slurm.conf"),
            "HOME": str(directory),
        }

    def __enter__(self) -> Self:
        munge = [f"--key-file={self._munge}/key", f"--socket={self._socket}", f"--pid-file={self._munge}/pid"]
        logs = [f"--log-file={self._munge}/log", f"--seed-file={self._munge}/seed"]
        self._start("munged", "--foreground", "--force", *munge, *logs)
        self._await(self._socket.exists, "munged")
        self._start("slurmctld", "-D")
        self._start("slurmd", "-D")
        self._await(lambda: "idle" in self._output("sinfo", "-h", "-o", "%t"), "an idle node")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._munge, ignore_errors=True)

    def test_only(self, script: Path) -> None:
        """Has Slurm check the script without running it."""
        done = self._run("sbatch", "--test-only", str(script))
        assert done.returncode == 0, done.stderr

    def run(self, script: Path, directory: Path) -> str:
        """Submits the script, awaits the job's end, and returns its state."""
        done = self._run("sbatch", "--parsable", f"--chdir={directory}", str(script))
        assert done.returncode == 0, done.stderr
        number = done.stdout.strip()
        states: list[str] = []

        def has_ended() -> bool:
            text = self._output("scontrol", "show", "job", number)
            states[:] = [word.partition("=")[2] for word in text.split() if word.startswith("JobState=")]
            return bool(states) and states[0] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")

        self._await(has_ended, f"the end of job {number}", JOB_SECONDS)
        return states[0]

    def logs(self) -> str:
        """What the daemons have said."""
        return "".join(f"--- {path.name}\n{path.read_text()}" for path in sorted(self.directory.glob("*.log")))

    def _start(self, *command: str) -> None:
        with (self.directory / f"{command[0]}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self._environment, cwd=self.directory, capture_output=True, text=True, timeout=60, check=False
        )

    def _output(self, *command: str) -> str:
        return self._run(*command).stdout

    def _await(self, condition: object, what: str, seconds: float = START_SECONDS) -> None:
        assert callable(condition)
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not in {seconds} s: {what}\n{self.logs()}"
            time.sleep(0.1)
