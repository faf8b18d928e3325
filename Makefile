# The front door. `make` alone lists what there is.
#
# One target folder for everything, outside the clone, and always the --workspace selection: features unify the same way
# each time, so that DataFusion is compiled once per profile.

CACHE := $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/tarn
CARGO_TARGET_DIR ?= $(CACHE)/target
TARN_VENV ?= $(CACHE)/venv
export CARGO_TARGET_DIR TARN_VENV

# C and C++, RocksDB's above all, are compiled once for all profiles and target folders (ccache), and RocksDB in groups of files
# (scripts/compilers/c++). By PATH and not by CXX, a change of which makes cargo build RocksDB again.
CCACHE_DIR ?= $(CACHE)/ccache
CCACHE_MAXSIZE ?= 2G
PATH := $(CURDIR)/scripts/compilers:/usr/lib/ccache:$(PATH)
export CCACHE_DIR CCACHE_MAXSIZE PATH

SF ?= 1
FUZZ_SECONDS ?= 5
HOSTILE_MINUTES := $(if $(SOAK_MINUTES),$(SOAK_MINUTES),60)
SOAK_MINUTES ?= 30
RAFTLOG_ARGS ?=
METASTORE_ARGS ?= --backend embedded,cassandra,postgres
ARCHIVE_ARGS ?=
TPCH_SF ?= $(if $(filter command line environment,$(origin SF)),$(SF),10)
TPCH_ARGS ?=
TPCH_CHECK_SF ?= 0.1
TPCDS_ARGS ?=
RELEASE := $(CARGO_TARGET_DIR)/release
DEBUG := $(CARGO_TARGET_DIR)/debug

.PHONY: help setup setup-tests setup-bench build demo test test-rust test-metastore-backends test-clients test-hostile test-postgres test-generated test-fuzz test-raftlog-adapters lint clippy doc deny locks fmt tidy bench-adhoc bench-load bench-tpch bench-tpcds bench-raftlog bench-raftlog-build test-raftlog-bench bench-metastore bench-archive bench-cache bench-micro bench-promises bench-sql soak soak-hostile soak-fuzz test-clients-all
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{ printf "  make %-14s %s\n", $$1, $$2 }'

setup: ## install what the build needs and is missing
	@scripts/setup

setup-bench: ## install what bench-raftlog needs and is missing
	@scripts/setup --bench

setup-tests: ## install what the tests need and is missing
	@scripts/setup --tests

build: setup ## release build of every binary
	cargo build --release --workspace --bins

# One program of the workspace, with the features of all: nothing of it is compiled again by the others.
demo: setup ## the main job on TPC-H lineitem, scale factor SF=1, start to end
	cargo build --release --workspace --bin tarn
	@$(RELEASE)/tarn demo --sf $(SF)

test: test-rust test-clients ## everything: cargo test, then psql, psycopg, JDBC and DuckDB against the real server

# The metastore's backends are tested against servers of their own, which are started for it and stopped after it.
test-rust: setup-tests
	scripts/services/with cargo test --workspace

# Alone they need neither RocksDB nor DataFusion: a target folder of their own.
test-metastore-backends: setup-tests ## the metastore's backends behind a network, against servers: contract, faults, migrations
	CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/backends scripts/services/with cargo test $(patsubst crates/%,-p %,$(wildcard crates/tarn-metastore-*))

# A target folder of its own: with these features, crates below would be rebuilt in the shared one.
test-raftlog-adapters: setup ## the log under raft-rs and openraft, with openraft's own log-store suite, and under loom
	CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/adapters cargo test -p tarn-raftlog --features raft-rs,openraft,openraft/tokio-rt --test adapters_raft_rs --test adapters_openraft
	CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/adapters cargo test -p tarn-raftlog --features loom --test loom
	CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/adapters cargo clippy -p tarn-raftlog --features raft-rs,openraft,openraft/tokio-rt,loom --all-targets --no-deps -- -D warnings

