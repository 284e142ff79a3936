"""Template for Slurm: a batch script, whose tasks find their cluster in Slurm's own variables."""

from __future__ import annotations

from lockstep._templates.job import Job
from lockstep._templates.text import dedent, shell

# `SlurmClusterResolver`'s own: with it there is no TF_CONFIG to write.
RESOLVER_PORT = 8888
# Prints the TF_CONFIG of a task of several roles; the resolver numbers them in alphabetical order.
_TF_CONFIG_PROGRAM = """\
import json
from lockstep.cluster_resolver import SlurmClusterResolver
r = SlurmClusterResolver(jobs={jobs}, port_base={port}, auto_set_gpu=False)
print(json.dumps({{"cluster": r.cluster_spec().as_dict(), "task": {{"type": r.task_type, "index": r.task_id}}}}))"""


def slurm(job: Job) -> str:
    """Returns the script for `sbatch`."""
    return "\n".join(part for part in (_options(job), _environment(job), _start(job)) if part)


def _options(job: Job) -> str:
    counts = ", ".join(f"{count} {role}" for role, count in job.roles.items())
    # By task, not by node: Slurm then shows each task its own GPUs, and lockstep leaves them as they are.
    gpus = f"#SBATCH --gpus-per-task={job.gpus}\n" if job.gpus else ""
    return (
        dedent(f"""
            #!/bin/bash
            # {job.name}: sbatch {job.file}
            #
            # {counts}: one task each, on one node or on many. Where no node has the processors and the memory
            # of a task, the job stays PENDING (squeue shows PartitionConfig or Resources): ask for less.
            #SBATCH --job-name={job.name}
            #SBATCH --ntasks={sum(job.roles.values())}
            #SBATCH --cpus-per-task={job.cpus}
            #SBATCH --mem-per-cpu={max(1, 1024 * job.memory // job.cpus)}M
        """)
        + gpus
        + dedent(f"""
            #SBATCH --time=24:00:00
            # #SBATCH --partition=gpu
            #SBATCH --output=%x-%j.log
            # Started again, the job goes on in the same log.
            #SBATCH --open-mode=append
            #SBATCH --requeue
            # So many seconds before the time limit every task is asked to end, and saves.
            #SBATCH --signal=TERM@{job.kill_after}
        """)
    )


def _environment(job: Job) -> str:
    return dedent(f"""
        set -uo pipefail

        # Before the first time: the environment that has lockstep, and a directory that all nodes share.
        # source ~/venv/bin/activate
        export SHARED={shell([job.shared])}

        # The secret of the tasks, in a file that only this user can read: others on the cluster reach the same ports.
        export LOCKSTEP_CLUSTER_SECRET_FILE="$HOME/.lockstep-secret"
        [ -s "$LOCKSTEP_CLUSTER_SECRET_FILE" ] ||
            (umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n' > "$LOCKSTEP_CLUSTER_SECRET_FILE")
        # Seconds to be at the common last step and to save there.
        export LOCKSTEP_GRACE={job.grace}
        # A process of an earlier start of this job cannot join, and what other jobs have left does not count.
        export LOCKSTEP_GENERATION="${{SLURM_RESTART_COUNT:-0}}"
        export LOCKSTEP_RUN_ID="$SLURM_JOB_ID"
        export PYTHONUNBUFFERED=1
    """)


def _start(job: Job) -> str:
    return (
        _step(job)
        + "code=$?\n\n"
        + dedent(f"""
            # 143: it was asked to end, by the time limit or a preemption, and has saved. Anything else is a failure,
            # after which all start again {job.max_restarts} times at most. Both go on from the newest checkpoint.
            # Slurm waits two minutes before each new start: squeue shows PENDING (BeginTime) until then.
            restarts_left=$(({job.max_restarts} - LOCKSTEP_GENERATION))
            if [ "$code" -eq 143 ] || {{ [ "$code" -ne 0 ] && [ "$restarts_left" -gt 0 ]; }}; then
                scontrol requeue "$SLURM_JOB_ID"
            fi
            exit "$code"
        """)
    )


def _step(job: Job) -> str:
    if list(job.roles) == ["worker"] and job.port == RESOLVER_PORT:
        return dedent(f"""
            # Each task reads SLURM_PROCID, the node list and the tasks per node: there is no TF_CONFIG to write, and
            # ports begin at {RESOLVER_PORT}. Ranks must fill one node after the other, as the resolver numbers them.
            srun --distribution=block --kill-on-bad-exit=0 {shell(job.command)}
        """)
    # In an environment variable: one level of quoting less in the command of each task.
    program = _TF_CONFIG_PROGRAM.format(jobs=_alphabetical(job), port=job.port)
    # `exec`, so that Slurm's SIGTERM reaches Python and not a shell that waits for it.
    task = f'TF_CONFIG=$(python -c "$CLUSTER") || exit\nexport TF_CONFIG\nexec {shell(job.command)}'
    return (
        "# Makes the TF_CONFIG of a task from its rank: "
        + ", ".join(f"{count} {role}" for role, count in _alphabetical(job).items())
        + ", in this order.\n"
        + f"export CLUSTER={shell([program])}\n"
        + "# Ranks must fill one node after the other, as lockstep's resolver numbers them.\n"
        + f"srun --distribution=block --kill-on-bad-exit=0 bash -c {shell([task])}\n"
    )


def _alphabetical(job: Job) -> dict[str, int]:
    return dict(sorted(job.roles.items()))
