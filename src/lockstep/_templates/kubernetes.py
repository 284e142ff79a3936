"""Template for Kubernetes alone: an indexed Job for each role, and a headless service for their names."""

from __future__ import annotations

from lockstep._templates.job import Job
from lockstep._templates.pod import claim, index_config, pod, secret_advice
from lockstep._templates.text import dedent, indent


def kubernetes(job: Job) -> str:
    """Returns the manifest: claim, service, and a Job for each role."""
    # In this order: pods wait for the claim, and look each other up through the service.
    parts = [_head(job), claim(job), _service(job), *(_job(job, role) for role in job.roles)]
    return "---\n".join(parts)


def _head(job: Job) -> str:
    names = ", ".join(f"{job.name}-{role}" for role in job.roles)
    return (
        dedent(f"""
            # {job.name}: an indexed Job for each role ({names}), for a cluster without operators.
            #
        """)
        + secret_advice(job)
        + dedent(f"""
            #   kubectl apply -f {job.file}
            #   kubectl logs -f -l app={job.name} --prefix       # all tasks
            #   kubectl delete -f {job.file}                     # the claim and its checkpoints too
            #
            # When a task fails, all others end with the reason, and Kubernetes starts each pod again under its name;
            # they wait for one another and go on from the newest checkpoint. With JobSet (`lockstep template jobset`)
            # they are started again together, at once, and counted as one restart.
        """)
    )


def _service(job: Job) -> str:
    return dedent(f"""
        # Gives each pod the name that TF_CONFIG has for it: {job.name}-worker-0.{job.name} and so on.
        apiVersion: v1
        kind: Service
        metadata:
          name: {job.name}
        spec:
          clusterIP: None
          # Tasks look for one another before any of them is ready.
          publishNotReadyAddresses: true
          selector: {{app: {job.name}}}
          ports:
          - {{name: lockstep, port: {job.port}}}
    """)


def _job(job: Job, role: str) -> str:
    # A Job for each role, as the index counts within one Job. Failures of all pods of a Job count against its
    # `backoffLimit`, whichever index they have; `backoffLimitPerIndex` would let an index fail for good, and the
    # others wait for it.
    count = job.roles[role]
    config = index_config(job, role, f"{job.name}-{{role}}-{{index}}.{job.name}")
    return dedent(f"""
        apiVersion: batch/v1
        kind: Job
        metadata:
          name: {job.name}-{role}
          labels: {{app: {job.name}}}
        spec:
          completionMode: Indexed
          completions: {count}
          parallelism: {count}
          # {job.max_restarts} restarts of all: each failure ends every pod, and each of them counts.
          backoffLimit: {job.max_restarts * count}
          # The next pod of a name starts when the last one has gone: two of them would be one task twice.
          podReplacementPolicy: Failed
          podFailurePolicy:
            rules:
            # Evicted, preempted, drained, or asked to end and ended in order (143): started again at no cost.
            - action: Ignore
              onPodConditions: [{{type: DisruptionTarget, status: "True"}}]
            - action: Ignore
              onExitCodes: {{operator: In, values: [143]}}
          template:
            metadata:
              labels: {{app: {job.name}, role: {role}}}
            spec:
              # With the pod's own name ({job.name}-{role}-0) the name of its host in the service above.
              subdomain: {job.name}
              {indent(pod(job, role, tf_config=config), 14)}
    """)
