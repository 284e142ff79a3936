"""Examples of the reference: errors, what raises them, and what a program does about them."""

import tempfile

import lockstep as ls

# isort: split
import jax.numpy as jnp
import keras
import numpy as np

folder = tempfile.mkdtemp()

# %% An option that cannot be honoured
try:
    ls.distribute.InputOptions(experimental_place_dataset_on_device=True)
except ls.errors.UnsupportedError as error:
    print(error)

# %% A data set that is nowhere
try:
    ls.datasets.load("cats_vs_dogs", data_dir=f"{folder}/empty")
except ls.errors.DataNotFoundError as error:
    print(error)


# %% An input pipeline that breaks
def broken(number):
    if number == 2:
        raise ValueError("a damaged file")
    return number


try:
    list(ls.data.Dataset.range(4).map(lambda n: ls.data.numpy_function(broken, [n], "int64")))
except ls.errors.InputError as error:
    print(error)

# %% The end of a data set, where elements are asked for one by one
elements = iter(ls.data.Dataset.range(1))
elements.get_next()
try:
    elements.get_next()
except ls.errors.EndOfDataError as error:
    print(error)

# %% A value that is wrong, be it an argument's or the data's
try:
    ls.data.Dataset.range(4).batch(0)
except ls.errors.InvalidValueError as error:
    print(error.message)

# %% A checkpoint that is damaged
with ls.checkpoint.CheckpointStore(f"{folder}/model") as store:
    store.save(1, {"w": np.ones(3)})
with open(f"{folder}/model/model.ckpt-1.npz", "wb") as file:
    file.write(b"half of it")
try:
    ls.checkpoint.load(f"{folder}/model/model.ckpt-1")
except ls.errors.CheckpointError as error:
    print(error)

# %% A loss that is not finite
with ls.distribute.MirroredStrategy().scope():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
try:
    model.fit(np.full((4, 1), np.nan), np.ones((4, 1)), verbose=0, callbacks=[ls.callbacks.NonFinite()])
except ls.errors.NonFiniteError as error:
    print(error)


# %% What the end of a program does: exit code 143 for the launcher, which does not count it as a failure
def main():
    try:
        train()
    except ls.errors.Preempted:
        print("Asked to end (SIGTERM): the checkpoint of this step is written.")
        raise


# %% A job that did not come together: all of these are JoinError
def join():
    try:
        return ls.distribute.MultiWorkerMirroredStrategy()
    except ls.errors.MissingTaskError as error:
        print("A task did not start:", error)
        raise
    except ls.errors.AddressError as error:
        print("An address of TF_CONFIG is wrong:", error)
        raise
    except ls.errors.StartupOrderError as error:
        print("Make the strategy first:", error)
        raise
    except ls.errors.JoinError as error:
        print("Start all tasks again:", error)
        raise


# %% Tasks that disagree, or have failed
def train():
    strategy = ls.distribute.MultiWorkerMirroredStrategy()
    try:
        return strategy.run(lambda: jnp.ones(()))
    except ls.errors.MismatchError as error:
        print("The tasks run different programs:", error)
        raise
    except ls.errors.PeerError as error:
        print("Look at that task's log first:", error)
        raise


# %% A worker of `ls.launch` that failed
def launch():
    try:
        return ls.launch(train, workers=2)
    except ls.errors.LaunchError as error:
        print(error)
