"""The third parties' programs that `third_party` runs: chosen by what they use, before they were run on lockstep."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """One program.

    Attributes:
        repository: The directory of its repository, as `owner+name`.
        path: Of the program below it.
        root: The directory below the repository that is copied with it, for programs of several files; `""` for none.
        arguments: Of its command line; `{work}` is the directory that it runs in.
        module: The name that it is run by, as `python -m` does; `""` if it is run as a file.
        workers: Processes that run it together, each with a `TF_CONFIG`; 0 for one without.
        outside: What it writes beside its directory; removed before each side begins.
        full: Whether stand-ins of images have as many rows as the originals, because the program cuts by number.
    """

    repository: str
    path: str
    root: str = ""
    arguments: tuple[str, ...] = ()
    module: str = ""
    workers: int = 0
    outside: tuple[str, ...] = ()
    full: bool = False

    @property
    def name(self) -> str:
        """The repository and the path, as they are listed."""
        return f"{self.repository.replace('+', '/')}: {self.path}"


_DOCS, _AYMERIC, _EXAMPLES = "tensorflow+docs", "aymericdamien+TensorFlow-Examples", "tensorflow+examples"
_DRAGEN, _CHOLLET = "dragen1860+TensorFlow-2.x-Tutorials", "fchollet+deep-learning-with-python-notebooks"
_HANDBOOK = "snowkylin+tensorflow-handbook"
_CODE = "source/_static/code"

_TUTORIALS = [
    "quickstart/beginner",
    "quickstart/advanced",
    "customization/basics",
    "customization/custom_layers",
    "customization/custom_training_walkthrough",
    "keras/classification",
    "keras/text_classification",
    "keras/regression",
    "keras/save_and_load",
    "load_data/csv",
    "load_data/numpy",
    "load_data/images",
    "load_data/pandas_dataframe",
    "load_data/tfrecord",
    "structured_data/preprocessing_layers",
    "structured_data/feature_columns",
    "images/cnn",
    "generative/dcgan",
    "generative/autoencoder",
    "reinforcement_learning/actor_critic",
    "estimator/linear",
    "estimator/premade",
    "estimator/keras_model_to_estimator",
    "distribute/keras",
    "distribute/custom_training",
    "distribute/input",
    "distribute/save_and_load",
    "distribute/multi_worker_with_keras",
]

_GUIDES = [
    "basics",
    "variable",
    "tensor",
    "tensor_slicing",
    "autodiff",
    "advanced_autodiff",
    "intro_to_modules",
    "intro_to_graphs",
    "basic_training_loops",
    "checkpoint",
    "data",
    "function",
    "distributed_training",
    "mixed_precision",
    "random_numbers",
    "ragged_tensor",
    "sparse_tensor",
    "saved_model",
    "estimator",
    "core/logistic_regression_core",
    "core/quickstart_core",
    "migrate/fault_tolerance",
    "migrate/canned_estimators",
    "migrate/evaluator",
    "migrate/sessionrunhook_callback",
    "migrate/tensorboard",
    "migrate/multi_worker_cpu_gpu_training",
    "migrate/early_stopping",
    "migrate/logging_stop_hook",
    "migrate/mirrored_strategy",
    "migrate/checkpoint_saver",
    "migrate/metrics_optimizers",
    "migrate/migrating_feature_columns",
]

_AYMERICS = [
    "1_Introduction/basic_operations",
    "2_BasicModels/linear_regression",
    "2_BasicModels/word2vec",
    "3_NeuralNetworks/autoencoder",
    "3_NeuralNetworks/convolutional_network",
    "3_NeuralNetworks/dynamic_rnn",
    "3_NeuralNetworks/neural_network_raw",
    "4_Utils/build_custom_layers",
    "4_Utils/save_restore_model",
    "4_Utils/tensorboard",
    "6_Hardware/multigpu_training",
]

_LESSONS = [
    "l02c01_celsius_to_fahrenheit",
    "l03c01_classifying_images_of_clothing",
    "l08c05_forecasting_with_machine_learning",
    "l08c06_forecasting_with_rnn",
]

_CHAPTERS = [
    "chapter03_introduction-to-keras-and-tf",
    "chapter07_working-with-keras",
    "chapter12_part04_variational-autoencoders",
]

_OUTSIDE = {"distribute/save_and_load": ("/tmp/tf_save", "/tmp/keras_save.keras")}
_FULL = {"chapter07_working-with-keras", "4_Utils/tensorboard"}

PROGRAMS: tuple[Entry, ...] = (
    *(Entry(_DOCS, f"site/en/tutorials/{name}.ipynb", outside=_OUTSIDE.get(name, ())) for name in _TUTORIALS),
    *(Entry(_DOCS, f"site/en/guide/{name}.ipynb") for name in _GUIDES),
    *(Entry(_AYMERIC, f"tensorflow_v2/notebooks/{name}.ipynb", full=name in _FULL) for name in _AYMERICS),
    *(Entry(_EXAMPLES, f"courses/udacity_intro_to_tensorflow_for_deep_learning/{name}.ipynb") for name in _LESSONS),
    *(Entry(_CHOLLET, f"second_edition/{name}.ipynb", full=name in _FULL) for name in _CHAPTERS),
    Entry("ageron+handson-ml3", "12_custom_models_and_training_with_tensorflow.ipynb", full=True),
    Entry(_DRAGEN, "01-TF2.0-Overview/fc_train.py"),
    Entry(_DRAGEN, "01-TF2.0-Overview/conv_train.py"),
    Entry(_DRAGEN, "04-Linear-Regression/main.py"),
    Entry(_DRAGEN, "05-FashionMNIST/mnist_custommodel.py"),
    Entry(_DRAGEN, "08-ResNet/main.py", root="08-ResNet"),
    Entry(_DRAGEN, "11-AE/main.py", root="11-AE"),
    Entry(_DRAGEN, "12-VAE/main.py", root="12-VAE"),
    Entry(_HANDBOOK, f"{_CODE}/zh/model/mnist/main.py", root=_CODE),
    Entry(_HANDBOOK, f"{_CODE}/zh/model/text_generation/rnn.py", root=_CODE),
    Entry(_HANDBOOK, f"{_CODE}/zh/tools/tensorboard/mnist.py", root=_CODE),
    Entry(_HANDBOOK, f"{_CODE}/zh/tools/save_and_restore/mnist.py", root=_CODE, arguments=("--num_epochs", "1")),
    Entry(_HANDBOOK, f"{_CODE}/zh/savedmodel/keras/train_and_export.py", root=_CODE),
    Entry(_HANDBOOK, f"{_CODE}/zh/model/linear/linear.py", root=_CODE),
    Entry(
        "GoogleCloudPlatform+ai-platform-samples",
        "training/tensorflow/census/tf-keras/trainer/task.py",
        root="training/tensorflow/census/tf-keras",
        module="trainer.task",
        arguments=("--job-dir", "{work}/job", "--num-epochs", "2"),
    ),
    Entry(
        "kubeflow+tf-operator",
        "examples/v1/distribution_strategy/keras-API/multi_worker_strategy-with-keras.py",
        arguments=("--saved_model_dir", "{work}/saved", "--checkpoint_dir", "{work}/checkpoints"),
        workers=2,
    ),
)
