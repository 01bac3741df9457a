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
# Each suite runs on all cores; its tests wait half of their time, so there are more workers than
# cores. A worker begins with a run of tests in their order, so that files and what they share mostly
# stay together; one that is done takes tests from the end of another's.
CORES := $(shell getconf _NPROCESSORS_ONLN)
PARALLEL := -n $(shell echo $$(($(CORES) + ($(CORES) + 1) / 2))) --dist worksteal
# How the suites run: for instance `make unit PYTEST_ARGS="-n 4 -k arqs"`.
PYTEST_ARGS ?=

# Tests write thousands of small files, and their databases flush each commit to the disk. Where
# /dev/shm has room (4 GiB), these files are in memory: the suites take a fraction of the time.
IN_MEMORY := $(shell test "$$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 4194304 2>/dev/null && echo /dev/shm)
ifneq ($(IN_MEMORY),)
test unit functional coverage test-faults fuzz test-services test-kill test-upgrade test-release \
on-releases on-servers on-nova on-databases test-kernel: export TMPDIR ?= $(IN_MEMORY)
endif

SCRIPTS := $(shell find .ci devstack tools -type f \( -name '*.sh' -o -path .ci/run \
             -o -name settings -o -path 'devstack/lib/*' \) 2>/dev/null)

# pbr reads the version from git; an archive of the tree has no history to tell it.
ifeq ($(shell git rev-parse --is-inside-work-tree 2>/dev/null),)
export PBR_VERSION ?= 0.0.1
endif

.DEFAULT_GOAL := help
.PHONY: help venv demo run test lint shellcheck types unit coverage functional test-faults fuzz test-services test-kill test-upgrade test-release on-releases on-servers on-nova on-databases test-kernel bench bench-services docs sample \
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
	@if test -d .git && ! test -e .git/hooks/pre-commit && command -v git >/dev/null; then \
	    $(BIN)/pre-commit install --allow-missing-config >/dev/null \
	    || echo 'The checks do not run at each commit: pre-commit could not install its hook.'; fi
	@touch $@

demo: venv  ## see a request for an accelerator through, on simulated hardware
	@$(BIN)/cyborg-standalone demo

# How it runs: for instance `make run RUN_ARGS="--port 8080 --description host.yaml"`.
RUN_ARGS ?=

run: venv  ## run a whole Cyborg in one process until Ctrl-C, with a web page
	@$(BIN)/cyborg-standalone run $(RUN_ARGS)

test:  ## lint, types, unit and functional tests with their coverage, in this order
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory types
	@$(MAKE) --no-print-directory coverage

lint: venv  ## ruff on Python; bashate, bash -n and (where installed) shellcheck on shell
	@echo "== lint"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo 'Run .venv/bin/ruff format'; exit 1; }
	@$(BIN)/bashate --ignore E006 $(SCRIPTS)
	@for script in $(SCRIPTS); do bash -n "$$script" || exit 1; done
	@if command -v shellcheck >/dev/null; then $(MAKE) --no-print-directory shellcheck; fi

shellcheck:
	@shellcheck --shell=bash --severity=warning --exclude=SC1090,SC1091,SC2034,SC2154 $(SCRIPTS)

types: venv  ## mypy --strict over all of cyborg and os_acc
	@echo "== types"
	@$(BIN)/mypy --strict cyborg os_acc

unit: venv  ## the unit tests
	@echo "== unit"
	@$(PYTEST) $(PARALLEL) $(PYTEST_ARGS) tests/unit

# Each process of the tests leaves a file, which are put together here. The floor is in pyproject.toml.
coverage: venv  ## unit and functional tests, and the share of the lines that they run
	@rm -f .coverage .coverage.*
	@$(MAKE) --no-print-directory unit PYTEST_ARGS="-p tools.line_coverage $(PYTEST_ARGS)"
	@$(MAKE) --no-print-directory functional PYTEST_ARGS="-p tools.line_coverage $(PYTEST_ARGS)"
	@echo "== coverage (the files with most lines that no test runs; all: .venv/bin/coverage html)"
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --sort=-miss --fail-under=0 | sed -n '1,12p; $$p'
	@$(BIN)/coverage report --format=total >/dev/null || { \
	    echo "The tests run fewer lines than the floor: [tool.coverage.report] in pyproject.toml."; exit 1; }

