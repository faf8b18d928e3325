# The front door. `make` alone lists what there is.
#
# One target folder for everything, outside the clone, and always the --workspace selection: features unify the same way
# each time, so that RocksDB and DataFusion are compiled once per profile.

CARGO_TARGET_DIR ?= $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/tarn/target
TARN_VENV ?= $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/tarn/venv
export CARGO_TARGET_DIR TARN_VENV

SF ?= 1
SOAK_MINUTES ?= 30
RELEASE := $(CARGO_TARGET_DIR)/release
DEBUG := $(CARGO_TARGET_DIR)/debug

.PHONY: help setup setup-tests build demo test test-rust test-clients lint fmt tidy bench-adhoc bench-load soak
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{ printf "  make %-14s %s\n", $$1, $$2 }'

setup: ## install what the build needs and is missing
	@scripts/setup

setup-tests: ## install what the tests need and is missing
	@scripts/setup --tests

build: setup ## release build of every binary
	cargo build --release --workspace --bins

demo: build ## the main job on TPC-H lineitem, scale factor SF=1, start to end
	@$(RELEASE)/tarn demo --sf $(SF)

test: test-rust test-clients ## everything: cargo test, then psql, psycopg, JDBC and DuckDB against the real server

test-rust: setup
	cargo test --workspace

test-clients: setup-tests
	cargo test --workspace --no-run
	@$(TARN_VENV)/bin/python tests/clients/run.py --tarn $(DEBUG)/tarn

lint: setup-tests ## formatting, clippy without warnings, rooms and files
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --no-deps -- -D warnings
	cargo test --workspace --quiet --bin xtask

fmt: ## format everything
	cargo fmt --all

tidy: ## say where the crate graph, file headers or formats break their rules
	cargo run --quiet --bin xtask

bench-adhoc: build setup-tests ## the five ad-hoc queries, load, union; Tarn and DuckDB alternating (JSON on stdout)
	@$(RELEASE)/tarn-bench adhoc --sf $(SF) --json --python $(TARN_VENV)/bin/python

bench-load: build ## rows/s through the front door, peak memory (JSON on stdout)
	@$(RELEASE)/tarn-bench load --sf $(SF) --json

soak: setup ## kill -9 at random points and at every failpoint of delivery for SOAK_MINUTES=30
	TARN_SOAK_SECONDS=$$(( $(SOAK_MINUTES) * 60 )) cargo test --workspace --test kill9 -- --nocapture
