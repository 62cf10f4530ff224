# What people and CI run. Everything happens in .venv; `make clean` removes it.
VENV    := .venv
BIN     := $(VENV)/bin
PYTHON  ?= python3
# Exactly these versions, also of what builds the package: no release of somebody else changes anything here.
PIP     := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt $(BIN)/pip
REQUIRE := $(if $(filter 1,$(EMULATOR_REQUIRE_DOCKER)),--emulator-require docker)
# A busy machine takes several times as long. What trainings must reach does not depend on it.
PATIENT := --emulator-set timeout=20m --timeout 1500

.PHONY: help demo quick test test-all test-rest fuzz long gallery bench images check check-size format constraints docs reference docker browser compiler registry slurm kubernetes kubernetes-stop clean

help:            ## Show this
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 17

demo: $(VENV)/.installed   ## A training loses a worker, 12 seconds; then the same with TensorFlow, if Docker answers
	$(BIN)/emulate demo
	@if docker version >/dev/null 2>&1; then scripts/ensure-base && $(BIN)/emulate demo --tensorflow; fi

# Many tests and benchmarks start commands: without bytecode each would compile the package again.
quick test test-all test-rest long gallery bench: export PYTHONDONTWRITEBYTECODE :=
# As in pyproject.toml, which an -m of the command line replaces.
ALL    := not campaign and not programs and not long

quick: $(VENV)/.dev ## What starts nothing outside its own process: after each change, 90 seconds
	$(BIN)/pytest tests -m quick -n auto --durations 10 --hypothesis-profile quick

# One after the other: quick tests compute, and synchronous training beside them takes minutes.
test: $(VENV)/.dev images  ## The gate: those, real engines, a training of each kind; 4 minutes, 10 the first time
	@$(BIN)/python -m tests.gate '-n auto -m quick' '-n 3 --dist loadscope -m basic $(REQUIRE) $(PATIENT)'

test-all: test test-rest ## Everything; an hour

# In one run, so that no core waits (tests/scheduling.py). What it needs and lacks, it fails for.
test-rest: REQUIRE := --emulator-require docker
test-rest: export EMULATOR_REQUIRE_DOCKER := 1
test-rest: export EMULATOR_REQUIRE_COMPILER := 1
test-rest: export EMULATOR_REQUIRE_BROWSER := 1
test-rest: export EMULATOR_REQUIRE_REGISTRY := 1
test-rest: export EMULATOR_REQUIRE_SLURM := 1
test-rest: export EMULATOR_REQUIRE_KUBERNETES := 1
test-rest: docker compiler browser registry slurm kubernetes $(VENV)/.dev $(VENV)/.tensorflow images ## What test-all adds to test: all trainings, commands, cluster, browser
	$(BIN)/pytest tests scenarios -n 6 --dist loadscope $(REQUIRE) $(PATIENT) \
		-m '$(ALL) and not (quick or basic)'

fuzz: $(VENV)/.dev ## Half an hour of fuzzing with other examples each time
	$(BIN)/pytest tests -m fuzz -n 2 --timeout 7200 --hypothesis-profile search

long: $(VENV)/.dev $(VENV)/.tensorflow images ## What takes too long for test-all: an hour
	$(BIN)/pytest tests scenarios -n 3 --dist loadscope $(REQUIRE) $(PATIENT) -m 'long and not (campaign or programs)'

gallery: $(VENV)/.dev $(VENV)/.tensorflow images ## Run all scenarios of the gallery; the runs are in runs/gallery
	$(BIN)/pytest scenarios tests/gallery -m gallery -n 3 --dist worksteal --emulator-out runs/gallery $(REQUIRE)

bench: $(VENV)/.dev images ## Measure everything that docs/benchmarks.md shows, and write it there
	$(BIN)/python -m benchmarks.bench

# Before the tests, whose time limits are for tests: on a fresh machine this takes minutes.
# Two at a time: one unpacks while the other waits for its packages.
images: IMAGES := network python cpu pytorch jax
images: $(VENV)/.installed ## The images that the tests run in, where a Docker engine answers
	@if docker version >/dev/null 2>&1; then \
		scripts/ensure-base && $(MAKE) --no-print-directory --jobs 2 $(addprefix image-,$(IMAGES)); \
	else echo 'no Docker engine answers: tests that need one are skipped (`make docker` starts one)'; fi

image-%:
	@$(BIN)/emulate build $*

check: $(VENV)/.dev  ## Format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check-size: $(VENV)/.dev ## Whether code and tests have more lines than they may
	$(BIN)/python -m scripts.structure --check

format: $(VENV)/.dev ## Put the code in order
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

constraints: $(VENV)/.dev ## Write constraints.txt: the versions of today of all that pip installs here and in images
	$(BIN)/python -m scripts.constraints

docs: $(VENV)/.dev ## The documentation as a site in build/site; a broken link fails it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

reference: $(VENV)/.dev ## Write docs/reference/ from the code
	$(BIN)/python -m scripts.reference

docker:          ## A Docker engine for a Debian or Ubuntu machine where none answers
	scripts/ensure-docker

browser:         ## A Chromium for the tests that look at reports, on Debian or Ubuntu
	scripts/ensure-browser

compiler:        ## A C compiler for the tests that compile a stand-in for the GPU driver
	scripts/ensure-compiler

registry:        ## An image registry for the tests that push and pull, on Debian or Ubuntu
	scripts/ensure-registry

slurm:           ## The programs of Slurm for the tests on a controller and a node, on Debian or Ubuntu
	scripts/ensure-slurm

kubernetes:      ## A real Kubernetes for the tests on Debian 12, on its Docker engine; built once
	PYTHON=$(PYTHON) scripts/ensure-kubernetes start

kubernetes-stop: ## Remove it; the binaries stay
	PYTHON=$(PYTHON) scripts/ensure-kubernetes stop

clean:           ## Remove the environment and caches, and what crashed runs have left
	-$(BIN)/emulate clean
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache dist

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(PIP) install --quiet --editable '.[test]'
	@touch $@

# What the demo does without: 1 GB of tools, and of libraries that only tests use. TensorFlow and these
# are resolved together, so that neither replaces a version that the other needs.
$(VENV)/.dev: pyproject.toml constraints.txt $(VENV)/.installed
	$(PIP) install --quiet --editable ".[dev$$(test ! -e $(VENV)/.tensorflow || echo ,tensorflow)]"
	@touch $@

# Tasks of the process engine run on this machine: they need TensorFlow here.
$(VENV)/.tensorflow: pyproject.toml constraints.txt $(VENV)/.installed
	$(PIP) install --quiet --editable ".[test,tensorflow$$(test ! -e $(VENV)/.dev || echo ,dev)]"
	@touch $@
