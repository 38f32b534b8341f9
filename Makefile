# Each target sets up what it needs, in .venv and build/ alone; `make` lists them.

SOURCES := pyproject.toml $(shell find dsv4ctl templates units -type f ! -name '*.pyc')
# The editable installation of the tests serves a rehearsal as well.
INSTALLED := $(if $(wildcard .venv/.dev),.venv/.dev,.venv/.plain)
# A real SGLang on CPU, prepared elsewhere or by us.
REAL := $(or $(DSV4CTL_REAL),$(CURDIR)/build/real)
.PHONY: help try test soak interrupts real gpu bench lint clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 20

try: $(INSTALLED) build/router/.ready ## rehearse the whole job in a private systemd: as root, without GPU or engine, in 90 seconds
	@.venv/bin/dsv4ctl rehearse

test: .venv/.dev build/router/.ready ## run all tests but those against a real GPU or a real engine
	@.ci/tests

soak: .venv/.dev build/router/.ready ## run what is random at length: 200 schedules of a pair, 500 forests, 50 times two deploys at once; an hour
	@DSV4CTL_SCHEDULES=200 DSV4CTL_FORESTS=500 DSV4CTL_DEPLOYS_AT_ONCE=50 .venv/bin/pytest -n 2 -rP \
	    tests/system/test_pair_schedules.py tests/system/test_teardown_forests.py tests/system/test_generations.py \
	    -k "schedule or forest or at_once"

interrupts: .venv/.dev ## cut every command off at every act by which it changes the world (goes on where it broke off; needs a C compiler)
	@DSV4CTL_CUTS=build/interrupts .venv/bin/pytest -q -n 3 --dist worksteal tests/interrupts

real: .venv/.dev build/router/.ready $(if $(DSV4CTL_REAL),,build/real/.ready) ## run the tests against a real SGLang on CPU (7 GB, or DSV4CTL_REAL=FOLDER)
	@DSV4CTL_REAL=$(REAL) .venv/bin/pytest tests/real tests/contract

gpu: build/gpu/.ready ## run the tests against a real GPU, as root, in a systemd of their own (Debian packages are fetched for it)
	@tests/gpu/lab.sh build/gpu/packages build/gpu/wheels -rs tests/gpu

bench: .venv/.dev ## print the measured figures
	@.venv/bin/python bench/run.py

lint: .venv/.dev ## check style, types and the direction of imports
	@.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy && .venv/bin/lint-imports

clean: ## remove what the targets made
	@rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.plain: $(SOURCES) .ci/prepare
	@.ci/prepare plain

.venv/.dev: pyproject.toml .ci/prepare
	@.ci/prepare dev

# Not made where the router cannot be installed: then its tests are skipped.
build/router/.ready: .ci/prepare
	@.ci/prepare router

build/gpu/.ready: $(INSTALLED) tests/gpu/fetch.sh
	@tests/gpu/fetch.sh build/gpu
	@touch $@

build/real/.ready: tests/real/setup/setup.sh
	@tests/real/setup/setup.sh build/real
	@touch $@
