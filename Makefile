# Each target does all the set-up that it needs; Python 3.11 or later is all that must be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo test check bench-input bench-estimator lock clean

setup: $(READY)

# The main job: the MNIST network of the tf.distribute tutorials, on two workers.
demo: $(READY)
	$(BIN)/lockstep demo

test: $(READY)
	$(BIN)/python -m pytest

check: $(READY)
	scripts/check

# lockstep.data beside tf.data, which gets an environment of its own; it needs Python 3.11 or older.
bench-input: $(READY) $(VENV)/tensorflow/.ready
	$(BIN)/python benchmarks/input.py

# train_and_evaluate beside TensorFlow 2.15's.
bench-estimator: $(READY) $(VENV)/tensorflow/.ready
	$(BIN)/python benchmarks/estimator.py

$(VENV)/tensorflow/.ready:
	$(PYTHON) -m venv --clear $(VENV)/tensorflow
	$(VENV)/tensorflow/bin/python -m pip install --quiet tensorflow-cpu==2.15.1 "numpy<2"
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
	$(BIN)/python -m pip install --quiet --requirement requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $(READY)
