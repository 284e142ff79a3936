"""`tf.keras.experimental`: models that Keras 2 has ready."""

from __future__ import annotations

import inspect
from typing import Any

import keras

from lockstep._types import Batch, Model, Optimizer, PyTree, Tensor
from lockstep.compat.tensorflow._ops.gradient_tape import GradientTape
from lockstep.compat.tensorflow._types import Argument
from lockstep.errors import ArgumentError

__all__ = ["LinearModel", "WideDeepModel"]


class LinearModel(keras.Model):
    """Adds up a linear function of each input, and a bias.

    Inputs are a tensor (batch, ...), a list of tensors, or a dict of them; outputs have the shape (batch, ..., units).

    Source: tf.keras.experimental.LinearModel.
    """

    def __init__(
        self,
        units: int = 1,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "zeros",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        **kwargs: Argument,
    ) -> None:
        """Creates a model.

        Args:
            units: How many numbers it gives for an example.
            activation: What is applied to the sum.
            use_bias: Whether there is a bias.
            kernel_initializer: Of the weights of each input.
            bias_initializer: Of the bias.
            kernel_regularizer: Of the weights of each input.
            bias_regularizer: Of the bias.
            **kwargs: As of `keras.Model`.
        """
        super().__init__(**kwargs)
        self.units, self.use_bias = units, use_bias
        self.activation: Any = keras.activations.get(activation)
        self.kernel_initializer: Any = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.dense_layers: list[Any] = []
        self.bias: Any = None

    def build(self, input_shape: PyTree) -> None:
        """Makes a layer for each input, and the bias."""
        shapes: Any = input_shape
        if isinstance(shapes, dict):
            shapes, names = list(shapes.values()), list(shapes)
        elif any(isinstance(size, (list, tuple, dict)) for size in shapes):
            names = [f"input_{i}" for i in range(len(shapes))]
        else:
            shapes, names = [shapes], ["input"]
        for name, shape in zip(names, shapes, strict=True):
            # Each with an initializer of its own: Keras warns of one that is used again.
            layer = keras.layers.Dense(
                self.units,
                use_bias=False,
                kernel_initializer=self.kernel_initializer.clone(),
                kernel_regularizer=self.kernel_regularizer,
                name=name,
            )
            layer.build(shape)
            self.dense_layers.append(layer)
        if self.use_bias:
            self.bias = self.add_weight(
                shape=(self.units,), initializer=self.bias_initializer, regularizer=self.bias_regularizer, name="bias"
            )
        self.built = True

    def call(self, inputs: PyTree) -> Any:
        """Returns the outputs."""
        values: Any = list(inputs.values()) if isinstance(inputs, dict) else inputs
        values = list(values) if isinstance(values, (list, tuple)) else [values]
        result = sum(layer(value) for layer, value in zip(self.dense_layers, values, strict=True))
        if self.bias is not None:
            result = result + self.bias
        return self.activation(result)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        parts = ("kernel_initializer", "bias_initializer", "kernel_regularizer", "bias_regularizer")
        config = {name: keras.saving.serialize_keras_object(getattr(self, name)) for name in parts}
        config["activation"] = keras.activations.serialize(self.activation)
        return {"units": self.units, "use_bias": self.use_bias, "name": self.name, **config}


class WideDeepModel(keras.Model):
    """Adds up the outputs of a linear model and of a deep one, which are trained together.

    Both take the same inputs, unless those are a list of two: the first is the linear model's then.

    Source: tf.keras.experimental.WideDeepModel.
    """

    def __init__(self, linear_model: Model, dnn_model: Model, activation: Any = None, **kwargs: Argument) -> None:
        """Creates a model.

        Args:
            linear_model: The linear model.
            dnn_model: The deep one.
            activation: What is applied to the sum.
            **kwargs: As of `keras.Model`.
        """
        super().__init__(**kwargs)
        self.linear_model, self.dnn_model = linear_model, dnn_model
        self.activation: Any = keras.activations.get(activation)
        self._deep_optimizer: Any = None

    def compile(self, optimizer: Any = "rmsprop", *args: Argument, **kwargs: Argument) -> None:
        """Compiles as `keras.Model.compile` does; `optimizer` may be a list: the linear model's, and the deep one's.

        Raises:
            ArgumentError: If the list has another length.
        """
        self._deep_optimizer = None
        if isinstance(optimizer, (list, tuple)):
            if len(optimizer) != 2:
                raise ArgumentError(f"There are two models, each with one optimizer. Received: {len(optimizer)}.")
            optimizer, self._deep_optimizer = map(keras.optimizers.get, optimizer)
        super().compile(optimizer, *args, **kwargs)

    def call(self, inputs: PyTree, training: Any = None) -> Any:
        """Returns the outputs."""
        is_pair = isinstance(inputs, (list, tuple)) and len(inputs) == 2
        wide, deep = inputs if is_pair else (inputs, inputs)
        result = _call(self.linear_model, wide, training) + _call(self.dnn_model, deep, training)
        return self.activation(result)

    def train_step(self, data: Batch) -> Any:
        """Trains on a batch, each model by its optimizer."""
        if self._deep_optimizer is None:
            return super().train_step(data)
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        with GradientTape() as tape:
            outputs = self(x, training=True)
            loss = self.compiled_loss(y, outputs, weights, regularization_losses=self.losses)
        self.compiled_metrics.update_state(y, outputs, weights)
        groups = self.linear_model.trainable_variables, self.dnn_model.trainable_variables
        gradients = tape.gradient(loss, groups)
        optimizers: tuple[Optimizer, Optimizer] = self.optimizer, self._deep_optimizer
        for optimizer, found, variables in zip(optimizers, gradients, groups, strict=True):
            optimizer.apply_gradients(zip(found, variables, strict=True))
        return {metric.name: metric.result() for metric in self.metrics}

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        parts = {
            name: keras.saving.serialize_keras_object(getattr(self, name)) for name in ("linear_model", "dnn_model")
        }
        return {**parts, "activation": keras.activations.serialize(self.activation), "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> WideDeepModel:
        """Returns a model of what `get_config` gave."""
        parts = {
            name: keras.saving.deserialize_keras_object(config.pop(name), custom_objects)
            for name in ("linear_model", "dnn_model")
        }
        return cls(**parts, **config)


def _call(model: Model, inputs: Tensor, training: Any) -> Any:
    takes_training = "training" in inspect.signature(model.call).parameters
    return model(inputs, training=training) if takes_training else model(inputs)
