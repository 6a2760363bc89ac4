# `make demo` and `make test` need Python 3.11 or newer, g++ and make; both set up their own environment in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test look sweep faults proofs record fuzz lint clean

help:
	@echo "make demo   optimize two kernels and build the site (no GPU or key needed; both are used when there)"
	@echo "make test   lint, types, import directions and every test; of those that run many kernels on the processor, a part in turn"
	@echo "make look   screenshots of the published site's page types, and what axe-core finds there, into build/look"
	@echo "make sweep  every test in full, every kernel and every mutant on all affordable cases, on the processor"
	@echo "make faults kill 200 commands at random points and record what came of it, on the processor"
	@echo "make proofs on a GPU: what the site shows under How we know, into db/local.sqlite"
	@echo "make record on a GPU: time every shipped version in one session, publish it and build site/"
	@echo "make fuzz   bad input of every kind, twenty times as much as make test tries"
	@echo "make clean  remove the environment, the caches and build/"

# What the demo needs, and what developing does besides. Each stamp is newer than pyproject.toml when its part is up to date. Python
# compiles what it imports, which is a fraction of what is installed.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "msbench needs Python 3.11 or newer; set PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) .
	@if command -v nvidia-smi >/dev/null 2>&1; then \
		echo "An NVIDIA GPU is here: installing the cuda extra"; \
		$(PIP) '.[cuda]'; \
	fi
	touch $@

$(VENV)/.stamp: $(VENV)/.installed
	$(PIP) '.[dev]'
	touch $@

# The site goes to build/, which git ignores: site/ is the published one, without what was run here.
demo: $(VENV)/.installed
	$(BIN)/msbench optimize rms_norm/fp32 softmax/bf16
	$(BIN)/msbench build-site
	@echo "Open that address in a browser, or see it at http://127.0.0.1:8000 with:"
	@echo "    $(BIN)/msbench serve"

lint: $(VENV)/.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Each of the two processes takes tests that stand side by side, which share what they prepare, and in the end some of the other's.
PYTEST := $(BIN)/pytest -n 2 --dist worksteal

test: lint
	$(PYTEST)

# Needs Chromium and its driver. Fails if axe-core finds anything.
look: $(VENV)/.stamp
	$(BIN)/python -m tests.browser.look --site site

# What `make test` samples, in full, on the processor.
sweep: $(VENV)/.stamp
	MSBENCH_TEST_PART=all $(PYTEST)
	mkdir -p build
	$(BIN)/msbench bench --executor cpu --versions naive,library,best --db build/sweep.sqlite
	$(BIN)/msbench mutants --executor cpu

# Kills of real commands (docs/faults.md).
faults: $(VENV)/.stamp
	$(BIN)/python -m tests.faults.study

# Half an hour on an H200. One GPU takes one kill at a time, files take more; what was interrupted goes on.
proofs: $(VENV)/.stamp
	$(BIN)/msbench exploits --executor cuda
	$(BIN)/msbench bench rms_norm vector_add prefix_sum layer_norm swiglu softmax --executor cuda --versions naive,best --cases paper+odd --batch 1 --profile-harness
	$(BIN)/msbench study --tasks 20 --pairs 3 --resume
	$(BIN)/python -m tests.faults.study --executor cuda --commands merge,build-site --kills 80 --jobs 6 --resume
	$(BIN)/python -m tests.faults.study --executor cuda --commands optimize,bench --kills 6,34 --jobs 1 --resume

# What a published figure rests on. An interrupted bench goes on.
record: $(VENV)/.stamp
	$(BIN)/msbench bench --executor cuda --versions naive,library,best --batch 16 --budget 0.2 --hot --resume
	$(BIN)/msbench db publish db/local.sqlite
	$(BIN)/msbench build-site --db db/published.sqlite --out site
	$(BIN)/msbench standings --db db/published.sqlite --markdown docs/kernels.md

fuzz: $(VENV)/.stamp
	HYPOTHESIS_PROFILE=fuzz MSBENCH_TEST_PART=all MSBENCH_TEST_SEEDS=1000 $(PYTEST) tests/fuzz tests/test_operators_kernels.py --timeout 3600

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
