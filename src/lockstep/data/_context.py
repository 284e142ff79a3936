"""The argument of an input function: its worker's place among the input pipelines."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.errors import ArgumentError


@dataclass(frozen=True)
class InputContext:
    """The index of an input pipeline among those of all workers.

    Attributes:
        num_input_pipelines: How many there are: one per worker.
        input_pipeline_id: Which one this is, from 0.
        num_replicas_in_sync: Over all workers.

    Source: tf.distribute.InputContext.
    """

    num_input_pipelines: int = 1
    input_pipeline_id: int = 0
    num_replicas_in_sync: int = 1

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Returns `global_batch_size / num_replicas_in_sync`.

        Raises:
            ArgumentError: If that is no whole number.
        """
        # TensorFlow raises here, too: batches of one replica must be equal for its means to be those of the global
        # batch.
        if global_batch_size % self.num_replicas_in_sync:
            raise ArgumentError(
                f"The global batch size must be a multiple of the number of replicas, {self.num_replicas_in_sync}. "
                f"Received: {global_batch_size}. Choose another one, or use experimental_distribute_dataset, which "
                "takes any."
            )
        return global_batch_size // self.num_replicas_in_sync