functional: venv  ## the functional tests: SQLite, in-process messaging and Placement
	@echo "== functional"
	@$(PYTEST) $(PARALLEL) $(PYTEST_ARGS) tests/functional

test-faults: venv  ## ten thousand random histories of a cloud in which everything fails
	@CYBORG_FAULT_HISTORIES=10000 $(PYTEST) -n auto $(PYTEST_ARGS) tests/functional/test_histories.py

fuzz: venv  ## new examples: thousands of requests made from the API's description, and of all else
	@$(PYTEST) --hypothesis-profile=searching --hypothesis-seed=$${CYBORG_FUZZ_SEED:-$$(date +%s)} \
	    --timeout=7200 $(PYTEST_ARGS) $$(grep -rl --include="*.py" hypothesis tests/unit)
	@CYBORG_FUZZ_EXAMPLES=100 CYBORG_FUZZ_SEED=$${CYBORG_FUZZ_SEED:-$$(date +%s)} \
	    $(PYTEST) $(PYTEST_ARGS) tests/functional/test_fuzz.py

# Neighbours whose requirements are not ours: each in an environment of its own.
.venv-keystone: NEEDS = 'keystone>=30.0.0,<31' waitress
.venv-glance: NEEDS = 'glance>=33.0.0,<34' waitress
# (the commands of this repository are in both: they add to either set)
.venv-clients: NEEDS = 'python-openstackclient>=10.5.0,<11' 'osc-placement>=4.9.1,<5' -e '.[osc]'
.venv-tempest: NEEDS = 'tempest>=47.0.0,<48' 'cyborg-tempest-plugin>=2.8.0,<3'
.venv-uwsgi: NEEDS = uwsgi
# The tests of WITH_NOVA run where this is: with Nova's own scheduler and libvirt driver.
.venv-nova: NEEDS = 'nova>=34.0.0,<35' pymysql waitress
# The last one without accelerator commands of its own, which would hide these.
.venv-cyborgclient: NEEDS = 'python-openstackclient>=10.3.0,<10.4' 'python-cyborgclient>=3.0.0,<4' -e '.[osc]'

# (not at the same time as the other that installs this directory)
.venv-cyborgclient/installed: | .venv-clients/installed
NEIGHBOURS := .venv-keystone .venv-glance .venv-clients .venv-cyborgclient .venv-tempest .venv-nova .venv-uwsgi

# One whose installation was interrupted has no `installed`, which tests look for, and is made again.
$(NEIGHBOURS): %: %/installed ;

$(NEIGHBOURS:%=%/installed):
	@echo "Installing $(NEEDS) into $(@D)"
	@"$(PYTHON)" -m venv --clear $(@D)
	@$(@D)/bin/python -m pip --disable-pip-version-check --quiet install --no-compile \
	    -c constraints.txt setuptools $(NEEDS)
	@touch $@

# Cyborg with the versions of an OpenStack release, as deployers install it.
SERIES := 2026.1 2026.2
ON_SERIES := tests/functional/test_path.py tests/functional/test_profiles.py \
             tests/functional/test_programming.py tests/functional/test_deployers.py
# Other Pythons that this machine has, with the newest release. One that is asked for by
# `make test-release OTHER_PYTHONS=3.13` must be there.
python = $(shell for each in python$(1) $(HOME)/.pyenv/versions/$(1).*/bin/python; do \
           "$$each" -c '' 2>/dev/null && { command -v "$$each"; break; }; done)
OTHER_PYTHONS ?= $(foreach version,3.12 3.13,$(if $(call python,$(version)),$(version)))

