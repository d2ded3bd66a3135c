# `make` alone shows what there is. Set-up happens by itself, once, and again when setup.cfg or pyproject.toml changed.

PYTHON ?= python3
CONF ?= conf/application.conf
ARGS ?=
PAIN001 ?=
# The benchmarks of Spark jobs run only by name: they need $(PIPELINE).
BENCH ?= $(filter-out audit_scale lookups_scale,$(basename $(notdir $(wildcard benchmarks/[a-z]*.py))))

VENV := .venv
BIN := $(VENV)/bin
# Errors only: pip and setuptools, each in some versions, warn about how they build, which is nothing a user can mend.
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore $(BIN)/python -m pip install -qq --use-pep517
RUNTIME := $(VENV)/.runtime-ready
DEVELOPMENT := $(VENV)/.development-ready
JMS := $(VENV)/.jms-ready
FUZZ := $(VENV)/.fuzz-ready
PIPELINE := $(VENV)/.pipeline-ready

# What the extra [jms] is built with; not asked for where it is installed.
JMS_PACKAGES := gcc libc6-dev python3-dev pkg-config libssl-dev
CAN_BUILD_JMS := { $(BIN)/python -c 'import proton' 2>/dev/null || { command -v cc && pkg-config --exists openssl; } >/dev/null 2>&1; }

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup setup-jms demo demo-delivery run start stop restart logs servers servers-status servers-stop simulate verify status units find dead-letters orders delivery groups region sink console lookups audit archive archive-topics check-configuration check test nightly faults fuzz soak lint format bench clean

help: ## this list
	@awk -F ':.*## ' '/^##@ / { print (n++ ? "\n" : "") substr($$0, 5) } /^[a-z-]+:.*## / { printf "make %-20s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

##@ For users: try it, with simulated payments and servers on this machine

demo: $(RUNTIME) ## run the main job on shuffled payments and show a table; PAIN001='a.xml b.xml': your own files; ARGS='--events shop': orders of a shop
	@$(BIN)/resequencer demo $(if $(strip $(PAIN001)),--pain001 $(PAIN001)) $(ARGS)

demo-delivery: $(RUNTIME) ## the demo, then its notifications are delivered to a receiver that sleeps, forgets and refuses
	@$(BIN)/resequencer demo --delivery --units 1000 $(ARGS)

simulate: $(RUNTIME) ## write envelopes of simulated payments to the source of CONF; ARGS='--units 5000'
	@$(BIN)/resequencer simulate --config "$(CONF)" $(ARGS)

verify: $(RUNTIME) ## compare the output of CONF with what the simulator expects
	@$(BIN)/resequencer verify --config "$(CONF)" $(ARGS)

servers: $(RUNTIME) ## start Kafka, Redis, Infinispan, PostgreSQL, Artemis and a receiver of notifications on loopback; data and logs in run/servers
	@$(BIN)/python -m servers start

servers-status: $(RUNTIME) ## say which of these servers run, and where
	@$(BIN)/python -m servers status

servers-stop: $(RUNTIME) ## stop these servers; their data stays
	@$(BIN)/python -m servers stop

##@ For operators: run a service with CONF=FILE (default: conf/application.conf); ARGS='…' passes options on

check-configuration: $(RUNTIME) ## validate CONF; show every value and where it was set
	@$(BIN)/resequencer check --config "$(CONF)" $(ARGS)

run: $(RUNTIME) ## run the service with CONF (default: conf/application.conf) in the foreground
	@exec $(BIN)/resequencer run --config "$(CONF)" $(ARGS)

start: $(RUNTIME) ## start the service with CONF as a daemon; returns when it is ready, or says why not
	@$(BIN)/resequencer start --config "$(CONF)" $(ARGS)

stop: $(RUNTIME) ## drain and stop the daemon with CONF
	@$(BIN)/resequencer stop --config "$(CONF)" $(ARGS)

restart: $(RUNTIME) ## stop, then start; ARGS=--rolling: one worker after another, while the others work
	@$(BIN)/resequencer restart --config "$(CONF)" $(ARGS)

status: $(RUNTIME) ## show whether the service with CONF is ready, and what waits in it, on one screen; ARGS=--verbose: all
	@$(BIN)/resequencer status --config "$(CONF)" --short $(ARGS)

logs: $(RUNTIME) ## print the last lines of the daemon's log; ARGS=--follow keeps printing
	@$(BIN)/resequencer logs --config "$(CONF)" $(ARGS)

units: $(RUNTIME) ## list the units that wait; ARGS='show ID': all about one; ARGS='release ID --because TEXT': an order for it
	@$(BIN)/resequencer units --config "$(CONF)" $(or $(ARGS),list)

find: $(RUNTIME) ## search for a unit, a message, a notification, a dead letter or a payment; ARGS=ID
	@$(BIN)/resequencer find --config "$(CONF)" $(ARGS)

