# Two commands do everything on a fresh machine with nothing but Python: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check
# The bytecode of thousands of modules that are never imported is not worth the minute that compiling them takes.
INSTALL := $(PIP) install --no-compile --constraint constraints.txt
# A test starts many processes that import PyTorch. Without bytecode on the disk each of them compiles it again, which
# takes longer than most tests; some images for containers ask Python not to write any.
unexport PYTHONDONTWRITEBYTECODE
# Two workers. Tests that share something dear, such as the built site, are a group and go to the same worker.
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadgroup

.PHONY: help demo install test test-times check-oldest types check docs serve docs-version format bench fuzz fuzz-guided sanitize mutants clean

help:  ## Show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# A stamp remembers what is installed, so that a second run starts at once.
$(VENV)/python.stamp:
	$(PYTHON) -m venv $(VENV)
	@touch $@

# The compiled kernels are a part of what is installed.
KERNELS := CMakeLists.txt $(wildcard src/focalcal/kernels/cpp/*)

# pip does not show that a package was built without its compiled part.
SAY_KERNELS := $(BIN)/python -c 'import focalcal._kernels' 2> /dev/null || \
	echo "No C++ compiler was found: focalcal works without its compiled kernels, by PyTorch alone and more slowly."

$(VENV)/run.stamp: $(VENV)/python.stamp pyproject.toml constraints.txt $(KERNELS)
	@echo "Installing focalcal into $(VENV) (PyTorch is large: a minute or two) ..."
	$(INSTALL) --editable '.[report]'
	@$(SAY_KERNELS)
	@touch $@

$(VENV)/dev.stamp: $(VENV)/python.stamp pyproject.toml lab/pyproject.toml constraints.txt $(KERNELS)
	@echo "Installing focalcal, focalcal-lab and the development tools into $(VENV) (three minutes or so) ..."
	$(INSTALL) --editable '.[dev]' --editable ./lab
	@$(SAY_KERNELS)
	@touch $(VENV)/run.stamp $@

demo: $(VENV)/run.stamp  ## Set up, then show the papers' point on noisy digits, with a report
	$(BIN)/focalcal demo

install: $(VENV)/dev.stamp  ## Set up for development: library, lab and tools

# The library's tests, with the exact claims of the papers, which are the sharpest tests of its mathematics.
LIBRARY := tests src lab/tests/claims

test: $(VENV)/dev.stamp  ## Set up, then run the library's tests that are not slow: two to three minutes on two cores
	$(PYTEST) -m "not slow" $(LIBRARY)

test-times: $(VENV)/dev.stamp  ## Run the same tests and show the seconds that each folder takes
	$(PYTEST) -m "not slow" --times $(LIBRARY)

# An environment of its own, with the oldest versions that pyproject.toml promises.
OLDEST := .venv-oldest
$(OLDEST)/oldest.stamp: pyproject.toml constraints-oldest.txt
	@echo "Installing focalcal with the oldest versions of what it needs into $(OLDEST) ..."
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip --quiet --disable-pip-version-check install --no-compile --constraint constraints-oldest.txt --editable '.[test]'
	@touch $@

# Pages, benchmarks and types are made with the newest versions only.
check-oldest: $(OLDEST)/oldest.stamp  ## Run the library's tests that are not slow with the oldest versions that it promises
	$(OLDEST)/bin/python -m pytest --numprocesses 2 --dist loadgroup -m "not slow" tests src \
		--ignore tests/docs --ignore tests/benchmarks --ignore tests/browser --ignore tests/typing

types: $(VENV)/dev.stamp  ## Check the types
	$(BIN)/mypy

# What depends on the kernels is also tested by their definitions in torch: on a machine without a compiler they are used.
HOT_PATHS := tests/kernels tests/golden tests/losses/test_focal.py tests/losses/test_adafocal.py \
	tests/metrics/test_measures.py tests/metrics/test_evaluation.py tests/calibrators/test_temperature.py

# Types are checked while the tests run. Many slow tests wait for processes that they start: a third worker has time for
# its own meanwhile. One of the slow ones builds the documentation as `make docs` does.
check: $(VENV)/dev.stamp  ## Format check, lint, types, all tests with doctests and the documentation
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@mkdir -p build
	$(BIN)/mypy > build/types.txt 2>&1 & types=$$!; \
	$(MAKE) --no-print-directory test; quick=$$?; \
	FOCALCAL_KERNELS=torch $(PYTEST) -m "not slow" $(HOT_PATHS); torch=$$?; \
	$(PYTEST) --numprocesses 3 --rest; rest=$$?; \
	wait $$types; types=$$?; cat build/types.txt; \
	exit $$((quick | torch | rest | types))

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
$(BENCH)/bench.stamp: pyproject.toml lab/pyproject.toml constraints.txt $(KERNELS)
	@echo "Installing the benchmarks' peers into $(BENCH) ..."
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip --quiet --disable-pip-version-check install --constraint constraints.txt --editable '.[bench]' --editable ./lab
	@touch $@

bench: $(BENCH)/bench.stamp  ## Run all benchmarks against their peers and make their pages (QUICK=1: see that they run)
	$(BENCH)/bin/python benchmarks/run.py $(if $(filter-out 0,$(QUICK)),--quick)

# What fails is written into tests/fuzz/corpus, where `make test` tries it again. MINUTES is for each target.
MINUTES ?= 1
SEED    ?= 0
TARGETS ?=

fuzz: $(VENV)/dev.stamp  ## Throw drawn cases at readers, calibrator files, measures, losses and recipes (MINUTES=1 each, SEED=0, TARGETS=all)
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) --seed $(SEED) $(TARGETS)

$(VENV)/fuzz.stamp: $(VENV)/dev.stamp
	$(INSTALL) --editable '.[fuzz]'
	@touch $@

FORMAT ?= csv
fuzz-guided: $(VENV)/fuzz.stamp  ## Let coverage lead to damaged files of one format, with atheris (FORMAT=csv, npz, ..., calibrator-files)
	$(BIN)/python -m tests.fuzz.guided $(FORMAT) --minutes $(MINUTES)

# AddressSanitizer has to be loaded before Python. Python and torch keep memory until they end, which is no leak of ours.
SANITIZED := build/sanitize
sanitize: $(VENV)/dev.stamp  ## Run the tests of the kernels with a build that ends at a read past its memory or an overflow
	$(BIN)/cmake -S . -B $(SANITIZED) -G Ninja -DFOCALCAL_SANITIZE=ON -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
		-DPython_EXECUTABLE=$(abspath $(BIN))/python -Dnanobind_DIR=$$($(BIN)/python -m nanobind --cmake_dir)
	$(BIN)/cmake --build $(SANITIZED)
	LD_PRELOAD="$$($${CC:-gcc} -print-file-name=libasan.so) $$($${CC:-gcc} -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc \
		PYTHONPATH=$(abspath tools/sanitize) FOCALCAL_SANITIZED=$(SANITIZED) \
		$(BIN)/python -m pytest -p no:cacheprovider tests/kernels

$(VENV)/mutants.stamp: $(VENV)/dev.stamp
	$(INSTALL) --editable '.[mutants]'
	@touch $@

# Tests of the library that run in one process: other processes do not see a mutant.
MUTANT_TESTS := tests/core tests/kernels tests/losses tests/metrics tests/calibrators tests/files tests/golden tests/test_select.py \
	tests/test_public.py tests/test_atomic.py tests/report/test_plots.py lab/tests/claims \
	$(addprefix src/focalcal/,core kernels losses metrics calibrators files predictions select atomic.py)

mutants: $(VENV)/mutants.stamp  ## Change the code in 420 places, one at a time, and see that a test fails (half an hour)
	rm -rf build/mutants
	$(BIN)/python tools/mutants/run.py --without test_ray.py --without distributed $(MUTANT_TESTS)

clean:  ## Remove the environments, what was built, and all caches
	rm -rf $(VENV) $(BENCH) $(OLDEST) build dist lab/dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
