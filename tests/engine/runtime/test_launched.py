"""Workers that a launcher starts without TF_CONFIG, as processes."""

from __future__ import annotations

from lockstep._engine.runtime import addresses as addressing
from tests.engine.runtime.jobs import Job, addresses

PROGRAM = """
    import lockstep as ls
    strategy = ls.distribute.MultiWorkerMirroredStrategy()
    config = ls.estimator.RunConfig(train_distribute=strategy)
    print("joined", strategy.num_replicas_in_sync, config.task_id, config.is_chief, config.num_worker_replicas)
"""


def test_ranks_of_a_launcher_train_together(job: Job) -> None:
    port = str(addressing.split(addresses(1)[0])[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    tasks = [job.start(PROGRAM, [], 0, RANK=str(rank), **shared) for rank in range(2)]
    assert [task.wait() for task in tasks] == [0, 0], tasks[0].err + tasks[1].err
    assert [task.out.splitlines()[-1] for task in tasks] == ["joined 2 0 True 2", "joined 2 1 False 2"]
    for rank, task in enumerate(tasks):
        assert f"TorchrunClusterResolver takes the cluster from torchrun's variables (RANK={rank}, WORLD" in task.err


def test_launchers_that_contradict_each_other_end_every_process(job: Job) -> None:
    ranks = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}
    slurm = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NODELIST": "n[1-4]"}
    task = job.start(PROGRAM, [], 0, RANK="0", **ranks, **slurm)
    assert task.wait() == 1
    assert "ClusterSpecError: Where TF_CONFIG is not set, the variables of all launchers must describe" in task.err
    assert "Slurm (SLURM_PROCID=1, SLURM_STEP_NUM_TASKS=4): process 1 of 4." in task.err