test-clients: setup-tests
	cargo test --workspace --no-run
	@$(TARN_VENV)/bin/python tests/clients/run.py --tarn $(DEBUG)/tarn
	@$(DEBUG)/tarn-bench tpch --check --sf $(TPCH_CHECK_SF) --python $(TARN_VENV)/bin/python

# Large clients in a Python of their own.
TARN_PYTHON_CLIENTS ?= $(TARN_VENV)-clients/bin/python
$(TARN_PYTHON_CLIENTS): tests/clients/requirements-clients.txt tests/clients/requirements.txt
	@python3 -m venv $(TARN_VENV)-clients
	@$@ -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

test-clients-all: setup-tests $(TARN_PYTHON_CLIENTS) ## all real clients, dbt, polars and Spark too; the same scripts against PostgreSQL first. 600 MB of packages
	cargo test --workspace --no-run
	@$(TARN_VENV)/bin/python tests/clients/run.py --postgres --all --python $(TARN_PYTHON_CLIENTS)
	@$(TARN_VENV)/bin/python tests/clients/run.py --tarn $(DEBUG)/tarn --all --python $(TARN_PYTHON_CLIENTS)

# What is run against, and for how long: HOSTILE_ARGS="--part files --seed 7", FUZZ_ARGS="--seed 3 --only 12".
HOSTILE_ARGS ?=
FUZZ_ARGS ?=
POWERCUT_ARGS ?=
# CI repeats the same cases, so that a change is blamed for what it broke; the soaks try others each time.
HOSTILE_SEED ?= 1
HOSTILE := $(TARN_VENV)/bin/python tests/hostile
TARN ?= $(DEBUG)/tarn

test-hostile: setup-tests ## hostile statements, bytes, files and clients, power cuts, and a minute of fuzzing beside PostgreSQL; short form
	cargo test --workspace --no-run
	@$(HOSTILE)/run.py --tarn $(TARN) --quick --seed $(HOSTILE_SEED) $(HOSTILE_ARGS)
	@$(HOSTILE)/powercut.py --tarn $(TARN) --seconds 15 --seed $(HOSTILE_SEED) $(POWERCUT_ARGS)
	@$(HOSTILE)/differential.py --tarn $(TARN) --seconds 60 --rounds 6 --seed $(HOSTILE_SEED) $(FUZZ_ARGS)

# The whole of it, against a release build: TARN=…/release/tarn POSTGRES_ARGS="--set core --json regress.json".
POSTGRES_ARGS ?= --set quick
test-postgres: setup-tests ## PostgreSQL's own regress files, statement by statement, on PostgreSQL and on Tarn; a handful of them
	cargo test --workspace --no-run
	@$(TARN_VENV)/bin/python tests/postgres/run.py --tarn $(TARN) --skip-if-missing $(POSTGRES_ARGS)

# Half of them expressions of values, half queries of tables. Another GENERATED_SEED makes others: ten minutes of a release build are 100,000.
GENERATED_COUNT ?= 2000
GENERATED_SEED ?= 1
test-generated: setup-tests ## random expressions and queries over all types, on PostgreSQL and on Tarn; GENERATED_COUNT=2000
	cargo test --workspace --no-run
	@$(TARN_VENV)/bin/python tests/generated/run.py --tarn $(TARN) --skip-if-missing --count $(GENERATED_COUNT) --seed $(GENERATED_SEED) $(GENERATED_ARGS)

lint: setup-tests ## formatting, clippy without warnings, rooms and files, documentation, dependencies
	cargo fmt --all --check
	@$(MAKE) --no-print-directory clippy doc deny
	cargo test --workspace --quiet --bin xtask

clippy: setup
	cargo clippy --workspace --all-targets --no-deps -- -D warnings

doc: setup ## what the crates' documentation says: no link of it is broken
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

deny: setup-tests ## licences and sources of all dependencies, and which crate may have which (deny.toml)
	PATH="$(TARN_VENV)/bin:$$PATH" cargo deny --locked check -D warnings bans licenses sources

