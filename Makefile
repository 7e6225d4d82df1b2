# One command each; every target installs what it needs into .venv first. `make` lists them.

PYTHON ?= python3
SOURCE ?=
JOURNAL ?=
WORKERS ?= 2
BIN := .venv/bin
export PATH := $(CURDIR)/.venv/bin:$(PATH)
COMPILED_ROOMS := bulk content filevault format model package publisher subscriber tree wire
COMPILED_TESTS := $(foreach room,$(COMPILED_ROOMS),$(wildcard tests/unit/test_$(room)_*.py)) tests/golden tests/fuzz \
	tests/contract/test_packages.py tests/contract/test_targets.py
PYTEST := $(BIN)/pytest --durations=15

.DEFAULT_GOAL := help
.PHONY: help demo test lint suite compiled gates bench fuzz e2e cluster cluster-down image manifests docs generate format lock clean kubebox extensions runtime dev

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(if $(JOURNAL),dev,runtime) ## Publish a tree to twenty subscribers, let things go wrong, and compare (SOURCE=DIR takes yours, JOURNAL=kafka real servers)
	@$(BIN)/mailboat demo $(if $(SOURCE),'$(SOURCE)') $(if $(JOURNAL),--journal '$(JOURNAL)')

test: lint suite compiled gates ## Everything that must hold: lint, the suite with coverage, the compiled modules, the gated benchmarks

lint: dev ## ruff, formatting, mypy, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

suite: dev kubebox ## All tests but the benchmarks, with branch coverage
	rm -f .coverage .coverage.*
	$(PYTEST) -n $(WORKERS) --dist worksteal --ignore tests/benchmarks --ignore tests/e2e --cov --cov-report=term

compiled: extensions ## The tests of packages, content and subscribers with the hot paths compiled by mypyc, as images have them
	PYTHONPATH="$$($(BIN)/python tools/build_compiled.py)" $(PYTEST) -n $(WORKERS) --dist worksteal $(COMPILED_TESTS)

gates: extensions ## The short benchmarks whose ratios are gated, one at a time
	$(PYTEST) tests/benchmarks

bench: extensions ## All figures, at full length, as JSON in bench-results/
	$(BIN)/python -m pytest tests/benchmarks --full-length --timeout 1800 --durations=0 -s

fuzz: dev ## The property targets for long; docs/fuzzing.md tells of the coverage-guided ones
	$(BIN)/pytest -m fuzz --hypothesis-profile=fuzz --timeout 0 tests/fuzz

e2e: dev ## Pods in a real cluster (made first where it does not run, and left for the next time)
	$(BIN)/python tests/kind/builds.py > /dev/null
	$(BIN)/python tests/kind/cluster.py up > /dev/null
	$(BIN)/python tests/kind/cluster.py images
	$(PYTEST) tests/e2e

cluster: dev ## Make the test cluster (kind) on this machine; prints what a shell needs to use it
	@$(BIN)/python tests/kind/cluster.py up

cluster-down: ## Remove the test cluster, and the container engine that was started for it
	@$(PYTHON) tests/kind/cluster.py down

image: dev ## Build the image with the Dockerfile and load it into the test cluster; prints name and bytes
	@$(BIN)/python tests/kind/cluster.py images

manifests: dev ## Render the Helm chart as plain YAML into build/manifests.yaml
	mkdir -p build
	$$($(BIN)/python tests/kind/builds.py helm) template mailboat helm/mailboat --namespace mailboat > build/manifests.yaml

docs: dev ## Write the generated pages of docs/ anew, and check every link
	$(BIN)/python tools/generate_docs.py
	$(BIN)/pytest -q tests/repo/test_docs.py

generate: dev ## Write what is made from proto/ (code) and from the operator's records (crds/) anew
	$(BIN)/python tools/generate_wire.py
	$(BIN)/python tools/generate_crds.py
	rm -rf helm/mailboat/definitions && cp -r crds helm/mailboat/definitions

format: dev ## Format the code, and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: dev ## Resolve requirements/*.txt anew from pyproject.toml
	$(BIN)/python tools/lock_requirements.py

clean: ## Remove everything that the targets made, .venv too
	rm -rf .venv .venv.lock .mailboat .coverage .coverage.* htmlcov bench-results dist build
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find agent_image operator tests tools -name __pycache__ -prune -exec rm -rf {} +

kubebox: dev # the API server of the operator's tests, and what renders the chart: built once, minutes from nothing
	@$(BIN)/python tests/kind/builds.py kubebox helm > /dev/null

extensions: dev # the compiled modules: made before the tests, as it takes longer than one may, and must not fail unseen
	@$(BIN)/python tools/build_compiled.py > /dev/null

runtime: # what the demo needs, installed into .venv
	@$(PYTHON) tools/bootstrap.py runtime

dev: ## Install everything for development into .venv; other targets do it first
	@$(PYTHON) tools/bootstrap.py dev
