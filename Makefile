# Everything a newcomer types. Only Python 3.11, make and a package registry are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# For `make image`: the target (`cpu`, `torch` or `gpu`) and further options for the builder.
TARGET ?= cpu
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
IMAGE_OPTIONS ?=
# For `make graph`: where to.
DIST ?= dist
# For `make test-thorough` and `make test-alone`: of which files to run what takes long.
THOROUGH ?= tests
# For `make test-alone`: options for pytest, such as --last-failed.
ALONE_OPTIONS ?=
# For `make test-deploy`: which tests to run, which parts `tests/deploy/install.sh` installs, all by default, and options
# for pytest.
DEPLOY_TESTS ?= tests/deploy tests/explorer
DEPLOY_PARTS ?=
DEPLOY_OPTIONS ?=

# Files besides pyproject.toml that contain the version. `make version NEW=…` updates them; see docs/releasing.md.
VERSIONED := Dockerfile docker-compose.yml docker-compose.gpu.yml docs/api.md docs/install.md docs/containers.md docs/monitoring.md \
  deploy/kubernetes/README.md deploy/kubernetes/base/deployment.yaml deploy/kubernetes/components/gpu/deployment.yaml \
  deploy/kubernetes/components/model/deployment.yaml $(wildcard deploy/kubernetes/overlays/*/kustomization.yaml)

# If it were set, every process that the tests start would compile PyTorch and all else that it imports again.
unexport PYTHONDONTWRITEBYTECODE

# The environments of `make test-libraries`; those of Node only where there is npm.
LIBRARIES := $(patsubst tests/libraries/environments/%.txt,.venv-clients/%/.done,$(wildcard \
  tests/libraries/environments/*.txt $(if $(shell command -v npm),tests/libraries/environments/node/*.txt)))
# Those that are installed in seconds; `make test-rest` runs the tests of all that are installed.
QUICK_LIBRARIES := openai cohere huggingface_hub voyageai tritonclient ollama

.PHONY: serve check test test-thorough test-alone test-libraries quick-libraries test-rest test-all lint lock clean image wheel graph explorer test-deploy version

serve: $(VENV)/.serve
	@exec $(BIN)/headlight

# A worker of mypy has three seconds to start, which is too short on a busy machine: then the code is 2.
check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers 2 || { [ $$? -eq 2 ] && $(BIN)/mypy; }

# What to run before each commit. Two files of tests at a time: most wait for a service to start. Files of which all
# tests are marked are not even collected, because that takes seconds in each process.
MARKED = $$(grep --recursive --extended-regexp --files-with-matches --include='test_*.py' \
  '^pytestmark = .*mark\.(deploy|alone|thorough|repeated)' tests)

test: check
	$(BIN)/pytest -n 2 --dist loadfile --durations=10 $$(printf -- '--ignore=%s ' $(MARKED)) \
	  -m "not deploy and not alone and not thorough and not repeated"

# The rest: more of the same with other backends, and what is timed so closely that nothing else may run beside it.
test-rest: test-thorough
	@$(MAKE) test-alone

test-thorough: $(VENV)/.test
	$(BIN)/pytest -n 2 --dist loadfile -m "thorough and not alone and not deploy and not repeated" $(THOROUGH)

# Only files that contain the mark are collected, because to collect all of them takes ten seconds. What takes long is run
# of those that THOROUGH names; pytest's code is 5 where none of their tests does.
ALONE = grep --recursive --files-with-matches --include='test_*.py' 'mark\.alone'

test-alone: $(VENV)/.test
	$(BIN)/pytest $(ALONE_OPTIONS) -m "alone and not thorough and not deploy and not repeated" $$($(ALONE) tests) \
	  || [ -n "$(ALONE_OPTIONS)" -a $$? -eq 5 ]
	files=$$($(ALONE) $(THOROUGH)); [ -z "$$files" ] || \
	  $(BIN)/pytest -m "alone and thorough and not deploy and not repeated" $$files || [ $$? -eq 5 ]

test-all: test test-rest
	$(BIN)/pytest -n 2 --dist loadfile -m "repeated and not alone and not deploy"

# Other people's libraries, clients of other servers, each in an environment of its own.
test-libraries: $(VENV)/.test $(LIBRARIES)
	$(BIN)/pytest -m registry tests/libraries

quick-libraries: $(QUICK_LIBRARIES:%=.venv-clients/%/.done)

.venv-clients/%/.done: tests/libraries/environments/%.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --no-compile --no-deps -r $<
	@touch $@

# A package.json of its own, or else npm looks for one in the folders above.
.venv-clients/node/%/.done: tests/libraries/environments/node/%.txt
	mkdir -p $(@D)
	echo '{"private": true}' > $(@D)/package.json
	cd $(@D) && npm install --silent --no-audit --no-fund --no-package-lock $$(cat $(abspath $<))
	@touch $@

lint: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy --num-workers 2 || { [ $$? -eq 2 ] && $(BIN)/mypy; }

# Only Docker's image format keeps HEALTHCHECK, so podman and buildah need --format docker. Labels are not build
# arguments, because older versions of these tools would take an earlier build's labels from their cache.
image:
	@if docker info > /dev/null 2>&1; then build="docker build"; \
	elif command -v podman > /dev/null; then build="podman build --format docker"; \
	elif command -v buildah > /dev/null; then build="buildah build --format docker"; \
	else echo "make image needs docker, podman or buildah." >&2; exit 1; fi; \
	set -x; $$build --target $(TARGET) --tag headlight:$(VERSION)-$(TARGET) \
	  --label org.opencontainers.image.revision="$$(git rev-parse HEAD 2> /dev/null)" \
	  --label org.opencontainers.image.created="$$(date -u +%Y-%m-%dT%H:%M:%SZ)" $(IMAGE_OPTIONS) .

# The service with its compiled kernels, for this kind of processor, and the Python client, into dist/.
wheel: $(VENV)/.test
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist . client/python
	@ls dist/*-linux_*.whl > /dev/null 2>&1 || { echo "The kernels could not be compiled: see above." >&2; exit 1; }
	@ls dist

# The embedded model as a graph, for a release: whoever serves it needs no PyTorch at all.
graph: $(VENV)/.test
	rm -rf $(DIST)/all-MiniLM-L6-v2
	$(BIN)/python -m export all-MiniLM-L6-v2 $(DIST)/all-MiniLM-L6-v2
	tar --create --gzip --file $(DIST)/all-MiniLM-L6-v2.tar.gz --directory $(DIST) all-MiniLM-L6-v2

# The page at /explorer, from explorer/ into service/explorer/static. Only changing it needs Node: the result is committed.
explorer:
	cd explorer && npm ci --no-audit --no-fund && npm run build

version:
	@test -n "$(NEW)" || { echo "make version NEW=…: which one?" >&2; exit 1; }
	perl -pi -e 's/^version = "\Q$(VERSION)\E"/version = "$(NEW)"/' pyproject.toml client/python/pyproject.toml
	perl -pi -e 's/^version: \Q$(VERSION)\E$$/version: $(NEW)/' CITATION.cff
	perl -pi -e 's/^( +"version": )"\Q$(VERSION)\E"/$${1}"$(NEW)"/ if $$. <= 10; close ARGV if eof' \
	  client/js/package.json client/js/package-lock.json
	perl -pi -e 's/(headlight-client-)\Q$(VERSION)\E(?=\.tgz)/$${1}$(NEW)/g' client/js/README.md
	perl -pi -e 's/(headlight:|headlight-exporter:|newTag: |version":"|version=")\Q$(VERSION)\E(?=[-"])/$${1}$(NEW)/g' $(VERSIONED)

# On Debian 12, as root: builds and runs the images, compose and Prometheus, and opens the explorer in Chromium.
test-deploy: $(VENV)/.test
	tests/deploy/install.sh $(DEPLOY_PARTS)
	$(BIN)/pytest -m deploy $(DEPLOY_OPTIONS) $(DEPLOY_TESTS)

# install.sh pins torch: the build for this machine, of one release.
$(VENV)/.serve: install.sh pyproject.toml client/python/pyproject.toml requirements.lock hatch_build.py $(wildcard model/pytorch/kernels/cpp/* model/pytorch/kernels/cpp/*/* model/pytorch/kernels/*.py)
	@PYTHON="$(PYTHON)" ./install.sh $(VENV)
	@touch $@

$(VENV)/.test: $(VENV)/.serve requirements-dev.lock
	$(BIN)/python -m pip install --quiet --no-compile -r requirements-dev.lock
	touch $@

# Exact versions without hosts or hashes. torch and its CUDA packages are excluded: install.sh has them.
lock: $(VENV)/.test
	$(BIN)/python -m pip install --quiet uv==0.13.8
	$(BIN)/uv pip compile --quiet --no-header --no-annotate --upgrade --python-version 3.11 \
	  --extra export pyproject.toml | grep -vE '^(torch|triton|nvidia-|cuda-)' > requirements.lock
	$(BIN)/uv pip compile --quiet --no-header --no-annotate --python-version 3.11 \
	  --constraint requirements.lock --extra cpu pyproject.toml > requirements-onnx.lock
	$(BIN)/uv pip compile --quiet --no-header --no-annotate --python-version 3.11 \
	  --constraint requirements.lock --extra export --extra otel --extra dev pyproject.toml \
	  | grep -vE '^(torch|triton|nvidia-|cuda-)' > requirements-dev.lock

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .schemathesis model/pytorch/kernels/*.so \
	  $(addprefix client/js/,node_modules dist types build) explorer/node_modules