locks: ## every Cargo.lock, those of the benches and the fuzz targets too, is what its manifests ask for
	@for lock in $$(git ls-files '*Cargo.lock'); do \
	    cargo update --workspace --locked --quiet --manifest-path $$(dirname $$lock)/Cargo.toml || \
	    { echo "$$lock is not up to date: cargo update --workspace --manifest-path $$(dirname $$lock)/Cargo.toml"; exit 1; }; done

test-fuzz: setup ## each fuzz target for FUZZ_SECONDS=5
	scripts/fuzz $(FUZZ_SECONDS)

fmt: ## format everything
	cargo fmt --all

tidy: ## say where the crate graph, file headers or formats break their rules
	cargo run --quiet --bin xtask

bench-adhoc: build setup-tests ## the five ad-hoc queries, load, union; Tarn and DuckDB alternating (JSON on stdout)
	@$(RELEASE)/tarn-bench adhoc --sf $(SF) --json --python $(TARN_VENV)/bin/python

bench-load: build ## rows/s through the front door, peak memory (JSON on stdout)
	@$(RELEASE)/tarn-bench load --sf $(SF) --json

# ClickHouse in a Python of its own: it is large, and only this bench wants it.
TARN_PYTHON_CHDB ?= $(TARN_VENV)-chdb/bin/python
$(TARN_PYTHON_CHDB): tests/clients/requirements-chdb.txt
	@python3 -m venv $(TARN_VENV)-chdb
	@$@ -m pip install --quiet --disable-pip-version-check -r $<

bench-tpch: build setup-tests $(TARN_PYTHON_CHDB) ## all TPC-H queries far away and near, by cache, beside DuckDB and ClickHouse; SF=10 unless set (JSON on stdout)
	@$(RELEASE)/tarn-bench tpch --sf $(TPCH_SF) --json --python $(TARN_VENV)/bin/python --python-chdb $(TARN_PYTHON_CHDB) $(TPCH_ARGS)

# The generator in a Python of its own: PyPI has it for the DuckDB before.
TARN_PYTHON_TPCDS ?= $(TARN_VENV)-tpcds/bin/python
$(TARN_PYTHON_TPCDS): tests/clients/requirements-tpcds.txt
	@python3 -m venv $(TARN_VENV)-tpcds
	@$@ -m pip install --quiet --disable-pip-version-check -r $<

bench-tpcds: build setup-tests $(TARN_PYTHON_TPCDS) ## all 99 TPC-DS queries on attached Parquet within 512 MiB, beside DuckDB; SF=1 unless set (JSON on stdout); TPCDS_ARGS=--check judges alone
	@$(RELEASE)/tarn-bench tpcds --sf $(SF) --json --python $(TARN_VENV)/bin/python --python-tpcds $(TARN_PYTHON_TPCDS) $(TPCDS_ARGS)

bench-raftlog: build bench-raftlog-build ## the log store beside raft-engine, RocksDB and Badger (JSON on stdout); RAFTLOG_ARGS=--quick for CI
	@$(RELEASE)/tarn-bench raftlog --json $(RAFTLOG_ARGS)

# The program behind `tarn-bench raftlog`; it also runs alone. Go finds its modules through its own proxy; without Go 1.24 Badger is left out, and the bench says so.
bench-raftlog-build: setup-bench
	@cargo build --release --manifest-path bench/raftlog/Cargo.toml
	@if scripts/setup --has-go; then cd bench/badger && CGO_ENABLED=0 go build -trimpath -o $(RELEASE)/tarn-bench-badger .; \
	else rm -f $(RELEASE)/tarn-bench-badger; fi

# CI asks whether the bench runs, not how fast: it is built as the tests are, in their folder, which has most of what it needs.
# RocksDB's C++ and Badger are left out.
RAFTLOG_CI := --manifest-path bench/raftlog/Cargo.toml --no-default-features
test-raftlog-bench: setup ## bench/raftlog in short form, without RocksDB and Badger: formatting, clippy, tests, one quick run
	cargo fmt --manifest-path bench/raftlog/Cargo.toml --check
	cargo clippy $(RAFTLOG_CI) --all-targets --no-deps -- -D warnings
	cargo test $(RAFTLOG_CI)
	cargo run $(RAFTLOG_CI) -- --quick --seconds 0.2 --engines tarn,raft-engine

