"""Examples of the reference: where the description of a cluster comes from, and clusters for tests."""

import json

import lockstep as ls

TF_CONFIG = json.dumps(
    {"cluster": {"chief": ["host0:2222"], "worker": ["host1:2222"]}, "task": {"type": "worker", "index": 0}}
)

# %% TF_CONFIG
import os

os.environ["TF_CONFIG"] = TF_CONFIG
resolver = ls.cluster_resolver.TFConfigClusterResolver()
assert isinstance(resolver, ls.cluster_resolver.ClusterResolver)
assert (resolver.task_type, resolver.task_id) == ("worker", 0)
print(resolver.cluster_spec().as_dict())
del os.environ["TF_CONFIG"]

# %% A task of a cluster
task = ls.cluster_resolver.Task("worker", 3)
assert task.label == "worker 3"

# %% Several sources: the first that describes a cluster
cluster = ls.cluster_resolver.ClusterSpec({"worker": ["host1:2222", "host2:2222"]})
resolver = ls.cluster_resolver.UnionResolver(
    ls.cluster_resolver.SimpleClusterResolver(cluster, task_type="worker", task_id=0)
)
assert resolver.cluster_spec().num_tasks("worker") == 2


# %% Slurm: in a program that `srun` starts
def under_slurm():
    resolver = ls.cluster_resolver.SlurmClusterResolver()
    return ls.distribute.MultiWorkerMirroredStrategy(resolver)


# %% Open MPI: in a program that `mpirun` starts
def under_mpi():
    resolver = ls.cluster_resolver.MPIClusterResolver(port=8888)
    return ls.distribute.MultiWorkerMirroredStrategy(resolver)


# %% torchrun: in a program that it starts
def under_torchrun():
    resolver = ls.cluster_resolver.TorchrunClusterResolver()
    return ls.distribute.MultiWorkerMirroredStrategy(resolver)


# %% Kubernetes: pods found by their labels
def under_kubernetes():
    resolver = ls.cluster_resolver.KubernetesClusterResolver({"worker": ["job-name=worker"]})
    return ls.distribute.MultiWorkerMirroredStrategy(resolver)


# %% A task that computes scheduled functions, or holds variables, until the coordinator's program has ended
def worker_or_ps():
    cluster = {"chief": ["host0:2222"], "worker": ["host1:2222"], "ps": ["host2:2222"]}
    ls.distribute.Server(cluster, job_name="worker", task_index=0).join()


# %% The coordinator's program: functions are scheduled on workers, and each is counted once
def coordinated(step, make_dataset):
    strategy = ls.distribute.ParameterServerStrategy(ls.cluster_resolver.TFConfigClusterResolver())
    coordinator = ls.distribute.coordinator.ClusterCoordinator(strategy)
    batches: ls.distribute.coordinator.PerWorkerDataset = coordinator.create_per_worker_dataset(make_dataset)
    scales: ls.distribute.coordinator.PerWorkerValues = coordinator.create_per_worker_resource(lambda: 1.0)
    losses: list[ls.distribute.coordinator.RemoteValue] = [
        coordinator.schedule(step, args=(iter(batches), scales)) for _ in range(100)
    ]
    coordinator.join()
    try:
        return coordinator.fetch(losses)
    except ls.errors.CancelledError as error:
        print("An earlier function has failed:", error)
        raise
