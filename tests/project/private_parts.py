"""The private parts of jax and keras that lockstep uses: what each looks like, and why there is no public way.

One row each: delete those that are no longer used, add those that are. `test_private_parts.py` holds the source to the
table, and the table to the installed releases, and names the files that use a part.

A row is the dotted name of a part, then "module", "attribute", or "class" or "function" with its parameters; "A or B"
where releases differ. An attribute of objects stands under a class that makes it.
"""

from __future__ import annotations

# Attributes of lockstep's own objects that have the same name as one of Keras'.
OTHERWISE_NAMED = {"_name"}

_TABLE: tuple[tuple[str, dict[str, str]], ...] = (
    (
        "jax does not say in public if its devices exist yet. A cluster is joined, and devices are divided, before.",
        {
            "jax._src.xla_bridge.backends_are_initialized": "function ()",
        },
    ),
    (
        "Collectives of Gloo listen on an address that jax offers no setting for.",
        {
            "jax._src.xla_bridge.make_cpu_client": "function (collectives)",
            "jax._src.xla_bridge.register_backend_factory": (
                "function (name, factory, priority, fail_quietly, experimental, make_topology, c_api)"
            ),
            "jaxlib._jax.make_gloo_tcp_collectives": (
                "function (distributed_client, hostname, interface) or function (*args, **kwargs)"
            ),
        },
    ),
    (
        "The key-value store that `jax.distributed.initialize` opens: agreement between tasks goes through it.",
        {
            "jax._src.distributed.global_state.client": "attribute",
        },
    ),
    (
        "The cache of compiled programs is written in place, and by the first process alone: see `compile_cache`.",
        {
            "jax._src.compilation_cache.get_file_cache": "function (path)",
            "jax._src.compilation_cache.put_executable_and_time": (
                "function (cache_key, module_name, executable, backend, compile_time)"
            ),
            "jax._src.compiler._cache_write": (
                "function (cache_key, compile_time_secs, module_name, backend, executable, host_callbacks) or "
                "function (cache_key, compile_time_secs, module_name, backend, executable)"
            ),
        },
    ),
    (
        "jax compiles in the process that runs the program, and leaves its heap in pieces: see `compile_process`.",
        {
            "jax._src.compiler._compile_and_write_cache": (
                "function (backend, computation, executable_devices, compile_options, host_callbacks, module_name, "
                "cache_key)"
            ),
            "jaxlib._jax.CompileOptions.ParseFromString": "function (arg) or function (*args, **kwargs)",
            "jaxlib._jax.DeviceList": "class () or class (*args, **kwargs)",
            "jaxlib.lapack.batch_partitionable_targets": "function ()",
            "jaxlib.lapack.registrations": "function ()",
            "jaxlib.xla_client.make_cpu_client": (
                "function (asynchronous, distributed_client, node_id, num_nodes, collectives, num_devices, "
                "get_local_topology_timeout_minutes, get_global_topology_timeout_minutes, transfer_server_factory)"
            ),
            "jaxlib.xla_client.register_custom_call_as_batch_partitionable": (
                "function (target_name, c_api) or function (*args, **kwargs)"
            ),
            "jaxlib.xla_client.register_custom_call_target": "function (name, fn, platform, api_version, traits)",
        },
    ),
    (
        "An export's operations are listed before it is loaded, so that none of them reaches code of this process.",
        {
            "jax._src.interpreters.mlir.make_ir_context": "function ()",
            "jaxlib.mlir.dialects.stablehlo.deserialize_portable_artifact": (
                "function (context, artifact) or function (*args, **kwargs)"
            ),
            "jaxlib.mlir.ir.StringAttr": "class () or class (*args, **kwargs)",
        },
    ),
    (
        "compat gives arrays TensorFlow's methods, and `jax.Array` is abstract.",
        {
            "jax._src.array.ArrayImpl": "class () or class (*args, **kwargs)",
        },
    ),
    (
        "compat's effects, such as prints, run once in a trace; `jax.core` no longer tells if there is one.",
        {
            "jax._src.core.trace_state_clean": "function ()",
        },
    ),
    (
        "A tape of compat's sees operations as they are computed: it is a trace, which jax has no public way to make.",
        {
            "jax._src.core.Trace": "class ()",
            "jax._src.core.Tracer": "class (trace, aval)",
            "jax._src.core.eval_trace": "attribute",
            "jax._src.core.set_current_trace": "class (trace, check_leaks) or function (trace, check_leaks)",
            "jax._src.core.trace_ctx.set_trace": "function (trace)",
            "jax._src.core.trace_ctx.trace": "attribute",
        },
    ),
    (
        "A variable that a tape watches is known from all other arrays when it is read.",
        {
            "keras.src.backend.StatelessScope.get_current_value": "function (self, variable)",
            "keras.src.backend.common.variables.Variable._maybe_autocast": "function (self, value)",
        },
    ),
    (
        "`fit`, `evaluate` and `predict` of models made in a strategy's scope are lockstep's; Keras has no hook.",
        {
            "keras.src.backend.jax.trainer.JAXTrainer": "class ()",
            "keras.src.backend.jax.trainer.JAXTrainer.__init__": "function (self)",
            "keras.src.backend.jax.trainer.JAXTrainer._eval_epoch_iterator": "attribute",
            "keras.src.trainers.trainer.Trainer": "class ()",
            "keras.src.trainers.trainer.Trainer.compile": (
                "function (self, optimizer, loss, loss_weights, metrics, weighted_metrics, run_eagerly, "
                "steps_per_execution, jit_compile, auto_scale_loss)"
            ),
        },
    ),
    (
        "Keras' variables have jax compile a program for each shape of their initial values: see `initial_values`.",
        {
            "keras.src.backend.jax.core.JaxVariable._layout": "attribute",
            "keras.src.backend.jax.core.JaxVariable._initialize_layout": "function (self)",
            "keras.src.backend.jax.core.JaxVariable._initialize_with_initializer": "function (self, initializer)",
            "keras.src.backend.jax.core.JaxVariable._initialize": "function (self, value)",
            "keras.src.initializers.random_initializers.compute_fans": "function (shape, input_axes, output_axes)",
        },
    ),
    (
        "The order of events in `fit`, `evaluate` and `train_on_batch` is Keras' own, with its parts.",
        {
            "keras.src.backend.config.max_epochs": "function ()",
            "keras.src.backend.config.max_steps_per_epoch": "function ()",
            "keras.src.layers.layer.Layer._flatten_layers": "function (self, include_self, recursive)",
            "keras.src.trainers.trainer.Trainer._assert_compile_called": "function (self, method_name)",
            "keras.src.trainers.trainer.Trainer._compile_config": "attribute",
            "keras.src.trainers.trainer.Trainer._compile_loss": "attribute",
            "keras.src.trainers.trainer.Trainer._compile_metrics": "attribute",
            "keras.src.trainers.trainer.Trainer._flatten_metrics_in_order": "function (self, logs)",
            "keras.src.trainers.trainer.Trainer._get_metrics_result_or_logs": "function (self, logs)",
            "keras.src.trainers.trainer.Trainer._initial_epoch": "attribute",
            "keras.src.trainers.trainer.Trainer._should_eval": "function (self, epoch, validation_freq)",
            "keras.src.trainers.trainer.Trainer._symbolic_build": "function (self, iterator, data_batch)",
            "keras.src.utils.python_utils.pythonify_logs": "function (logs)",
            "keras.src.utils.traceback_utils.filter_traceback": "function (fn)",
        },
    ),
    (
        "Input is taken as Keras takes it: the same arguments, the same errors, the same order of rows.",
        {
            "keras.src.trainers.data_adapters.array_data_adapter.ArrayDataAdapter": (
                "class (x, y, sample_weight, batch_size, steps, shuffle, class_weight)"
            ),
            "keras.src.trainers.data_adapters.array_data_adapter.ArrayDataAdapter._batch_size": "attribute",
            "keras.src.trainers.data_adapters.array_data_adapter.ArrayDataAdapter._get_iterator": (
                "function (self, slice_and_convert_fn, inputs)"
            ),
            "keras.src.trainers.data_adapters.array_data_adapter.ArrayDataAdapter._inputs": "attribute",
            "keras.src.trainers.data_adapters.array_data_adapter.ArrayDataAdapter._num_samples": "attribute",
            "keras.src.trainers.data_adapters.array_data_adapter.ArrayDataAdapter._shuffle": "attribute",
            "keras.src.trainers.data_adapters.array_data_adapter.ArrayDataAdapter._size": "attribute",
            "keras.src.trainers.data_adapters.array_data_adapter.can_convert_arrays": "function (arrays)",
            "keras.src.trainers.data_adapters.array_slicing.NumpySliceable": "class (array)",
            "keras.src.trainers.data_adapters.array_slicing.convert_to_sliceable": "function (arrays, target_backend)",
            "keras.src.trainers.data_adapters.array_slicing.train_validation_split": (
                "function (arrays, validation_split)"
            ),
            "keras.src.trainers.data_adapters.data_adapter.DataAdapter": "class ()",
            "keras.src.trainers.data_adapters.data_adapter_utils.class_weight_to_sample_weights": (
                "function (y, class_weight)"
            ),
            "keras.src.trainers.data_adapters.data_adapter_utils.unpack_x_y_sample_weight": "function (data)",
            "keras.src.trainers.data_adapters.get_data_adapter": (
                "function (x, y, sample_weight, batch_size, steps_per_epoch, shuffle, class_weight)"
            ),
        },
    ),
    (
        "A step is a pure function of variables, as in Keras' own JAX trainer.",
        {
            "keras.src.backend.StatelessScope": "class (state_mapping, collect_losses, initialize_variables)",
            "keras.src.backend.common.KerasVariable": (
                "class (initializer, shape, dtype, trainable, autocast, aggregation, synchronization, name, "
                "layout, **kwargs)"
            ),
            "keras.src.backend.common.KerasVariable.__init__": (
                "function (self, initializer, shape, dtype, trainable, autocast, aggregation, synchronization, "
                "name, layout, **kwargs)"
            ),
            "keras.src.backend.common.stateless_scope.get_stateless_scope": "function ()",
            "keras.src.backend.common.variables.Variable": (
                "class (initializer, shape, dtype, trainable, autocast, aggregation, synchronization, name, "
                "layout, **kwargs)"
            ),
            "keras.src.backend.common.variables.Variable._dtype": "attribute",
            "keras.src.backend.common.variables.Variable._initializer": "attribute",
            "keras.src.backend.common.variables.Variable._value": "attribute",
            "keras.src.backend.common.variables.initialize_all_variables": "function ()",
            "keras.src.backend.convert_to_tensor": "function (x, dtype, sparse, ragged)",
            "keras.src.backend.is_int_dtype": "function (dtype)",
            "keras.src.backend.jax.core.JaxVariable._direct_assign": "function (self, value)",
        },
    ),
    (
        "Servers hold tables that no task has whole: a variable and its slots are made without their values, and a "
        "worker's part of the step is what the step needs for its gradients.",
        {
            "jax.interpreters.partial_eval.dce_jaxpr": (
                "function (jaxpr, used_outputs, instantiate) or "
                "function (jaxpr, used_outputs, instantiate, live_inputs)"
            ),
            "keras.src.backend.common.variables.Variable._shape": "attribute",
            "keras.src.layers.layer.Layer._non_trainable_variables": "attribute",
            "keras.src.layers.layer.Layer._track_variable": "function (self, variable)",
            "keras.src.optimizers.base_optimizer.BaseOptimizer._clip_gradients": "function (self, grads)",
            "keras.src.optimizers.base_optimizer.BaseOptimizer.add_variable_from_reference": (
                "function (self, reference_variable, name, initializer)"
            ),
        },
    ),
    (
        "An optimizer of any kind: its variables, averages and scale of the loss are state of the step.",
        {
            "keras.src.optimizers.base_optimizer.BaseOptimizer": (
                "class (learning_rate, weight_decay, clipnorm, clipvalue, global_clipnorm, use_ema, ema_momentum, "
                "ema_overwrite_frequency, loss_scale_factor, gradient_accumulation_steps, name, **kwargs)"
            ),
            "keras.src.optimizers.base_optimizer.BaseOptimizer._backend_apply_gradients": (
                "function (self, grads, trainable_variables)"
            ),
            "keras.src.optimizers.base_optimizer.BaseOptimizer._backend_update_step": (
                "function (self, grads, trainable_variables, learning_rate)"
            ),
            "keras.src.optimizers.base_optimizer.BaseOptimizer._exclude_from_weight_decay_pattern": "attribute",
            "keras.src.optimizers.base_optimizer.BaseOptimizer._get_variable_index": "function (self, variable)",
            "keras.src.optimizers.base_optimizer.BaseOptimizer._learning_rate": "attribute",
            "keras.src.optimizers.base_optimizer.BaseOptimizer._model_variables_moving_average": "attribute",
            "keras.src.optimizers.base_optimizer.BaseOptimizer._trainable_variables": "attribute",
            "keras.src.optimizers.base_optimizer.BaseOptimizer._trainable_variables_indices": "attribute",
            "keras.src.optimizers.base_optimizer.BaseOptimizer._variables": "attribute",
            "keras.src.optimizers.base_optimizer.BaseOptimizer._update_model_variables_moving_average": (
                "function (self, trainable_variables)"
            ),
            "keras.src.optimizers.nadam.Nadam._momentums": "attribute",
            "keras.src.optimizers.loss_scale_optimizer.LossScaleOptimizer": (
                "class (inner_optimizer, initial_scale, dynamic_growth_steps, name, **kwargs)"
            ),
            "keras.src.optimizers.multi_optimizer.MultiOptimizer._inner_optimizers": "attribute",
            "keras.src.optimizers.rmsprop.RMSprop._velocities": "attribute",
        },
    ),
    (
        "Losses and metrics of a compiled model: computed on each replica, by an Estimator, and with Keras 2's names.",
        {
            "keras.src.metrics.iou_metrics._IoUBase": (
                "class (num_classes, name, dtype, ignore_class, sparse_y_true, sparse_y_pred, axis)"
            ),
            "keras.src.losses.loss.standardize_reduction": "function (reduction)",
            "keras.src.trainers.compile_utils.CompileLoss": "class (loss, loss_weights, reduction, output_names)",
            "keras.src.trainers.compile_utils.CompileLoss._user_loss": "attribute",
            "keras.src.trainers.compile_utils.CompileLoss._user_loss_weights": "attribute",
            "keras.src.trainers.compile_utils.CompileMetrics": "class (metrics, weighted_metrics, name, output_names)",
            "keras.src.trainers.compile_utils.CompileMetrics._flat_metrics": "attribute",
            "keras.src.trainers.compile_utils.CompileMetrics._flat_weighted_metrics": "attribute",
            "keras.src.trainers.compile_utils.CompileMetrics._user_metrics": "attribute",
            "keras.src.trainers.compile_utils.CompileMetrics._user_weighted_metrics": "attribute",
        },
    ),
    (
        "A key of Keras' global state: seeds, names, and what a layer is made in.",
        {
            "keras.src.backend.common.global_state.get_global_attribute": "function (name, default, set_to_default)",
            "keras.src.backend.common.global_state.set_global_attribute": "function (name, value)",
            "keras.src.backend.common.name_scope.current_path": "function ()",
            "keras.src.backend.name_scope": "class (name, **kwargs)",
            "keras.src.random.seed_generator.GLOBAL_SEED_GENERATOR": "attribute",
            "keras.src.random.seed_generator.draw_seed": "function (seed)",
            "keras.src.random.seed_generator.global_seed_generator": "function ()",
            "keras.src.utils.naming.uniquify": "function (name)",
        },
    ),
    (
        "Structures in Keras' order of leaves.",
        {
            "keras.src.tree.flatten": "function (structure)",
            "keras.src.tree.map_structure": "function (func, *structures, none_is_leaf)",
            "keras.src.tree.map_structure_up_to": "function (shallow_structure, func, *structures)",
        },
    ),
    (
        "Files are written beside their path and renamed, whoever calls; compat has Keras 2's formats.",
        {
            "keras.src.legacy.saving.legacy_h5_format.load_model_from_hdf5": (
                "function (filepath, custom_objects, compile, safe_mode)"
            ),
            "keras.src.legacy.saving.legacy_h5_format.save_model_to_hdf5": (
                "function (model, filepath, overwrite, include_optimizer)"
            ),
            "keras.src.legacy.saving.legacy_h5_format.save_weights_to_hdf5_group": "function (group, model)",
            "keras.src.saving.saving_api.load_weights": "function (model, filepath, skip_mismatch, **kwargs)",
            "keras.src.saving.saving_api.save_weights": (
                "function (model, filepath, overwrite, max_shard_size, **kwargs)"
            ),
            "keras.src.layers.core.lambda_layer.Lambda._serialize_function_to_config": "function (self, fn)",
            "keras.src.layers.layer.Layer._build_shapes_dict": "attribute",
            "keras.src.saving.saving_lib.save_model": "function (model, filepath, weights_format, zipped)",
            "keras.src.saving.saving_lib.save_weights_only": (
                "function (model, filepath, max_shard_size, objects_to_skip)"
            ),
            "keras.src.utils.io_utils.ask_to_proceed_with_overwrite": "function (filepath)",
        },
    ),
    (
        "Models that are fed with text are cut in two: layers of text run on the host, and the rest is compiled.",
        {
            "keras.src.models.functional.Functional": "class (*args, **kwargs)",
            "keras.src.models.functional.Functional._assert_input_compatibility": "function (self, *args)",
            "keras.src.models.functional.Functional._inputs_struct": "attribute",
            "keras.src.models.functional.Functional._nodes_by_depth": "attribute",
            "keras.src.models.functional.Functional._outputs_struct": "attribute",
            "keras.src.models.functional.operation_fn": "function (operation, **call_context_args)",
            "keras.src.ops.function.Function": "class (inputs, outputs, name)",
            "keras.src.ops.function.Function._run_through_graph": ("function (self, inputs, operation_fn, call_fn)"),
        },
    ),
    (
        "Archives are extracted, and crossentropies and statistics computed, as Keras 2 does.",
        {
            "keras.src.backend.config.keras_home": "function ()",
            "keras.src.backend.jax.nn.hard_sigmoid": "function (x)",
            "keras.src.layers.preprocessing.normalization.Normalization._mean_and_var_shape": "attribute",
            "keras.src.layers.preprocessing.normalization.Normalization._reduce_axis": "attribute",
            "keras.src.utils.file_utils.extract_archive": "function (file_path, path, archive_format)",
        },
    ),
    (
        "State of Keras' callbacks goes into backups; a checkpoint is written by the chief alone.",
        {
            "keras.src.callbacks.model_checkpoint.ModelCheckpoint._batches_seen_since_last_saving": "attribute",
            "keras.src.callbacks.model_checkpoint.ModelCheckpoint._get_file_path": (
                "function (self, epoch, batch, logs)"
            ),
            "keras.src.callbacks.model_checkpoint.ModelCheckpoint._last_batch_seen": "attribute",
            "keras.src.callbacks.model_checkpoint.ModelCheckpoint._save_model": "function (self, epoch, batch, logs)",
        },
    ),
    (
        "Servers update variables one by one: weight decay leaves some out, which configurations do not say.",
        {
            "keras.src.optimizers.base_optimizer.BaseOptimizer._exclude_from_weight_decay_cache": "attribute",
            "keras.src.optimizers.base_optimizer.BaseOptimizer._iterations": "attribute",
            "keras.src.optimizers.base_optimizer.BaseOptimizer._use_weight_decay": "function (self, variable)",
            "keras.src.optimizers.base_optimizer.BaseOptimizer._var_key": "function (self, variable)",
        },
    ),
    (
        "Batch normalisation takes its moments over the global batch.",
        {
            "keras.src.layers.normalization.batch_normalization.BatchNormalization._moments": (
                "function (self, inputs, mask)"
            ),
            "keras.src.layers.normalization.batch_normalization.BatchNormalization._reduction_axes": "attribute",
        },
    ),
    (
        "Layers and models with Keras 2's attributes, in compat.",
        {
            "keras.src.backend.rnn": (
                "function (step_function, inputs, initial_states, go_backwards, mask, constants, unroll, "
                "input_length, time_major, zero_output_for_mask, return_all_outputs)"
            ),
            "keras.src.layers.layer.Layer._get_node_attribute_at_index": (
                "function (self, node_index, attr, attr_name)"
            ),
            "keras.src.layers.layer.Layer._inbound_nodes": "attribute",
            "keras.src.layers.layer.Layer._layers": "attribute",
            "keras.src.legacy.preprocessing.image": "module",
            "keras.src.models.sequential.Sequential._functional": "attribute",
            "keras.src.models.sequential.Sequential._maybe_rebuild": "function (self)",
        },
    ),
    (
        "Steps of Keras 2, random numbers in layers, and models built from shapes: Keras traces and builds by these.",
        {
            "keras.src.backend.common.stateless_scope.StatelessScope": (
                "class (state_mapping, collect_losses, initialize_variables)"
            ),
            "keras.src.backend.common.symbolic_scope.in_symbolic_scope": "function ()",
            "keras.src.backend.compute_output_spec": "function (fn, *args, **kwargs)",
            "keras.src.backend.standardize_dtype": "function (dtype)",
            "keras.src.layers.layer.Layer._lock_state": "function (self)",
            "keras.src.layers.layer.Layer._post_build": "function (self)",
            "keras.src.layers.layer.Layer._seed_generators": "attribute",
            "keras.src.layers.layer.Layer._tracker": "attribute",
            "keras.src.layers.layer.might_have_unbuilt_state": "function (layer)",
            "keras.src.trainers.trainer.Trainer._loss_tracker": "attribute",
        },
    ),
)

PARTS: dict[str, str] = {name: shape for _, parts in _TABLE for name, shape in parts.items()}
