"""Template for JobSet, which starts all pods of a job again together."""

from __future__ import annotations

from lockstep._templates.job import Job
from lockstep._templates.pod import claim, index_config, pod, secret_advice
from lockstep._templates.text import dedent, indent

# Set by JobSet on each pod: how often all were started again, and the id of this one job.
_LABELS = """
# A pod of an earlier start cannot join a later one.
- name: LOCKSTEP_GENERATION
  valueFrom: {fieldRef: {fieldPath: "metadata.annotations['jobset.sigs.k8s.io/restart-attempt']"}}
# What another job has left in a directory does not count as this one's.
- name: LOCKSTEP_RUN_ID
  valueFrom: {fieldRef: {fieldPath: "metadata.annotations['jobset.sigs.k8s.io/jobset-uid']"}}
"""


def jobset(job: Job) -> str:
    """Returns the manifest: the claim and the JobSet, which makes the service itself."""
    return _head(job) + "---\n".join([claim(job), _jobset(job)])


def _head(job: Job) -> str:
    return (
        dedent(f"""
            # {job.name}: one JobSet with a replicated job for each role. The cluster needs JobSet 0.6 or later.
            #
        """)
        + secret_advice(job)
        + dedent(f"""
            #   kubectl apply -f {job.file}
            #   kubectl logs -f -l jobset.sigs.k8s.io/jobset-name={job.name} --prefix
            #   kubectl delete jobset {job.name}
        """)
    )


def _jobset(job: Job) -> str:
    # A failed Job restarts the JobSet as a whole, which is what a gang needs: no pod of an earlier start is left.
    jobs = "\n".join(_replicated_job(job, role).rstrip("\n") for role in job.roles)
    # Servers wait for requests until they are ended: they would keep the JobSet from completing.
    trained = [role for role in job.roles if role != "ps"]
    return dedent(f"""
        apiVersion: jobset.x-k8s.io/v1alpha2
        kind: JobSet
        metadata:
          name: {job.name}
        spec:
          network:
            # Each pod gets the name that TF_CONFIG has for it: {job.name}-worker-0-0.{job.name} and so on.
            enableDNSHostnames: true
            subdomain: {job.name}
            publishNotReadyAddresses: true
          # Done when these are.
          successPolicy: {{operator: All, targetReplicatedJobs: [{", ".join(trained)}]}}
          failurePolicy:
            # All start again together, and go on from the newest checkpoint.
            maxRestarts: {job.max_restarts}
            rules:
            # Evicted, preempted, or asked to end and ended in order: at no cost.
            - name: preempted
              action: RestartJobSetAndIgnoreMaxRestarts
              onJobFailureReasons: [PodFailurePolicy]
          replicatedJobs:
          {indent(jobs, 10)}
    """)


def _replicated_job(job: Job, role: str) -> str:
    count = job.roles[role]
    # The first number is the Job's in its replicated job, of which there is one; the second the pod's.
    config = index_config(job, role, f"{job.name}-{{role}}-0-{{index}}.{job.name}")
    is_evaluator = role == "evaluator"
    # An evaluator is started again where it is: its failure must not end the training.
    restart = "OnFailure" if is_evaluator else "Never"
    policy = "" if is_evaluator else _POLICY
    return dedent(f"""
        - name: {role}
          replicas: 1
          template:
            spec:
              completionMode: Indexed
              completions: {count}
              parallelism: {count}
              {indent(_backoff(job, is_evaluator) + policy, 14)}
              template:
                spec:
                  {indent(pod(job, role, tf_config=config, settings=_LABELS, restart=restart), 18)}
    """)


def _backoff(job: Job, is_evaluator: bool) -> str:
    if is_evaluator:
        return f"# By itself: its failure does not end the training.\nbackoffLimit: {job.max_restarts}\n"
    return "# Not by itself: all pods start again together.\nbackoffLimit: 0\n"


_POLICY = """\
podFailurePolicy:
  rules:
  - action: FailJob
    onExitCodes: {operator: In, values: [143]}
  - action: FailJob
    onPodConditions: [{type: DisruptionTarget, status: "True"}]
"""
