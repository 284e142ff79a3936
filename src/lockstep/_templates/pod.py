"""The pod of a task, which the templates for Kubernetes have in common."""

from __future__ import annotations

from lockstep._templates.job import Job
from lockstep._templates.text import dedent, indent, list_strings, literal, quote


def pod(
    job: Job, role: str, *, tf_config: str = "", settings: str = "", restart: str = "Never", container: str = "train"
) -> str:
    """Returns the `spec` of a pod as YAML.

    Args:
        job: The job.
        role: Which of its tasks.
        tf_config: Environment variables that lead to TF_CONFIG; empty where the operator sets it.
        settings: Further environment variables.
        restart: `restartPolicy`.
        container: The container's name, which some operators look for.
    """
    # TF_CONFIG's variables first: Kubernetes replaces $(NAME) only by variables that stand before.
    environment = "\n".join(part.strip("\n") for part in (tf_config, settings, _settings(job)) if part)
    return dedent(f"""
        restartPolicy: {restart}
        # From SIGTERM to SIGKILL: the step under way, one checkpoint (LOCKSTEP_GRACE), and some seconds.
        terminationGracePeriodSeconds: {job.kill_after}
        # Python is not process 1 then, for which Linux ignores SIGTERM where no handler is installed.
        shareProcessNamespace: true
        automountServiceAccountToken: false
        containers:
        - name: {container}
          image: {quote(job.image)}
          # No shell around it, which would keep SIGTERM to itself.
          command: {list_strings([word.replace("$(", "$$(") for word in job.command])}
          env:
          {indent(environment, 10)}
          ports:
          - {{name: lockstep, containerPort: {job.port}}}
          {indent(_resources(job, role), 10)}
          volumeMounts:
          - {{name: shared, mountPath: {quote(job.shared)}}}
          - {{name: secret, mountPath: /etc/lockstep, readOnly: true}}
          - {{name: shm, mountPath: /dev/shm}}
        volumes:
        - name: shared
          persistentVolumeClaim: {{claimName: {job.name}-shared}}
        - name: secret
          secret: {{secretName: {job.name}-secret}}
        # NCCL and data loaders need more than a container's 64 MiB.
        - name: shm
          emptyDir: {{medium: Memory, sizeLimit: 2Gi}}
    """)


def index_config(job: Job, role: str, host: str, annotation: str = "batch.kubernetes.io/job-completion-index") -> str:
    """Returns the variables that make TF_CONFIG of a pod's number in its Job."""
    config = job.tf_config(host, f'{{"type": "{role}", "index": $(TASK_INDEX)}}')
    return dedent(f"""
        # This pod's number in its Job; it must stand before TF_CONFIG, which holds it.
        - name: TASK_INDEX
          valueFrom: {{fieldRef: {{fieldPath: "metadata.annotations['{annotation}']"}}}}
        - name: TF_CONFIG
          value: {literal(config)}
    """)


def _settings(job: Job) -> str:
    return dedent(f"""
        # Who does not know it cannot join, nor reach the coordination service.
        - {{name: LOCKSTEP_CLUSTER_SECRET_FILE, value: /etc/lockstep/cluster}}
        # Seconds to be at the common last step, and to save there. The exit code is 143 then.
        - {{name: LOCKSTEP_GRACE, value: "{job.grace}"}}
        # Seconds until all must have arrived: long enough to pull the image on a new node.
        - {{name: LOCKSTEP_JOIN_TIMEOUT, value: "900"}}
        - {{name: PYTHONUNBUFFERED, value: "1"}}
    """)


def _resources(job: Job, role: str) -> str:
    # As a limit: Kubernetes takes it for the request, too, and GPUs cannot be requested for less than their limit.
    # Memory has both, so that a task is not killed for its neighbours'; processors only a request, since a limit
    # throttles the threads that read data.
    gpus = f', nvidia.com/gpu: "{job.gpus_of(role)}"' if job.gpus_of(role) else ""
    return dedent(f"""
        resources:
          requests: {{cpu: "{job.cpus}", memory: {job.memory}Gi}}
          limits: {{memory: {job.memory}Gi{gpus}}}
    """)


def claim(job: Job) -> str:
    """Returns the claim of the directory that all tasks share, as YAML."""
    return dedent(f"""
        # {job.shared}, for checkpoints: every task, on any node, must see the same files (NFS, CephFS, Filestore, ...).
        apiVersion: v1
        kind: PersistentVolumeClaim
        metadata:
          name: {job.name}-shared
        spec:
          accessModes: [ReadWriteMany]
          # storageClassName: nfs      # `kubectl get storageclass`; one that can be mounted by many nodes
          resources: {{requests: {{storage: 100Gi}}}}
    """)


def secret_advice(job: Job) -> str:
    """Returns the command that makes the secret, as a comment."""
    return dedent(f"""
        # Once, for the secret that the tasks share; it is in no file:
        #   kubectl create secret generic {job.name}-secret --from-literal=cluster="$(openssl rand -hex 32)"
    """)
