"""Template for Kubeflow's TFJob, whose operator sets TF_CONFIG itself."""

from __future__ import annotations

from lockstep._templates.job import Job
from lockstep._templates.pod import claim, pod, secret_advice
from lockstep._templates.text import dedent, indent

# The operator's names of the roles, and of the container and the port that it looks for.
_KINDS = {"chief": "Chief", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"}
_CONTAINER, _PORT = "tensorflow", "tfjob-port"


def kubeflow(job: Job) -> str:
    """Returns the manifest: the claim and the TFJob, which makes a service for each task."""
    return _head(job) + "---\n".join([claim(job), _tf_job(job)])


def _head(job: Job) -> str:
    alone = (
        dedent("""
            #
            # The operator sets no TF_CONFIG for a single task, which then trains alone, as it should.
        """)
        if sum(job.roles.values()) == 1
        else ""
    )
    return (
        dedent(f"""
            # {job.name}: a TFJob of Kubeflow's Training Operator (v1), which sets TF_CONFIG in every pod. The evaluator
            # stands outside of the cluster. Hosts are the hosts {job.name}-worker-0, {job.name}-worker-1, ...
            #
        """)
        + secret_advice(job)
        + dedent(f"""
            #   kubectl apply -f {job.file}
            #   kubectl logs -f -l training.kubeflow.org/job-name={job.name} --prefix
            #   kubectl delete tfjob {job.name}
        """)
        + alone
    )


def _tf_job(job: Job) -> str:
    # Restarts in place keep a pod's name and address, which TF_CONFIG holds; with `ExitCode` an exit with 1, which
    # tasks have that follow another one's failure, would end the job.
    replicas = "\n".join(_replica(job, role).rstrip("\n") for role in job.roles)
    return dedent(f"""
        apiVersion: kubeflow.org/v1
        kind: TFJob
        metadata:
          name: {job.name}
        spec:
          runPolicy:
            # Parameter servers end with the job; pods that have ended stay, for their logs.
            cleanPodPolicy: Running
            # Containers that fail are started again where they are; the operator adds up how often.
            backoffLimit: {job.max_restarts * sum(job.roles.values())}
          # Empty: done when the chief is, or worker 0, which leave last. Tasks end together.
          successPolicy: ""
          tfReplicaSpecs:
            {indent(replicas, 12)}
    """)


def _replica(job: Job, role: str) -> str:
    spec = pod(job, role, container=_CONTAINER, restart="OnFailure").replace("name: lockstep,", f"name: {_PORT},")
    # The policy of the replicas takes the place of the pods' own.
    spec = spec.replace("restartPolicy: OnFailure\n", "")
    return dedent(f"""
        {_KINDS[role]}:
          replicas: {job.roles[role]}
          # All containers end when one does; each starts again in place, waits for the others, and resumes.
          restartPolicy: OnFailure
          template:
            spec:
              {indent(spec, 14)}
    """)
