"""Template for Ray: a driver that starts each task in a placement group and gives it TF_CONFIG."""

from __future__ import annotations

import json

from lockstep._templates.job import Job
from lockstep._templates.text import dedent


def ray(job: Job) -> str:
    """Returns the driver, a Python program for `ray job submit`."""
    # Actors, and not Ray Train's JaxTrainer: that one starts jax.distributed itself, and a task could not join its
    # cluster any more. Each actor starts a process, as lockstep ends the process of a task whose cluster has failed.
    return dedent(f'''
        """{job.name}: starts lockstep's tasks on a Ray cluster, and starts all again when one fails.

        ray job submit --working-dir . -- python {job.file}        # the directory holds it and the program
        """

        from __future__ import annotations

        import json
        import os
        import secrets
        import socket
        import subprocess
        import sys
        import time

        import ray
        from ray.util.placement_group import placement_group, remove_placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        PROGRAM = {json.dumps(list(job.program))}
        ROLES = {json.dumps(job.roles)}  # Tasks of each type.
        GPUS = {json.dumps({role: job.gpus_of(role) for role in job.roles})}  # Of each task.
        CPUS, MEMORY_GIB = {job.cpus}, {job.memory}
        SHARED = {json.dumps(job.shared)}  # For checkpoints: every node must see the same files.
        MAX_RESTARTS = {job.max_restarts}
        GRACE = {job.grace}  # Seconds from SIGTERM on for the last step and a checkpoint.
        PREEMPTED = 143  # The exit code of a task that was asked to end, and has saved.
        PLACEMENT_SECONDS = 900.0


        @ray.remote(max_restarts=0)
        class Task:
            """A task of the cluster, as a process of its own on the node where Ray has placed it."""

            def address(self) -> str:
                """Returns an address of this node at which others reach the task."""
                with socket.socket() as free:
                    free.bind(("", 0))
                    return f"{{ray.util.get_node_ip_address()}}:{{free.getsockname()[1]}}"

            def run(self, tf_config: str, settings: dict[str, str]) -> int:
                """Runs the program to its end and returns its exit code."""
                environment = {{**os.environ, **settings, "TF_CONFIG": tf_config, "SHARED": SHARED}}
                # Not in this process: lockstep ends a process whose cluster has failed, and Ray's has to report it.
                code = subprocess.call([sys.executable, *PROGRAM], env=environment)
                return code if code >= 0 else 128 - code


        def attempt(generation: int, run_id: str, secret: str) -> int:
            """Runs all tasks once; returns the exit code of the first that has failed, else 0."""
            tasks = [(role, index) for role, count in ROLES.items() for index in range(count)]
            # All at once or not at all: a part of the tasks would wait for the rest in vain.
            group = placement_group(
                [{{"CPU": CPUS, "GPU": GPUS[role], "memory": MEMORY_GIB << 30}} for role, _ in tasks], strategy="PACK"
            )
            try:
                ray.get(group.ready(), timeout=PLACEMENT_SECONDS)
                actors = [
                    Task.options(
                        num_cpus=CPUS,
                        num_gpus=GPUS[role],
                        memory=MEMORY_GIB << 30,
                        scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=i),
                    ).remote()
                    for i, (role, _) in enumerate(tasks)
                ]
                addresses = ray.get([actor.address.remote() for actor in actors])
                cluster = {{role: [] for role in ROLES}}
                for (role, _), address in zip(tasks, addresses, strict=True):
                    cluster[role].append(address)
                settings = {{
                    "LOCKSTEP_CLUSTER_SECRET": secret,  # Who does not know it cannot join.
                    "LOCKSTEP_GENERATION": str(generation),
                    "LOCKSTEP_RUN_ID": run_id,
                    "LOCKSTEP_GRACE": str(GRACE),
                    "PYTHONUNBUFFERED": "1",
                }}
                running = {{
                    actor.run.remote(
                        json.dumps({{"cluster": cluster, "task": {{"type": role, "index": index}}}}), settings
                    ): role
                    for actor, (role, index) in zip(actors, tasks, strict=True)
                }}
                return first_failure(running)
            finally:
                remove_placement_group(group)


        def first_failure(running: dict[ray.ObjectRef, str]) -> int:
            """Waits for all tasks, which end one another; returns the first exit code that is not 0."""
            first, deadline = 0, None
            while running:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                ended, _ = ray.wait(list(running), num_returns=1, timeout=left)
                if not ended:  # Those that had not joined yet do not know that one is missing.
                    break
                done = ended[0]
                role = running.pop(done)
                try:
                    code = ray.get(done)
                except ray.exceptions.RayError as error:  # A node that is lost.
                    print(f"A task ({{role}}) is lost: {{error}}", file=sys.stderr)
                    code = 1
                if role != "evaluator":  # Its failure does not end the training.
                    first = first or code
                if first and deadline is None:
                    deadline = time.monotonic() + GRACE
            return first


        def main() -> None:
            """Runs attempts until one succeeds or the restarts are used up."""
            ray.init(log_to_driver=True)
            run_id, secret = secrets.token_hex(16), secrets.token_hex(32)
            failures, generation = 0, 0
            while code := attempt(generation, run_id, secret):
                failures += code != PREEMPTED
                if failures > MAX_RESTARTS:
                    break
                generation += 1
                print(f"Starting all tasks again: exit code {{code}}, {{failures}} of {{MAX_RESTARTS}} restarts used.")
                time.sleep(1.0)
            sys.exit(code)


        if __name__ == "__main__":
            main()
    ''')