# For the store that is far away: DuckDB speaks S3 with an extension that PyPI has for the version before.
TARN_PYTHON_HTTPFS ?= $(TARN_VENV)-httpfs/bin/python
$(TARN_PYTHON_HTTPFS): tests/clients/requirements-httpfs.txt
	@python3 -m venv $(TARN_VENV)-httpfs
	@$@ -m pip install --quiet --disable-pip-version-check -r $<

bench-metastore: build setup-tests $(TARN_PYTHON_HTTPFS) ## the metastore's backends, and an archive's search beside DuckDB and DataFusion (JSON on stdout); needs 17 GB of disk
	@$(RELEASE)/tarn-bench metastore --json --python $(TARN_VENV)/bin/python --python-httpfs $(TARN_PYTHON_HTTPFS) $(METASTORE_ARGS)

bench-archive: build setup-tests $(TARN_PYTHON_HTTPFS) ## a rare word in 2,000 attached Parquet files, beside DuckDB and DataFusion (JSON on stdout)
	@$(RELEASE)/tarn-bench archive --json --python $(TARN_VENV)/bin/python --python-httpfs $(TARN_PYTHON_HTTPFS) $(ARCHIVE_ARGS)

bench-cache: build ## the page cache alone: hits beside plain reads, cold reads by page size (JSON on stdout); 3 GB of disk
	@$(RELEASE)/tarn-bench cache --json $(CACHE_ARGS)

# What one sees of a hot loop; what a user sees of it, the benches above tell. The name of a bench after -- runs it alone: MICRO_ARGS="-- prune".
MICRO_ARGS ?=
bench-micro: setup ## criterion: key and row codec, pruning and blooms, recent rows, tablets beside each other
	cargo bench --workspace --bench codec --bench prune --bench recent --bench apply $(MICRO_ARGS)

# What the promises cost; BASE=PATH is another build of tarn, which is measured in turns with this one.
bench-promises: build setup-tests ## keyed statements, restart and stop with 3,000 tables, cancelling, splitting (JSON on stdout); BASE=PATH compares
	@$(TARN_VENV)/bin/python bench/promises/promises.py --tarn $(RELEASE)/tarn $(if $(BASE),--base $(BASE)) --json $(PROMISES_ARGS)

# What was before: SQL_ARGS="--base PATH". Alone: SQL_ARGS="--parts regress,copy".
SQL_ARGS ?=
bench-sql: build setup-tests $(TARN_PYTHON_TPCDS) ## how far the SQL is PostgreSQL's and what it costs: regress files, 100,000 generated statements, clients, TPC-DS, COPY (JSON on stdout)
	@$(RELEASE)/tarn-bench sql --json --python $(TARN_VENV)/bin/python --python-tpcds $(TARN_PYTHON_TPCDS) $(SQL_ARGS)

soak: setup ## kill -9 at random points and at every failpoint of delivery for SOAK_MINUTES=30
	TARN_SOAK_SECONDS=$$(( $(SOAK_MINUTES) * 60 )) cargo test --workspace --test kill9 -- --nocapture

# A release build: what is hostile to a debug build is not what users meet. Everything in turn, each time with fresh seeds.
soak-hostile: setup-tests ## everything of tests/hostile in turn with fresh seeds for SOAK_MINUTES (60 unless set)
	cargo build --release --workspace --bins
	@$(TARN_VENV)/bin/python tests/hostile/soak.py --tarn $(RELEASE)/tarn --minutes $(HOSTILE_MINUTES)

soak-fuzz: setup-tests ## the differential fuzzer beside PostgreSQL for SOAK_MINUTES (60 unless set)
	cargo build --release --workspace --bins
	@$(HOSTILE)/differential.py --tarn $(RELEASE)/tarn --seconds $$(( $(HOSTILE_MINUTES) * 60 )) $(FUZZ_ARGS)
