# Two commands on a fresh machine that has python3 (3.11 to 3.14), make and git:
#   make train   learn cartpole-swingup on the CPU in minutes, with a picture at the end
#   make test    install what the tests need and run them
# and: make lint, make docs (the documentation site),
# make results (the tables of results in the pages, from the files beside the studies)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := runs/first

.PHONY: install test train lint docs results clean

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

test: $(VENV)/installed-tests
	$(BIN)/python -m pytest -q -n 2 --dist worksteal tests

lint: $(VENV)/installed-tests
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

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
