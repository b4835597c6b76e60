# Two commands on a fresh machine that has python3 (3.11 to 3.14), make and git:
#   make train   learn cartpole-swingup on the CPU in minutes, with a picture at the end
#   make test    install what the tests need and run them
# and: make check (style and the fast tests, before each commit), make test-all (also tests of compiled programs, of a
# cluster, of quick studies and attacks), make lint, make docs (the documentation site),
# make results (the tables of results in the pages, from the files beside the studies)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := runs/first

.PHONY: install check test test-all train lint docs results clean

PYTEST := $(BIN)/python -m pytest -q -n 2 --dist worksteal

install: $(VENV)/installed

# dm_control by itself: from Python 3.13 on there are no wheels of labmaze, on which it depends without need.
$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 14) else f"fcritic needs Python 3.11 to 3.14, this is {v[0]}.{v[1]}; set PYTHON=python3.13")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps dm_control
	@touch $@

$(VENV)/installed-tests: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

train: install
	$(BIN)/fcritic train --recipe fac-small --task cartpole-swingup --action-repeat 4 --steps 56000 \
	  --warmup 2000 --eval-every 8000 --out $(RUN)
	$(BIN)/fcritic plot $(RUN)
	@echo "next: look at $(RUN)/curve.png, then try $(BIN)/fcritic train --recipe fac-small --task Pendulum-v1"

# The marks are explained in tests/tiers.py.
check: lint
	$(PYTEST) -m "not (slow or browser or kill or compiler or cluster or gpu or long)" tests

test: $(VENV)/installed-tests
	$(PYTEST) -m "not (compiler or cluster or gpu or long)" tests

test-all: $(VENV)/installed-tests
	$(PYTEST) tests

lint: $(VENV)/installed-tests
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/pyright --warnings

$(VENV)/installed-docs: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	@touch $@

docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "open build/site/index.html"

results: $(VENV)/installed
	$(BIN)/python studies/tables.py

clean:
	rm -rf $(VENV) runs build *.egg-info
