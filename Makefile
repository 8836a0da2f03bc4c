# seedbed: every target is one line; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help build test check bench demo e2e fuzz docs install

# The same flags everywhere, so that containerd is compiled once.
export CGO_ENABLED := 0
export GOFLAGS := $(shell go env GOFLAGS) -trimpath

TOOL := go tool -modfile=e2e/tools/tools.mod
PREFIX ?= /usr/local

help: ## list the targets
	@sed -n 's/^\([a-z0-9]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

build: ## build bin/seedbed, static
	go build -ldflags='-s -w' -o bin/seedbed .

test: ## set up what the tests need, run them all (as root: e2e too)
	e2e/setup.sh && $(TOOL) gotestsum --format=pkgname-and-test-fails -- -timeout=20m ./...

check: ## vet, staticcheck, gofumpt, generated docs
	go vet ./... && $(TOOL) staticcheck ./... && $(TOOL) gofumpt -d . | (! grep .) && go test . && go test -run='Docs|Help' ./cmd

bench: ## measure against real peers, in ratios
	go run ./e2e/bench

demo: ## place a tree under ./demo, run containerd on it, import sample bundles
	e2e/demo.sh demo

e2e: ## the end-to-end tests alone, with real gVisor (root)
	e2e/setup.sh && SEEDBED_E2E_GVISOR=1 $(TOOL) gotestsum --format=standard-verbose -- -timeout=20m -count=1 ./e2e/...

fuzz: ## fuzz every parser, FUZZTIME each (default 5m)
	e2e/fuzz.sh $${FUZZTIME:-5m}

docs: ## write the generated pages: CLI reference and man pages
	go test ./cmd -run='^TestDocs' -update

install: build ## install the binary and man pages under PREFIX (default /usr/local)
	install -D bin/seedbed $(DESTDIR)$(PREFIX)/bin/seedbed && install -d $(DESTDIR)$(PREFIX)/share/man/man1 && bin/seedbed man $(DESTDIR)$(PREFIX)/share/man/man1
