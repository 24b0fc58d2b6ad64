# The short commands. Everything they do is plain CMake underneath: see CMakePresets.json and CONTRIBUTING.md.
#
# Each target first installs the Debian packages it lacks (scripts/install-deps: silent when nothing is missing).
# PRESET=release|asan|tsan make test  runs the suite on another build; ARGS='-R name' goes to CTest or to the program.

PRESET ?= dev
JOBS ?= $(shell nproc)
# Tests wait more than they compute.
TEST_JOBS ?= $(shell expr 2 \* $(JOBS))
SOAK_SECONDS ?= $(or $(SECONDS),60)
SEED ?= 1
BUILD = cmake --build --preset

.DEFAULT_GOAL := help
.PHONY: help demo test quick soak bench paper check format asan tsan deb wheel install install-deps clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

demo:  ## release build, then the quickstart
	@scripts/install-deps build
	cmake --preset release -Wno-dev
	$(BUILD) release -j $(JOBS)
	build/release/bin/quickstart $(ARGS)
	PYTHONPATH=build/release/python /usr/bin/python3 examples/python/quickstart.py

test:  ## build and run every test (about 15 minutes from nothing on two cores)
	@scripts/install-deps build test
	cmake --preset $(PRESET) -DMANTA_TESTS=ON -Wno-dev
	$(BUILD) $(PRESET) -j $(JOBS)
	ctest --preset $(PRESET) -j $(TEST_JOBS) $(ARGS)

quick:  ## build and run the tests of the single rooms: under a minute once built
	@scripts/install-deps build test
	cmake --preset $(PRESET) -DMANTA_TESTS=ON -Wno-dev
	$(BUILD) $(PRESET) -j $(JOBS) --target quick_tests
	ctest --preset $(PRESET) -j $(TEST_JOBS) -L quick $(ARGS)

soak:  ## release build, then as many simulated failures of clusters and chains as fit into SOAK_SECONDS (60), from SEED (1) on
	@scripts/install-deps build
	cmake --preset release -Wno-dev
	$(BUILD) release -j $(JOBS) --target manta-sim
	build/release/bin/manta-sim soak --seconds $(SOAK_SECONDS) --seed $(SEED)

bench:  ## release build, then every workload beside its baseline
	@scripts/install-deps build bench
	cmake --preset release -DMANTA_RIVALS=ON -Wno-dev
	$(BUILD) release -j $(JOBS)
	build/release/bin/manta-bench $(ARGS)

paper:  ## release build, then the paper's figures: tables and plots into build/paper (some minutes)
	@scripts/install-deps build paper
	cmake --preset release -Wno-dev
	$(BUILD) release -j $(JOBS) --target paper_figures
	@for figure in fig5 fig6 fig7 fig8a fig8b fig9 fig10a fig10b fig11a fig11b; do build/release/bin/paper/$$figure --out build/paper $(ARGS) || exit 1; done
	@ls build/paper

check:  ## format, layering, pure archives, header self-containment, documents, protocols, clang-tidy
	@scripts/install-deps build test check
	scripts/format --check
	scripts/layering
	scripts/docs
	scripts/protocols --check
	cmake --preset dev -Wno-dev
	$(BUILD) dev -j $(JOBS) --target headers
	$(BUILD) dev -j $(JOBS) --target manta_types manta_rules manta_sim manta_tune_search manta_tune_trials manta_tune_sim
	scripts/pure build/dev types rules sim tune_search tune_trials tune_sim
	mypy --config-file pyproject.toml
	MYPYPATH=python mypy --strict python/tests/typing_check.py
	scripts/ruff check python examples/python
	scripts/tidy build/dev -j $(JOBS)

format:  ## rewrite the sources in the project's format
	@scripts/install-deps check
	scripts/format

asan:  ## the suite under AddressSanitizer and UBSan
	$(MAKE) --no-print-directory test PRESET=asan

tsan:  ## the suite under ThreadSanitizer
	@# Without address randomisation, which g++ 12's runtime cannot bear at the widths of newer kernels.
	setarch -R $(MAKE) --no-print-directory test PRESET=tsan

deb:  ## a Debian package in build/release
	@scripts/install-deps build deb
	cmake --preset release -DMANTA_RIVALS=OFF -Wno-dev
	$(BUILD) release -j $(JOBS)
	rm -f build/release/*.deb
	cd build/release && cpack -G DEB
	@ls -l build/release/*.deb

wheel:  ## wheels for Python 3.11 to 3.13 (those that are here) in build/wheels, which install without a compiler
	@scripts/install-deps build wheel
	scripts/wheel

install:  ## release build, then into PREFIX (/usr/local)
	@scripts/install-deps build
	cmake --preset release -Wno-dev
	$(BUILD) release -j $(JOBS)
	cmake --install build/release $(if $(PREFIX),--prefix $(PREFIX))
	@[ "$$(id -u)" != 0 ] || ldconfig  # else programs find the library only after the next start of the machine

install-deps:  ## install every package that any target here needs
	@scripts/install-deps build test check bench paper deb wheel

clean:  ## remove build/
	rm -rf build
