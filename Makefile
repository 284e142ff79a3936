# Each target does all the set-up that it needs; Python 3.11 or later is all that must be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo first-steps test test-all test-rest check check-pythons chaos fuzz conformance test-gpu bench bench-quick bench-zoo bench-communication bench-scaling bench-gpu docs lock clean

setup: $(READY)

# The main job: the MNIST network of the tf.distribute tutorials, on two workers.
demo: $(READY)
	$(BIN)/lockstep demo

# What runs in one process, and nine cases on two workers: minutes.
test: $(READY)
	scripts/test

# A stranger's way from an empty directory to a report, timed.
first-steps:
	$(PYTHON) scripts/first_steps

test-all: test test-rest

# What `make test` leaves out: every layout of processes, faults, restarts, and 25 examples of each property.
test-rest: $(READY)
	scripts/test rest

# Training with faults at random instants, beside the undisturbed run: 50 schedules, or make chaos SEEDS=5; and 200 kills
# of a chief that writes checkpoints; and kills of tasks with parameter servers: 20 in 1,000 asynchronous updates, 50
# schedules of synchronous training, and how soon a job is itself again.
chaos: $(READY)
	$(BIN)/python -m tests.chaos $(if $(SEEDS),--seeds $(SEEDS))
	$(BIN)/python -m tests.chaos.kills
	$(BIN)/python -m tests.chaos.servers --mode async --seeds 1 --updates 1000 --kills 20
	$(BIN)/python -m tests.chaos.servers $(if $(SEEDS),--seeds $(SEEDS))
	$(BIN)/python -m tests.chaos.server_recovery

# 100,000 strangers at every port of a job that trains.
fuzz: $(READY)
	$(BIN)/python -m tests.faults.fuzz_ports

# TensorFlow's own Python tests on lockstep, from a directory of its sources: make conformance TESTS=DIR
conformance: $(READY)
	$(BIN)/python -m tests.conformance $(TESTS)

check: $(READY) $(VENV)/check/.ready
	scripts/check

# The gate once more, on the oldest and the newest supported Python that are installed.
check-pythons: $(READY) $(VENV)/check/.ready
	scripts/check-pythons

# lockstep beside its peers, which get environments of their own. TensorFlow 2.15's needs Python 3.11: without one its
# figures are missing, and the result says so.
bench: $(READY) $(VENV)/lockstep/.ready $(VENV)/tensorflow/.ready $(VENV)/torch/.ready $(VENV)/plot/.ready
	$(BIN)/python benchmarks/run.py

# Less of everything, in minutes; for some rows: make bench-quick ROWS=2,4
bench-quick: $(READY) $(VENV)/lockstep/.ready $(VENV)/tensorflow/.ready $(VENV)/torch/.ready $(VENV)/plot/.ready
	$(BIN)/python benchmarks/run.py --quick $(if $(ROWS),--rows $(ROWS))

# Networks that nobody tuned for, worst first; for some: make bench-zoo NETWORKS="U-Net,GRU"
bench-zoo: $(READY) $(VENV)/lockstep/.ready $(VENV)/tensorflow/.ready $(VENV)/plot/.ready
	$(BIN)/python benchmarks/zoo $(if $(NETWORKS),--networks "$(NETWORKS)")

# How gradients travel: what each choice and each compression sends, how fast, and what it costs in accuracy.
bench-communication: $(READY)
	$(BIN)/python benchmarks/communication.py

# 1, 2 and 4 workers of this machine, and what that says of 1,024.
bench-scaling: $(READY) $(VENV)/plot/.ready
	$(BIN)/python benchmarks/scaling.py

# One NVIDIA GPU. Everything comes from the package registry.
bench-gpu: $(READY) $(VENV)/cuda/.ready $(VENV)/torch/.ready $(VENV)/plot/.ready
	$(BIN)/python benchmarks/gpu.py --lockstep $(VENV)/cuda/bin/python

# The invariant on one NVIDIA GPU: one replica, and two processes through NCCL.
test-gpu: $(READY) $(VENV)/cuda/.tests
	$(VENV)/cuda/bin/python -m pytest --numprocesses=8 --dist=worksteal tests/gpu

# The type checker. No test needs it, and its Node is 250 MB.
$(VENV)/check/.ready: $(READY) requirements/check.txt
	$(PYTHON) -m venv --clear $(VENV)/check
	scripts/install $(VENV)/check requirements/check.txt
	@touch $@

# What users have: Keras imports some of the development packages wherever they are, in every process.
$(VENV)/lockstep/.ready: $(READY)
	$(PYTHON) -m venv --clear $(VENV)/lockstep
	$(VENV)/lockstep/bin/python -m pip install --quiet --constraint requirements/dev.txt .
	@touch $@

$(VENV)/tensorflow/.ready: $(READY)
	$(shell command -v python3.11 || echo $(PYTHON)) -m venv --clear $(VENV)/tensorflow
	-$(VENV)/tensorflow/bin/python -m pip install --quiet tensorflow-cpu==2.15.1 "numpy<2"
	@touch $@

$(VENV)/torch/.ready: $(READY)
	$(PYTHON) -m venv --clear $(VENV)/torch
	$(VENV)/torch/bin/python -m pip install --quiet torch==2.13.0 numpy
	@touch $@

# Not in .venv: Keras imports matplotlib where it is installed, in every process.
$(VENV)/plot/.ready: $(READY)
	$(PYTHON) -m venv --clear $(VENV)/plot
	$(VENV)/plot/bin/python -m pip install --quiet "matplotlib>=3.10"
	@touch $@

$(VENV)/cuda/.ready: $(READY)
	$(PYTHON) -m venv --clear $(VENV)/cuda
	$(VENV)/cuda/bin/python -m pip install --quiet '.[cuda,images]'
	@touch $@

$(VENV)/cuda/.tests: $(VENV)/cuda/.ready
	$(VENV)/cuda/bin/python -m pip install --quiet --constraint requirements/dev.txt pytest pytest-xdist hypothesis optax
	@touch $@

# The documentation site, into site/: no warning, no dead link, no public name without its place in the reference.
# MkDocs stays below 2 by the lock; its plugins' notices of that are no warnings of this build.
docs: $(READY) $(VENV)/docs/.ready
	$(BIN)/python scripts/site/inspected.py $(VENV)/docs/inspected
	PYTHONPATH=scripts/site:src NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(VENV)/docs/bin/mkdocs build --strict
	PYTHONPATH=scripts/site:src $(VENV)/docs/bin/python scripts/site/check.py site

# Not in .venv, so that what trains is not beside what writes pages.
$(VENV)/docs/.ready: $(READY) requirements/docs.txt
	$(PYTHON) -m venv --clear $(VENV)/docs
	scripts/install $(VENV)/docs requirements/docs.txt
	@touch $@

# Chooses the newest versions that fit, for every supported Python.
lock: $(READY)
	scripts/lock

clean:
	rm -rf $(VENV)

$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "lockstep needs Python 3.11 or later; $(PYTHON) is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	scripts/install $(VENV) requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@# On all cores, as pip would not. Some packages have templates that are no Python.
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib src || true
	@touch $(READY)
