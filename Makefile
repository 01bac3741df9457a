# SPDX-License-Identifier: Apache-2.0
# Everything a developer runs. Needs Python 3.11 or later, pip and make; no root.
# (`test-services` and `test-kernel` install what is missing with apt-get where they may.)

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# An index fails once in a while.
export PIP_RETRIES ?= 10
export PIP_DEFAULT_TIMEOUT ?= 60

PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST := $(BIN)/python -m pytest -q
# Each suite runs on all cores. A worker begins with a run of tests in their order, so that files
# and what they share mostly stay together; one that is done takes tests from the end of another's.
PARALLEL := -n auto --dist worksteal
# How the suites run: for instance `make unit PYTEST_ARGS="-n 4 -k arqs"`.
PYTEST_ARGS ?=

SCRIPTS := $(shell find .ci devstack tools -type f \( -name '*.sh' -o -path .ci/run \
             -o -path devstack/settings -o -path 'devstack/lib/*' \) 2>/dev/null)

# pbr reads the version from git; an archive of the tree has no history to tell it.
ifeq ($(shell git rev-parse --is-inside-work-tree 2>/dev/null),)
export PBR_VERSION ?= 0.0.1
endif

.DEFAULT_GOAL := help
.PHONY: help venv demo run test lint shellcheck types unit functional test-faults fuzz test-services test-release test-kernel bench bench-services docs sample \
        wheels constraints clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP)  ## create .venv with Cyborg and everything its checks need

$(STAMP): constraints.txt requirements.txt test-requirements.txt setup.cfg pyproject.toml
	@echo "Installing Cyborg into $(VENV) (a few minutes the first time)"
	@rm -f $@
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Cyborg needs Python 3.11 or later; set PYTHON.")'
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@$(PIP) install -c constraints.txt setuptools wheel
	@$(PIP) install -c constraints.txt -r test-requirements.txt -e '.[standalone,mysql,postgresql,signatures,sim]'
	@touch $@

demo: venv  ## see a request for an accelerator through, on simulated hardware
	@$(BIN)/cyborg-standalone demo

run: venv  ## run a whole Cyborg in one process until Ctrl-C
	@$(BIN)/cyborg-standalone run

test:  ## lint, types, unit and functional tests, in this order
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory types
	@$(MAKE) --no-print-directory unit
	@$(MAKE) --no-print-directory functional

lint: venv  ## ruff on Python; bashate, bash -n and (where installed) shellcheck on shell
	@echo "== lint"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/bashate --ignore E006 $(SCRIPTS)
	@for script in $(SCRIPTS); do bash -n "$$script" || exit 1; done
	@if command -v shellcheck >/dev/null; then $(MAKE) --no-print-directory shellcheck; fi

shellcheck:
	@shellcheck --shell=bash --severity=warning --exclude=SC1090,SC1091,SC2034,SC2154 $(SCRIPTS)

types: venv  ## mypy --strict over os_acc, cyborg/objects and cyborg/accelerator
	@echo "== types"
	@$(BIN)/mypy --strict os_acc cyborg/objects cyborg/accelerator

unit: venv  ## the unit tests
	@echo "== unit"
	@$(PYTEST) -n auto --dist loadfile $(PYTEST_ARGS) tests/unit

functional: venv  ## the functional tests: SQLite, in-process messaging and Placement
	@echo "== functional"
	@$(PYTEST) $(PARALLEL) $(PYTEST_ARGS) tests/functional

test-faults: venv  ## ten thousand random histories of a cloud in which everything fails
	@CYBORG_FAULT_HISTORIES=10000 $(PYTEST) -n auto $(PYTEST_ARGS) tests/functional/test_histories.py

fuzz: venv  ## new examples: thousands of requests made from the API's description, and of all else
	@$(PYTEST) --hypothesis-profile=searching --hypothesis-seed=$${CYBORG_FUZZ_SEED:-$$(date +%s)} \
	    $(PYTEST_ARGS) $$(grep -rl --include="*.py" hypothesis tests/unit)
	@CYBORG_FUZZ_EXAMPLES=100 CYBORG_FUZZ_SEED=$${CYBORG_FUZZ_SEED:-$$(date +%s)} \
	    $(PYTEST) $(PYTEST_ARGS) tests/functional/test_fuzz.py

# Neighbours whose requirements are not ours: each in an environment of its own.
.venv-keystone: NEEDS = 'keystone>=30.0.0,<31' waitress
.venv-glance: NEEDS = 'glance>=33.0.0,<34' waitress
.venv-clients: NEEDS = 'python-openstackclient>=10.5.0,<11'
.venv-tempest: NEEDS = 'tempest>=47.0.0,<48' 'cyborg-tempest-plugin>=2.8.0,<3'
.venv-uwsgi: NEEDS = uwsgi
# The weigher's test in tests/unit/os_acc runs where this is.
.venv-nova: NEEDS = 'nova>=34.0.0,<35'
# The last one without accelerator commands of its own, which would hide these.
.venv-cyborgclient: NEEDS = 'python-openstackclient>=8.3.0,<9' 'python-cyborgclient>=3.0.0,<4'

.venv-keystone .venv-glance .venv-clients .venv-cyborgclient .venv-tempest .venv-uwsgi .venv-nova:
	@echo "Installing $(NEEDS) into $@"
	@"$(PYTHON)" -m venv $@
	@$@/bin/python -m pip --disable-pip-version-check --quiet install -c constraints.txt \
	    setuptools $(NEEDS) || { rm -rf $@; exit 1; }

