# make demo    install, run the main job, show its result
# make test    install with the test extra, run the tests (make test SLOW=1: the slow ones too;
#              EXTRAS="mpi test-cuda": with MPI and NVRTC, ARGS=... for pytest)
# make fuzz    random exploration, a new seed each time, printed (SEED=..: this one, ROUNDS=..: as many seeds from it on, CASES=..);
#              stops at the first failure, and keeps its cases in fuzz-cases/
# make check   formatting, lint, types, layers, size (bench/count.py)
# make bench   the benchmarks; make clean removes the environment and everything built
# make test-gpu, make bench-gpu   on one CUDA GPU, ten minutes each (CUDA=12: CuPy for CUDA 12; GPU_PYTHON=python3: a Python that has
#              CuPy and the rest already, nothing is installed; ARGS='--executor host': rehearsed on CPU threads)
# make pictures  the pictures in docs/img, those of the report where Chromium is installed
# make docs    the documentation site: build/docs/index.html
#
# Needs make and Python >= 3.11 with venv. Everything else goes into .venv.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
  "$$p" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo "$$p" && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
ARGS ?=
EXTRAS ?=
CUDA ?= 13
GPU_PYTHON ?= $(BIN)/python
SEED := $(or $(SEED),$(shell date +%s))
ROUNDS ?= 1
CASES ?= 200

.PHONY: demo test fuzz check bench docs pictures test-gpu bench-gpu clean
.DELETE_ON_ERROR:
# Some hundred programs and helper processes are started by the tests: each module is compiled once, not in each of them.
unexport PYTHONDONTWRITEBYTECODE

demo: $(VENV)/.installed
	$(BIN)/synth pareto --topo dgx1 --coll allgather
	$(BIN)/synth pareto --topo dgx1 --coll allgather --size 1MB
	$(BIN)/synth pareto --topo dgx1 --coll allgather -o $(VENV)/demo.json --format json >/dev/null
	$(BIN)/synth verify $(VENV)/demo.json

test: $(VENV)/.installed-test $(addprefix $(VENV)/.installed-,$(EXTRAS))
	$(BIN)/python -m pytest -n 2 --dist worksteal -rs $(if $(SLOW),,-m "not slow") $(ARGS)

# A property is tried on as many examples a round as in `make test`; CASES command lines, and twenty times as many documents and dumps, are tried.
fuzz: $(VENV)/.installed-test
	@for seed in $$(seq $(SEED) $$(($(SEED) + $(ROUNDS) - 1))); do \
	  echo "make fuzz SEED=$$seed CASES=$(CASES)"; \
	  $(BIN)/python -m pytest -n 2 --dist worksteal -m hypothesis --hypothesis-profile fuzz --hypothesis-seed $$seed $(ARGS) || exit 1; \
	  $(BIN)/python -m bench.forge --seed $$seed --cases $$((20 * $(CASES))) || exit 1; \
	  $(BIN)/python -m bench.dumps --seed $$seed --cases $$((20 * $(CASES))) || exit 1; \
	  $(BIN)/python -m bench.fuzz --seed $$seed --cases $(CASES) || exit 1; \
	done

check: $(VENV)/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python .ci/style.py
	$(BIN)/python -m bench.count

bench: $(VENV)/.installed
	$(BIN)/python -m bench $(ARGS)

pictures: $(VENV)/.installed-test
	$(BIN)/python -m bench.pictures $(ARGS)

# A page that links to nothing, or a docstring that cannot be read, is an error.
docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -c docs . build/docs
	@echo "build/docs/index.html"

GPU_NEEDS = $(if $(findstring $(BIN),$(GPU_PYTHON)),$(if $(findstring host,$(ARGS)),$(VENV)/.installed,$(VENV)/.installed-cuda$(CUDA)))

test-gpu: $(GPU_NEEDS)
	$(GPU_PYTHON) -m bench.gpu_checks $(ARGS)

bench-gpu: $(GPU_NEEDS)
	$(GPU_PYTHON) -m bench.gpu $(ARGS)

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache .grimp_cache

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "synth needs Python >= 3.11 with venv, and none was found; install one (Debian: apt install python3-venv) or say make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(PIP) install -e .
	@touch $@

$(VENV)/.installed-test $(VENV)/.installed-dev $(VENV)/.installed-docs $(VENV)/.installed-mpi $(VENV)/.installed-test-cuda $(VENV)/.installed-cuda12 $(VENV)/.installed-cuda13: $(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	$(PIP) install -e '.[$*]'
	@touch $@
