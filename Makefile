# Two commands do everything on a fresh machine with nothing but Python: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check
# One thread per test worker: two cores are easily oversubscribed.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

.PHONY: help demo test check docs serve docs-version format bench clean

help:  ## Show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# A stamp remembers what is installed, so that a second run starts at once.
$(VENV)/python.stamp:
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/run.stamp: $(VENV)/python.stamp pyproject.toml constraints.txt
	@echo "Installing focalcal into $(VENV) (PyTorch is large: a minute or two) ..."
	$(PIP) install --constraint constraints.txt --editable '.[report]'
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp
	@echo "Installing the development tools into $(VENV) ..."
	$(PIP) install --constraint constraints.txt --editable '.[dev]' --editable ./lab
	@touch $@

demo: $(VENV)/run.stamp  ## Set up, then show the papers' point on noisy digits, with a report
	$(BIN)/focalcal demo

test: $(VENV)/dev.stamp  ## Set up, then run every test that is not slow
	$(PYTEST) -m "not slow"

# The documentation is built as `make docs` builds it by one of the slow tests.
check: $(VENV)/dev.stamp  ## Format check, lint, types, all tests with doctests and the documentation
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MAKE) --no-print-directory test
	$(PYTEST) -m slow

# The theme prints a notice about its future at every build; the versions in constraints.txt hold until it is time to move.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

docs: $(VENV)/dev.stamp  ## Build the documentation into site/; a warning is an error
	$(MKDOCS) build --strict --quiet

serve: $(VENV)/dev.stamp  ## Show the documentation while it is written, on http://127.0.0.1:8000
	$(MKDOCS) serve

docs-version: $(VENV)/dev.stamp  ## Add this version's documentation to the branch gh-pages, as the latest one; push it yourself
	NO_MKDOCS_2_WARNING=1 $(BIN)/mike deploy --update-aliases $$($(BIN)/python -c 'import focalcal; print(focalcal.__version__)') latest
	$(BIN)/mike set-default latest

format: $(VENV)/dev.stamp  ## Format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The peers have an environment of their own: what they ask for must not decide what the tests run with.
BENCH  := .venv-bench
QUICK  ?=
$(BENCH)/bench.stamp: pyproject.toml constraints.txt
	@echo "Installing the benchmarks' peers into $(BENCH) ..."
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip --quiet --disable-pip-version-check install --constraint constraints.txt --editable '.[bench,lab]'
	@touch $@

bench: $(BENCH)/bench.stamp  ## Run all benchmarks against their peers and make their pages (QUICK=1: see that they run)
	$(BENCH)/bin/python benchmarks/run.py $(if $(filter-out 0,$(QUICK)),--quick)

clean:  ## Remove the environment and all caches
	rm -rf $(VENV) $(BENCH) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