dead-letters: $(RUNTIME) ## list the dead letters; ARGS='show NUMBER', ARGS='requeue NUMBER' and others
	@$(BIN)/resequencer dead-letters --config "$(CONF)" $(or $(ARGS),list)

orders: $(RUNTIME) ## list the orders of operators, with their outcomes; ARGS='--since 7d'
	@$(BIN)/resequencer orders --config "$(CONF)" $(ARGS)

delivery: $(RUNTIME) ## list the receivers and whether they are called; ARGS=jobs, ARGS='open-gate RECEIVER' and others
	@$(BIN)/resequencer delivery --config "$(CONF)" $(or $(ARGS),gates)

groups: $(RUNTIME) ## list the messages and how many of their payments are through; ARGS='show KEY'
	@$(BIN)/resequencer groups --config "$(CONF)" $(or $(ARGS),list)

region: $(RUNTIME) ## show the workers' regions (source, units and sinks); ARGS=reset
	@$(BIN)/resequencer region --config "$(CONF)" $(or $(ARGS),show)

sink: $(RUNTIME) ## show the attributes of the sink mqtt; ARGS='set --qos 2' changes them while the service runs
	@$(BIN)/resequencer sink --config "$(CONF)" $(or $(ARGS),show)

console: $(RUNTIME) ## serve the console in the foreground, where the service does not; ARGS='add-user NAME' adds a user
	@$(BIN)/resequencer console --config "$(CONF)" $(ARGS)

lookups: $(PIPELINE) ## build the lookups and publish them as a new version, which a running service takes up; needs Java 17
	@$(BIN)/resequencer lookups build --config "$(CONF)" $(ARGS)

audit: $(PIPELINE) ## check that the output of CONF is complete, unique and in order; writes a page of charts
	@$(BIN)/resequencer audit --config "$(CONF)" $(ARGS)

archive: $(RUNTIME) ## move processed input of CONF into its archive, also while the service runs
	@$(BIN)/resequencer archive --config "$(CONF)" $(ARGS)

archive-topics: $(PIPELINE) ## copy the topics of CONF to Parquet, each record once; ARGS=--continuous keeps going, ARGS=--compact merges small files
	@$(BIN)/resequencer archive-topics --config "$(CONF)" $(ARGS)

setup-jms: $(JMS) ## install the clients of JMS, XMS and MQTT brokers, which only a service with these needs; builds one with a C compiler

##@ For developers

setup: $(DEVELOPMENT) ## install what the other targets need into .venv (they do it themselves)

