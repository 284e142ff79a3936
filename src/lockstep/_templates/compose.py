"""Template for Docker Compose: a service for each task, on one machine."""

from __future__ import annotations

from lockstep._templates.job import Job
from lockstep._templates.text import dedent, indent, list_strings, literal, quote


def compose(job: Job) -> str:
    """Returns compose.yaml."""
    services = "\n".join(_service(job, role, index) for role, count in job.roles.items() for index in range(count))
    return dedent(f"""
        # {job.name}: each task is a container, all on this machine.
        #
        #   umask 077; openssl rand -hex 32 > lockstep-secret     # once: the secret that the tasks share
        #   docker compose -f {job.file} up                       # Ctrl-C asks all to end: they save, and exit with 143
        #   docker compose -f {job.file} down                     # --volumes removes the checkpoints too
        name: {job.name}

        x-task: &task
          image: {quote(job.image)}
          command: {list_strings([word.replace("$", "$$") for word in job.command])}
          # An init, since Linux ignores SIGTERM for process 1 where no handler is installed.
          init: true
          # From SIGTERM to SIGKILL: the step under way, one checkpoint (LOCKSTEP_GRACE), and some seconds.
          stop_grace_period: {job.kill_after}s
          # When a task fails all end, each is started again, and they go on from the newest checkpoint.
          restart: on-failure:{job.max_restarts}
          volumes: ["shared:{job.shared}"]
          secrets: [cluster]
          # NCCL and data loaders need more than a container's 64 MiB.
          shm_size: 2gb

        x-environment: &environment
          # Who does not know it cannot join, nor reach the coordination service.
          LOCKSTEP_CLUSTER_SECRET_FILE: /run/secrets/cluster
          LOCKSTEP_GRACE: "{job.grace}"
          PYTHONUNBUFFERED: "1"

        services:
          {indent(services, 10)}

        volumes:
          # {job.shared}, for checkpoints.
          shared: {{}}

        secrets:
          cluster: {{file: ./lockstep-secret}}
    """)


def _service(job: Job, role: str, index: int) -> str:
    # Compose's names of containers in their network are those of the services.
    # Each service is written out, without `deploy.replicas`: replicas do not know their number.
    config = job.tf_config("{role}-{index}", f'{{"type": "{role}", "index": {index}}}')
    return dedent(f"""
        {role}-{index}:
          <<: *task
          environment:
            <<: *environment
            TF_CONFIG: {literal(config)}
          {indent(_resources(job, role, index), 10)}
    """)


def _resources(job: Job, role: str, index: int) -> str:
    gpus = job.gpus_of(role)
    # Limits of the container, since all containers share one machine.
    if not gpus:
        return f'cpus: "{job.cpus}"\nmem_limit: {job.memory}g'
    # Each task has its own GPUs of the machine, in the order in which the services stand.
    first = gpus * (sum(list(job.roles.values())[: list(job.roles).index(role)]) - _without_gpus(job, role) + index)
    ids = list_strings([str(first + number) for number in range(gpus)])
    return dedent(f"""
        cpus: "{job.cpus}"
        mem_limit: {job.memory}g
        deploy:
          resources:
            reservations:
              devices:
              - {{driver: nvidia, device_ids: {ids}, capabilities: [gpu]}}
    """)


def _without_gpus(job: Job, role: str) -> int:
    """Returns the number of tasks before those of `role` that have no GPUs."""
    return job.ps if role == "evaluator" else 0
