# One command each; every target installs what it needs into .venv first. `make` lists them.

PYTHON ?= python3
SOURCE ?=
SLICE ?=
JOURNAL ?=
# three more than cores: tests wait for brokers, API servers and operators more than half of their time; with two more,
# a fifth of two cores is idle
WORKERS ?= $(shell expr $$(nproc) + 3)
BIN := .venv/bin
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/mailboat
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# also where the machine forbids bytecode files: each tool would compile all of its modules again
export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(BIN)/pytest --durations=15

.DEFAULT_GOAL := help
.PHONY: help demo dist dev dev-all test test-long lint suite gates bench fuzz e2e cluster cluster-down image manifests release-check docs screenshots site generate format lock clean kubebox extensions runtime

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(if $(JOURNAL),dev,runtime) ## Publish a tree to twenty subscribers, let things go wrong, and compare (SOURCE=DIR takes yours, JOURNAL=kafka real servers)
	@$(if $(JOURNAL),$(if $(filter kafka,$(JOURNAL)),$(BIN)/python -m support.demo_servers,$(error JOURNAL can only be kafka)),$(BIN)/mailboat demo) $(if $(SOURCE),'$(SOURCE)')

dev: ## Install what development needs into .venv, without Spark (seconds with a warm cache)
	@$(PYTHON) tools/bootstrap.py dev

dev-all: ## The same with Spark: what lint and the whole suite need
	@$(PYTHON) tools/bootstrap.py dev-all

test: ## Everything that must hold: lint, the suite on the compiled modules, the gated benchmarks; ends with a table of costs
	@$(PYTHON) tools/stages.py test --workers $(WORKERS)

test-long: dev-all ## The long proofs by slices: SLICE=NAME runs one, none runs all (see tests/slices.toml)
	@$(PYTHON) tools/stages.py long --workers $(WORKERS) $(SLICE)

lint: dev-all ## ruff, formatting, mypy, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	MYPY_CACHE_DIR=$(CACHE)/mypy $(BIN)/mypy
	$(BIN)/lint-imports --no-logo

suite: extensions kubebox ## All tests but benchmarks and pods, on the compiled modules
	PYTHONPATH=build/compiled $(PYTEST) -n $(WORKERS) --dist loadgroup --ignore tests/benchmarks --ignore tests/e2e

# half of a gate's time is one core's: a second file uses the other; what exceeds its gate there is measured alone
gates: extensions ## The short benchmarks whose ratios are gated, two files at a time
	PYTHONPATH=build/compiled $(PYTEST) -n 2 tests/benchmarks || PYTHONPATH=build/compiled $(PYTEST) --last-failed --last-failed-no-failures none tests/benchmarks

bench: extensions ## All figures, at full length, as JSON in bench-results/
	$(BIN)/python -m pytest tests/benchmarks --full-length --timeout 1800 --durations=0 -s

fuzz: dev ## The property targets for long; CONTRIBUTING.md has the coverage-guided way
	$(BIN)/pytest -m fuzz --hypothesis-profile=fuzz --timeout 0 tests/fuzz

e2e: dev-all ## Pods in a real cluster (made first where it does not run, and left for the next time)
	@$(BIN)/python tests/kind/cluster.py plan # what will be built, and how long that took last time
	$(BIN)/python tests/kind/builds.py helm keda-operator keda-adapter metrics-server spark-operator > /dev/null
	$(BIN)/python tests/kind/cluster.py prepare # minutes from nothing, more than a fixture may take
	$(PYTEST) -n 3 --dist loadfile tests/e2e # a worker for each story, which takes a short file where it ends early

cluster: ## Make the test cluster (kind) on this machine; prints what a shell needs to use it
	@$(PYTHON) tests/kind/cluster.py up

cluster-down: ## Remove the test cluster, and the container engine that was started for it
	@$(PYTHON) tests/kind/cluster.py down

image: dev ## Build the image with the Dockerfile and load it into the test cluster; prints name and bytes
	@$(BIN)/python tests/kind/cluster.py images

manifests: dev ## Render the Helm chart as plain YAML into build/manifests.yaml
	mkdir -p build
	printf -- 'apiVersion: v1\nkind: Namespace\nmetadata: {name: mailboat-system}\n' > build/manifests.yaml
	$$($(BIN)/python tests/kind/builds.py helm) template mailboat helm/mailboat --namespace mailboat-system --skip-tests $(if $(MANIFEST_VALUES),--values '$(MANIFEST_VALUES)') >> build/manifests.yaml

dist: dev ## Build wheel, sdist and the kubectl plug-in (archives, krew manifest) into dist/
	rm -rf dist
	$(BIN)/hatchling build -t sdist -t wheel
	$(BIN)/python tools/build_plugin.py

release-check: kubebox ## Run the scripts of the release workflow in a clone, with a local BuildKit and registry
	$(PYTEST) --long release tests/operator/test_release_workflow.py

docs: dev-all ## Generate the reference pages of docs/, those of errors too, and check every link
	$(BIN)/python tools/generate_docs.py
	$(BIN)/pytest -q tests/repo/test_docs.py

screenshots: dev ## Take the screenshots of the dashboard that the documentation shows
	SCREENSHOTS=docs/how-to $(BIN)/pytest -q -p no:cacheprovider tests/integration/test_dashboard.py \
		tests/integration/test_dashboard_restores.py

site: dev ## Build the documentation site into build/site; a broken link fails
	$(BIN)/python tools/build_site.py

generate: dev ## Generate what is made from proto/ (code), from the operator's records (crds/) and from the code (docs/)
	$(BIN)/python tools/generate_wire.py
	$(BIN)/python tools/generate_crds.py
	rm -rf helm/mailboat/definitions && cp -r crds helm/mailboat/definitions
	$(BIN)/python tools/generate_docs.py

format: dev ## Format the code, and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: dev ## Resolve requirements/*.txt from pyproject.toml
	$(BIN)/python tools/lock_requirements.py

clean: ## Remove everything that the targets made, .venv too
	rm -rf .venv .venv.lock .cache .mailboat .coverage .coverage.* htmlcov bench-results test-costs*.json dist build
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find agent_image operator tests tools -name __pycache__ -prune -exec rm -rf {} +

kubebox: dev-all # the API server of the operator's tests, and what renders the chart: built once, minutes from nothing
	@$(BIN)/python tests/kind/builds.py kubebox helm promtool prometheus > /dev/null

extensions: dev-all # the compiled modules: made before the tests, so that a compile error is seen
	@$(BIN)/python tools/build_compiled.py > /dev/null

runtime: # what the demo needs, installed into .venv
	@$(PYTHON) tools/bootstrap.py runtime
