# Each target does all the set-up that it needs; Python 3.11 or later is all that must be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo test check lock clean

setup: $(READY)

# The main job: the MNIST network of the tf.distribute tutorials, on two workers.
demo: $(READY)
	$(BIN)/lockstep demo

test: $(READY)
	$(BIN)/python -m pytest

check: $(READY)
	scripts/check

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