NEEDED_ON_SERIES := requirements.txt test-requirements.txt setup.cfg
# Built once and before the tests begin: a build changes the metadata in this directory below them.
# It has files of any kind.
RELEASE := build/release/wheel
$(RELEASE): $(shell find cyborg os_acc etc -type f -not -path '*/__pycache__/*') requirements.txt setup.cfg pyproject.toml | $(STAMP)
	@rm -rf $(@D)
	@$(PIP) wheel --no-deps --no-build-isolation -w $(@D) .
	@ls $(@D)/*.whl > $@

# The eventlet of these releases cannot be imported beside trio, which selenium brings.
define install_on_series
	@$@/bin/python -m pip --disable-pip-version-check --quiet install 'setuptools>=77,<81' wheel
	@$@/bin/python -m pip --disable-pip-version-check --quiet install -c $< \
	    -r test-requirements.txt "$$(cat $(RELEASE))[standalone,mysql,postgresql,signatures,sim]" || { \
	    rm -rf $@; exit 1; }
	@$@/bin/python -m pip --disable-pip-version-check --quiet uninstall --yes trio
endef

$(SERIES:%=.venv-%): .venv-%: tools/constraints/%.txt $(NEEDED_ON_SERIES) | $(RELEASE)
	@echo "Installing Cyborg with the constraints of OpenStack $*"
	@rm -rf $@
	@"$(PYTHON)" -m venv $@
	$(install_on_series)

.venv-py%: tools/constraints/$(lastword $(SERIES)).txt $(NEEDED_ON_SERIES) | $(RELEASE)
	@echo "Installing Cyborg with the constraints of OpenStack $(lastword $(SERIES)) and Python $*"
	@rm -rf $@
	@"$(or $(call python,$*),python$*)" -m venv $@
	$(install_on_series)

# A kept environment has a copy of Cyborg from when it was made. The services of the tests import
# this directory, but commands such as cyborg-dbsync would run the old code.
install_again = .venv-$(1)/bin/python -m pip --disable-pip-version-check --quiet install \
    --no-deps --force-reinstall "$$(cat $(RELEASE))"

# The libraries are tried beside the servers. What measures how late an answer comes has the machine
# for itself.
test-release: venv  ## what is too long for every change: the libraries of OpenStack releases, other Pythons, all functional tests on MariaDB and PostgreSQL, clusters that lose a server, TLS, a kernel in QEMU
	@$(MAKE) --no-print-directory $(RELEASE)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target on-releases on-servers
	@echo "== services that are killed, on PostgreSQL"
	@$(PYTEST) $(PYTEST_ARGS) -k postgresql tests/services/test_kill.py
	@echo "== services that are killed, on MariaDB, for longer and with more clients"
	@$(MAKE) --no-print-directory test-kill
	@$(MAKE) --no-print-directory test-kernel
	@echo "== the previous release and this one together"
	@$(MAKE) --no-print-directory test-upgrade

on-releases: $(RELEASE)
	@$(MAKE) --no-print-directory $(SERIES:%=.venv-%) $(OTHER_PYTHONS:%=.venv-py%)
	@for series in $(SERIES); do \
	    echo "== OpenStack $$series"; \
	    $(call install_again,$$series) || exit 1; \
	    .venv-$$series/bin/python -m pytest -q $(PARALLEL) $(PYTEST_ARGS) tests/unit || exit 1; \
	    .venv-$$series/bin/python -m pytest -q $(PARALLEL) $(PYTEST_ARGS) $(ON_SERIES) || exit 1; done
	@for version in $(OTHER_PYTHONS); do \
	    echo "== Python $$version"; \
	    $(call install_again,py$$version) || exit 1; \
	    .venv-py$$version/bin/python -m pytest -q $(PARALLEL) $(PYTEST_ARGS) tests/unit || exit 1; done

on-servers:
	@echo "== functional on RabbitMQ and MariaDB"
	@$(BIN)/python -m tools.services rabbitmq mariadb -- $(PYTEST) $(PARALLEL) $(PYTEST_ARGS) -m '$(ON_SERVERS)' tests/functional
	@echo "== functional on RabbitMQ and PostgreSQL"
	@$(BIN)/python -m tools.services rabbitmq postgresql -- $(PYTEST) $(PARALLEL) $(PYTEST_ARGS) -m '$(ON_POSTGRESQL)' tests/functional
	@echo "== a Galera cluster, a PostgreSQL with a standby, a cluster of brokers, TLS and regions"
	@$(PYTEST) $(PYTEST_ARGS) $(OF_RELEASES)

# What runs on RabbitMQ and a database server. On PostgreSQL the tests are left out in which SQL and
# transactions have little part: discovery and Placement, HTTP, other services. With every change
# those run on MariaDB whose subject is SQL or messages, and on PostgreSQL those of binds and of the
# statements themselves; all run with `test-release`.
ON_SERVERS := not embedded and not keystone and not clients
ON_POSTGRESQL := $(ON_SERVERS) and not any_database
functional_tests = $(patsubst %,tests/functional/test_%.py,$(1))
ABOUT_SQL := $(call functional_tests,audit availability binds engine hosts_in_trouble lists \
               lost_answers path statements)
ABOUT_BINDS := $(call functional_tests,binds lists path statements)
ABOUT_MESSAGES := $(call functional_tests,abandoned bind_waits late_messages os_acc programming \
               repeated_posts reports rounds silent_agents)

test-upgrade: venv  ## the previous release and this one in every mixture, killed under load
	@$(PYTEST) -s $(PYTEST_ARGS) tests/services/test_upgrade.py

test-kill: venv  ## services are killed and restarted for two minutes under the load of 20 clients
	@CYBORG_KILL_SECONDS=120 CYBORG_KILL_CLIENTS=20 $(PYTEST) -s $(PYTEST_ARGS) \
	    -k mariadb tests/services/test_kill.py

# Tests of services that need the machine for themselves, and those that run with `test-release`.
RUN_APART := $(patsubst %,tests/services/test_%.py,kill nova upgrade)
OF_RELEASES := $(patsubst %,tests/services/test_%.py,clusters tls tls_of_databases)
WITH_NOVA := tests/unit/os_acc/test_weigher.py tests/functional/test_nova_driver.py \
             tests/functional/test_nova_ports.py

# The servers are private to each run and gone after it.
test-services: venv  ## the functional and migration tests on real servers, Keystone, Glance, Nova's code, the openstack command, tempest and Chromium
	@$(MAKE) --no-print-directory --jobs=3 $(NEIGHBOURS)
	@echo "== shellcheck"
	@$(BIN)/python -m tools.services --need shellcheck -- $(MAKE) --no-print-directory shellcheck
	@echo "== services as processes on these servers, killed and restarted, tempest, the page of the standalone in Chromium, and alert rules in Prometheus"
	@$(BIN)/python -m tools.services --need prometheus -- $(PYTEST) $(PARALLEL) $(PYTEST_ARGS) \
	    $(patsubst %,--ignore=%,$(RUN_APART) $(OF_RELEASES)) tests/services tests/unit/etc/test_alerts.py
	@$(PYTEST) $(PYTEST_ARGS) -k mariadb tests/services/test_kill.py
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target on-nova on-databases
	@echo "== Keystone, Glance, the openstack command and the pages about FPGAs"
	@$(PYTEST) $(PARALLEL) $(PYTEST_ARGS) -m 'keystone or clients' tests/functional
	@echo "== functional on RabbitMQ and MariaDB"
	@$(BIN)/python -m tools.services rabbitmq mariadb -- $(PYTEST) $(PARALLEL) $(PYTEST_ARGS) -m '$(ON_SERVERS)' $(ABOUT_SQL) $(ABOUT_MESSAGES)
	@echo "== functional on RabbitMQ and PostgreSQL"
	@$(BIN)/python -m tools.services rabbitmq postgresql -- $(PYTEST) $(PARALLEL) $(PYTEST_ARGS) -m '$(ON_POSTGRESQL)' $(ABOUT_BINDS)

# Both mostly wait for their servers, and so they run side by side.
on-nova:
	@echo "== servers of a real Nova"
	@$(PYTEST) $(PYTEST_ARGS) tests/services/test_nova.py
	@echo "== Nova's own scheduler and libvirt driver"
	@$(PYTEST) $(PYTEST_ARGS) $(WITH_NOVA)

on-databases:
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
	@if test -x $(BIN)/pre-commit && test -d .git; then $(BIN)/pre-commit uninstall >/dev/null || true; fi
	@rm -rf $(VENV) .venv-* build dist doc/build .tox .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage htmlcov *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