# Bytecode is kept, whatever the environment says: otherwise each of the many processes of a run compiles everything anew.
# What tests and their servers write lies in memory where there is room (6 GB): a disk takes some hundred syncs a second, and would
# be what a run waits for. A test that is about the disk itself says so.
IN_MEMORY := $(shell [ "$$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 6000000 ] 2>/dev/null && echo TMPDIR=/dev/shm)
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(IN_MEMORY) $(BIN)/python -m pytest -q

check: lint ## lint, types, import rules and the fast tests: before every commit
	@$(PYTEST) -n auto --dist worksteal -m "not slow" --ignore tests/notification_service/jobs/spark

# What takes longest comes at the end.
LONGEST := --durations=25 --durations-min=5

# The jobs have a run to themselves, beside the others: one Spark for all of their tests. Their output follows at the end.
SPARK_LOG := $(VENV)/spark-tests.txt
define BOTH_RUNS
$(PYTEST) $(LONGEST) -m "$(1)" tests/notification_service/jobs/spark $(2) >$(SPARK_LOG) 2>&1 & spark=$$!; \
  trap 'kill $$spark' INT TERM; \
  $(PYTEST) $(LONGEST) -m "$(1)" -n auto --dist worksteal --ignore tests/notification_service/jobs/spark $(2); others=$$?; \
  wait $$spark; jobs=$$?; \
  cat $(SPARK_LOG)
endef

test: lint $(PIPELINE) ## everything that check does, and each promise once on real servers: before a change lands
	@$(call BOTH_RUNS,not nightly); exit $$((others | jobs))

ifndef SEARCH_SEED
SEARCH_SEED := $(shell date +%s)
endif
# A part that has no test of the jobs, or only those, ends with 5.
nightly: lint $(PIPELINE) ## what searches: new seeds, matrices, long simulations; SEARCH_SEED=N: these seeds; ARGS='-k regions' takes a part
	@echo "SEARCH_SEED=$(SEARCH_SEED)"
	@export SEARCH_SEED=$(SEARCH_SEED); $(call BOTH_RUNS,nightly or hypothesis,--hypothesis-profile nightly $(ARGS)); exit $$(( (others % 5) | (jobs % 5) ))

fuzz: export PYTHONPATH := tests
fuzz: $(FUZZ) ## search for input that breaks a reader, FUZZ_SECONDS=60 for each reader; ARGS=decoding takes one
	@for each in $(or $(strip $(ARGS)),$$($(BIN)/python -c 'from fuzz.targets import TARGETS; print(*TARGETS)')); do \
	  echo "$$each"; $(BIN)/python -m fuzz.run "$$each" --seconds $${FUZZ_SECONDS:-60} --quiet || exit 1; done

soak: $(DEVELOPMENT) ## 100 of each kind of kill, RECORDS=1000000 mostly of garbage, SOAK_MINUTES=30 of steady load, SEARCH_MINUTES=30 of each search; SEARCH_SEED=N: these seeds
	@KILLS=$${KILLS:-100} RECORDS=$${RECORDS:-1000000} SOAK_MINUTES=$${SOAK_MINUTES:-30} SEARCH_SEED=$(SEARCH_SEED) \
	  $(PYTEST) --timeout=7200 -s tests/process -k "kills_ or any_garbage or steady_load"
	@SEARCH_MINUTES=$${SEARCH_MINUTES:-30} SEARCH_SEED=$(SEARCH_SEED) $(PYTEST) -m nightly -k whatever_the_seed

faults: $(DEVELOPMENT) ## kill, pause and cut off workers, Kafka, Redis and Infinispan under load for an hour and a half; prints tables; SEARCH_SEED=N: other moments
	@FAULTS=all SEARCH_SEED=$(SEARCH_SEED) $(PYTEST) -n $${FAULT_PROCESSES:-2} --dist worksteal tests/faults $(ARGS)

lint: $(DEVELOPMENT) ## lint, format, types and import rules
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "Not formatted; 'make format' mends it:"; $(BIN)/ruff format --check .; exit 1; }
	@$(BIN)/python -m mypy --no-error-summary
	@$(BIN)/lint-imports > $(VENV)/import-rules.txt || { cat $(VENV)/import-rules.txt; exit 1; }

format: $(DEVELOPMENT) ## format the code and fix what ruff can fix
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .

bench: $(DEVELOPMENT) ## run the benchmarks, which print ratios; BENCH=throughput ARGS=--large runs one, ARGS=--continue those not finished
	@for each in $(BENCH); do \
	  echo; echo "== $$each"; $(BIN)/python -m benchmarks.$$each $(ARGS) || exit 1; \
	done

clean: ## remove .venv, caches and build leftovers; never what the service wrote under run/
	@rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .fuzz
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(DEVELOPMENT): $(JMS)
	@echo "Setting up the development tools (once)" >&2
	@$(PIP) --editable ".[dev]"
	@touch $@

# Beside the rest, for it is built here.
$(JMS): $(RUNTIME)
	@echo "Setting up the clients of JMS, XMS and MQTT brokers (once)" >&2
	@$(CAN_BUILD_JMS) || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing $(JMS_PACKAGES)" >&2; \
	    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(JMS_PACKAGES); } >/dev/null 2>&1; \
	  fi; \
	  $(CAN_BUILD_JMS) || { \
	  echo "The client of JMS brokers is built here, and needs a C compiler, pkg-config and the headers of OpenSSL. On Debian and Ubuntu: sudo apt-get install $(JMS_PACKAGES)" >&2; exit 1; }; }
	@$(PIP) --editable ".[jms,mqtt]"
	@touch $@

# Beside the rest, for it is half a gigabyte that the service does not need.
$(PIPELINE): $(RUNTIME)
	@command -v java >/dev/null || { echo "Java 17 is needed. On Debian and Ubuntu: sudo apt-get install openjdk-17-jre-headless" >&2; exit 1; }
	@echo "Setting up Spark (once)" >&2
	@$(PIP) --editable ".[pipeline]"
	@touch $@

# Beside the rest, for it is built for some platforms only.
$(FUZZ): $(DEVELOPMENT)
	@echo "Setting up the fuzzer (once)" >&2
	@$(PIP) --editable ".[fuzz]"
	@touch $@

# The runtime alone is a minute less than the development tools: `make demo` needs no more.
$(RUNTIME): setup.cfg pyproject.toml
	@echo "Setting up $(VENV) (once)" >&2
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 or newer is needed, and $(PYTHON) is not: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) >/dev/null 2>&1 || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing python3-venv" >&2; \
	    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv; } >/dev/null 2>&1; \
	  fi; \
	  $(PYTHON) -m venv --clear $(VENV) >/dev/null || { \
	  echo "$(PYTHON) cannot make a virtual environment. On Debian and Ubuntu: sudo apt-get install python3-venv" >&2; exit 1; }; }
	@$(PIP) --editable ".[console]"
	@touch $@
