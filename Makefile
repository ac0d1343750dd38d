# make help lists the targets. Needs python3 >= 3.11 with venv, a C++17 compiler and make; the rest comes from PyPI.
PYTHON  ?= python3
VENV    ?= .venv
ORACLE  ?= .venv-oracle
BUILD   ?= build/dev
SOURCES := pyproject.toml CMakeLists.txt $(shell find native src -name '*.cpp' -o -name '*.hpp' -o -name '*.py') \
           $(shell find src/mindnano/server/page -type f)
CXX_FILES = $(shell find native -name '*.cpp' -o -name '*.hpp')
PIP     := -m pip --disable-pip-version-check install -qq
FULL    ?= full.mn

TRAINED ?= training/run

.PHONY: help demo test page-test clients soak soak-server lint oracle fixtures builtin-model test-slow test-full sanitize bench \
  bench-serving dev clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.installed: $(SOURCES)
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python $(PIP) '.[test]'
	touch $@

demo: $(VENV)/.installed  ## build, and run the main job on the built-in model
	$(VENV)/bin/mindnano demo

test: $(VENV)/.installed  ## the tests that need no torch
	$(VENV)/bin/python -m pytest

test-slow: $(VENV)/.installed  ## fuzzing and soak runs
	$(VENV)/bin/python -m pytest -m slow

page-test: $(VENV)/.installed  ## the page in headless Chromium (Debian: apt install chromium)
	$(VENV)/bin/python $(PIP) '.[test,page]'
	$(VENV)/bin/python -m pytest -m page tests/page

clients: $(VENV)/.installed  ## further clients (litellm, langchain-openai, llm) against the server
	$(VENV)/bin/python $(PIP) $$($(VENV)/bin/python -c "import tomllib; \
	  print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['clients'])")
	$(VENV)/bin/python -m pytest -m clients tests/server

soak-server: $(VENV)/.installed  ## ten minutes of load on the server (MINDNANO_SOAK_SECONDS=n for another time)
	$(VENV)/bin/python -m pytest -s -m slow tests/server/test_load.py

soak: $(VENV)/.installed  ## an hour of mixed sessions (MINDNANO_SOAK_SECONDS=n for another time)
	$(VENV)/bin/python -m pytest -s -m slow tests/engine/test_soak.py

bench-serving: $(FULL)  ## four answers against one, a long prompt beside answers, on the full-size model
	$(VENV)/bin/mindnano bench serving $(FULL)

$(FULL): $(VENV)/.installed
	$(VENV)/bin/mindnano synth tests/data/ling-3.0-tiny.config.json $@ --recipe mixed

test-full: $(FULL)  ## tests on the full-size synthetic model (5 GB in FULL=path)
	MINDNANO_FULL=$(FULL) $(VENV)/bin/python -m pytest -m full

$(ORACLE)/.installed: $(SOURCES)
	test -x $(ORACLE)/bin/python || $(PYTHON) -m venv $(ORACLE)
	$(ORACLE)/bin/python $(PIP) torch==2.13.0
	$(ORACLE)/bin/python $(PIP) '.[test,oracle]'
	touch $@

oracle: $(ORACLE)/.installed  ## compare live with the transformers classes, and check the committed fixtures
	$(ORACLE)/bin/python -m pytest -m oracle

builtin-model: $(ORACLE)/.installed  ## export and pack a training run (TRAINED=folder), compare it with the class
	PYTHONPATH=. $(ORACLE)/bin/python -m training.export $(TRAINED) build/builtin
	PYTHONPATH=. $(ORACLE)/bin/python -m training.verify build/builtin
	$(ORACLE)/bin/mindnano convert build/builtin build/builtin.mn --recipe mixed --force

fixtures: $(ORACLE)/.installed  ## make the committed fixtures again
	$(ORACLE)/bin/python -m tests.oracle.make_fixtures

lint: $(VENV)/.installed  ## ruff, mypy, clang-format
	$(VENV)/bin/python $(PIP) '.[lint]'
	$(VENV)/bin/ruff check src tests benchmarks training
	$(VENV)/bin/ruff format --check src tests benchmarks training
	$(VENV)/bin/mypy
	$(VENV)/bin/clang-format --dry-run --Werror $(CXX_FILES)

sanitize: $(VENV)/.installed  ## kernel tests under the address and undefined-behaviour sanitizers
	$(VENV)/bin/python $(PIP) cmake ninja nanobind
	$(VENV)/bin/cmake -S . -B build/sanitize -G Ninja -DMN_SANITIZE=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DCMAKE_MAKE_PROGRAM=$(abspath $(VENV))/bin/ninja -DPython_EXECUTABLE=$(abspath $(VENV))/bin/python
	$(VENV)/bin/cmake --build build/sanitize
	rm -rf build/sanitize/package && cp -r src build/sanitize/package
	cp build/sanitize/_native*.so build/sanitize/package/mindnano/
	PYTHONPATH=build/sanitize/package ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	  LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so.6)" \
	  $(VENV)/bin/python -m pytest tests/kernels

bench: $(FULL)  ## kernels against this machine's limits, then speed by depth on the full-size model
	$(VENV)/bin/mindnano bench kernels
	$(VENV)/bin/mindnano bench depth $(FULL)

dev:  ## build the extension in place (while working on the kernels: PYTHONPATH=src)
	cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE=$$(command -v $(PYTHON)) $(CMAKE_ARGS)
	cmake --build $(BUILD)
	cp $(BUILD)/_native*.so src/mindnano/

clean:  ## remove what was built
	rm -rf $(VENV) $(ORACLE) build src/mindnano/*.so
