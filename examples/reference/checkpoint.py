"""Examples of the reference: checkpoints, read and kept; event files and reports."""

import tempfile

import lockstep as ls

# isort: split
import keras
import numpy as np

folder = tempfile.mkdtemp()
for step in (10, 20):
    with ls.checkpoint.CheckpointStore(f"{folder}/model") as store:
        store.save(step, {"dense/kernel": np.full((3, 1), float(step))})
prefix = ls.checkpoint.latest_checkpoint(f"{folder}/model")
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x, y = np.ones((8, 3), "float32"), np.ones((8, 1), "float32")

# %% All that a checkpoint holds
checkpoint = ls.checkpoint.load(prefix)
assert isinstance(checkpoint, ls.checkpoint.Checkpoint)
print(checkpoint.step, checkpoint.time, checkpoint.arrays["dense/kernel"].shape)

# %% Some variables of a large checkpoint: the others are not read
reader = ls.checkpoint.load_checkpoint(f"{folder}/model")
assert isinstance(reader, ls.checkpoint.CheckpointReader)
if reader.has_tensor("dense/kernel"):
    print(reader.get_variable_to_shape_map(), reader.get_tensor("dense/kernel"))

# %% The newest checkpoint that is whole: damaged ones are passed over
newest = ls.checkpoint.load_newest(f"{folder}/model")
assert newest.step == 20

# %% Which checkpoints a directory lists, oldest first
state = ls.checkpoint.get_checkpoint_state(f"{folder}/model")
assert isinstance(state, ls.checkpoint.CheckpointState)
assert state.all_model_checkpoint_paths[-1] == state.model_checkpoint_path

# %% When checkpoints were written, in seconds since 1970
assert ls.checkpoint.checkpoint_exists(prefix)
(seconds,) = ls.checkpoint.get_checkpoint_mtimes([prefix])

# %% Each new checkpoint of a training that goes on elsewhere; it ends after `timeout` seconds without a new one
for path in ls.checkpoint.checkpoints_iterator(f"{folder}/model", timeout=0.1):
    print("evaluate", path)

# %% A checkpoint that is read for long: the training does not delete it meanwhile
with ls.checkpoint.pinned(prefix):
    kernel = ls.checkpoint.load_variable(prefix, "dense/kernel")

# %% A list of checkpoints, corrected after files were moved
ls.checkpoint.update_checkpoint_state(f"{folder}/model", prefix, [prefix])

# %% One checkpoint less
ls.checkpoint.remove_checkpoint(ls.checkpoint.all_checkpoints(f"{folder}/model")[0])

# %% Curves, written for TensorBoard and read again
with ls.summary.EventFile(f"{folder}/logs") as events:
    for step in range(3):
        events.scalar("loss", 1.0 / (step + 1), step)
print(ls.summary.scalars(f"{folder}/logs"))

# %% Every event of a file, as TensorBoard's own messages
import glob

for event in ls.summary.read_events(glob.glob(f"{folder}/logs/*tfevents*")[0]):
    assert isinstance(event, ls.summary.Event)
    for value in event.summary.value:
        assert isinstance(value, ls.summary.Summary.Value)
        print(event.step, value.tag)

# %% The mark of a start: TensorBoard drops what an earlier attempt wrote from this step on
with ls.summary.EventFile(f"{folder}/logs") as events:
    start = ls.summary.SessionLog(status=ls.summary.SessionLog.START)
    events.add_event(ls.summary.Event(step=3, session_log=start))

# %% A report of a training: `report.html` in the log directory
strategy = ls.distribute.MirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(x, y, epochs=2, verbose=0, callbacks=[ls.callbacks.RunReport(f"{folder}/run")])
print(ls.report.write_report(f"{folder}/run"))

# %% The record of a loop of your own, from which the report is made
with ls.training.record(ls.distribute.MirroredStrategy(), f"{folder}/own") as recorded:
    assert isinstance(recorded, ls.training.Record)
    for step in range(1, 4):
        recorded.log(step, loss=1.0 / step)