# Cyborg with the versions of an OpenStack release, as deployers install it.
SERIES := 2026.1 2026.2
ON_SERIES := tests/unit tests/functional/test_path.py tests/functional/test_profiles.py \
             tests/functional/test_programming.py

$(SERIES:%=.venv-%): .venv-%: tools/constraints/%.txt
	@echo "Installing Cyborg with the constraints of OpenStack $*"
	@"$(PYTHON)" -m venv $@
	@$@/bin/python -m pip --disable-pip-version-check --quiet install 'setuptools<81' wheel
	@$@/bin/python -m pip --disable-pip-version-check --quiet install -c $< \
	    -r test-requirements.txt '.[standalone,mysql,postgresql,signatures,sim]' || { rm -rf $@; exit 1; }

test-release: $(SERIES:%=.venv-%)  ## unit and some functional tests with the libraries of OpenStack releases
	@for series in $(SERIES); do \
	    echo "== OpenStack $$series"; \
	    .venv-$$series/bin/python -m pytest -q $(PARALLEL) $(PYTEST_ARGS) $(ON_SERIES) || exit 1; done

# What runs on RabbitMQ and a database server. On the second database server the tests are left out
# in which SQL and transactions have little part: discovery and Placement, HTTP, other services.
# A test without a mark runs on all.
ON_SERVERS := not embedded and not keystone and not clients

# The servers are private to each run and gone after it.
test-services: venv .venv-keystone .venv-glance .venv-clients .venv-cyborgclient .venv-tempest  ## the functional and migration tests on real servers, Keystone, Glance, the openstack command and tempest
	@echo "== shellcheck"
	@$(BIN)/python -m tools.services --need shellcheck -- $(MAKE) --no-print-directory shellcheck
	@echo "== services as processes on these servers, killed and restarted, and tempest"
	@$(PYTEST) $(PARALLEL) $(PYTEST_ARGS) --ignore=tests/services/test_kill.py tests/services
	@$(PYTEST) $(PYTEST_ARGS) tests/services/test_kill.py
	@echo "== Keystone, Glance and the openstack command"
	@$(PYTEST) $(PARALLEL) $(PYTEST_ARGS) -m 'keystone or clients' tests/functional
	@echo "== functional on RabbitMQ and MariaDB"
	@$(BIN)/python -m tools.services rabbitmq mariadb -- $(PYTEST) $(PARALLEL) $(PYTEST_ARGS) -m '$(ON_SERVERS)' tests/functional
	@echo "== functional on RabbitMQ and PostgreSQL"
	@$(BIN)/python -m tools.services rabbitmq postgresql -- $(PYTEST) $(PARALLEL) $(PYTEST_ARGS) -m '$(ON_SERVERS) and not any_database' tests/functional
	@echo "== migrations on MariaDB and PostgreSQL"
	@$(BIN)/python -m tools.services mariadb postgresql -- $(PYTEST) $(PYTEST_ARGS) -m migrations tests

# What cannot be had here (packages, namespaces) is skipped with a reason.
test-kernel: venv  ## hold the simulator against a real kernel in QEMU, and against libvirt
	@echo "== kernel"
	@$(PYTEST) $(PYTEST_ARGS) tests/kernel

# How it is measured: for instance `make bench BENCH_ARGS="--quick --only life"`.
BENCH_ARGS ?=

bench: venv  ## how fast it is beside its floor, all in one process; kept in bench-results
	@$(BIN)/python -m tools.bench $(BENCH_ARGS)

bench-services: venv .venv-keystone .venv-uwsgi  ## the same on RabbitMQ, MariaDB, Keystone and uWSGI
	@$(BIN)/python -m tools.bench --services $(BENCH_ARGS)

# The generators load every library's options, and with them deprecations that are not ours.
docs sample: export PYTHONWARNINGS = ignore

docs: venv  ## the documentation, as HTML in doc/build/html
	@$(PIP) install -c constraints.txt -r doc/requirements.txt
	@$(BIN)/sphinx-build -q -W --keep-going -b html doc/source doc/build/html
	@echo "doc/build/html/index.html"

sample: venv  ## cyborg.conf.sample and policy.yaml.sample, in build/etc/cyborg
	@mkdir -p build/etc/cyborg
	@$(BIN)/oslo-config-generator --config-file tools/config/cyborg-config-generator.conf \
	    --output-file build/etc/cyborg/cyborg.conf.sample
	@$(BIN)/oslopolicy-sample-generator --config-file tools/config/cyborg-policy-generator.conf \
	    --output-file build/etc/cyborg/policy.yaml.sample
	@ls build/etc/cyborg/*.sample

wheels: venv  ## openstack-cyborg and os-acc, as wheels in dist
	@$(PIP) wheel --no-deps --no-build-isolation -w dist . packages/os-acc
	@ls dist/*.whl

constraints:  ## resolve the requirements afresh and write constraints.txt
	@rm -rf build/constraints
	@"$(PYTHON)" -m venv build/constraints
	@build/constraints/bin/pip --disable-pip-version-check --quiet install --upgrade 'setuptools<81' wheel \
	    -r requirements.txt -r test-requirements.txt -r doc/requirements.txt \
	    $$(sed -n '/^\[extras\]/,/^\[entry_points\]/s/^    //p' setup.cfg)
	@{ sed -n '/^#/p' constraints.txt; \
	   build/constraints/bin/pip freeze --all --exclude pip | LC_ALL=C sort -f; } > build/constraints.txt
	@mv build/constraints.txt constraints.txt
	@rm -rf build/constraints

clean:  ## remove everything that make made
	@rm -rf $(VENV) .venv-* build dist doc/build .tox .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
