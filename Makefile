# make help lists the targets. Needs python3 >= 3.11 with venv, a C++17 compiler and make; the rest comes from PyPI.
PYTHON  ?= python3
VENV    ?= .venv
ORACLE  ?= .venv-oracle
BUILD   ?= build/dev
SOURCES := pyproject.toml CMakeLists.txt $(shell find native src -name '*.cpp' -o -name '*.hpp' -o -name '*.py') \
           $(shell find src/mindnano/server/page -type f)
CXX_FILES = $(shell find native -name '*.cpp' -o -name '*.hpp')
PY_VERSION = $(shell $(VENV)/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
PIP     := -m pip --disable-pip-version-check install -qq
FULL    ?= full.mn
TRAINED ?= training/run
ARM     := build/aarch64

.PHONY: help demo test page-test clients soak soak-server lint oracle fixtures builtin-model test-slow test-full sanitize bench \
  bench-serving report arm-tools arm-python arm-wheel arm-test arm-smoke arm-count dev clean

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

builtin-model: $(ORACLE)/.installed  ## make a training run (TRAINED=folder) the built-in model, compared with the class
	PYTHONPATH=. $(ORACLE)/bin/python -m training.export $(TRAINED) tests/data/builtin
	PYTHONPATH=. $(ORACLE)/bin/python -m training.verify tests/data/builtin
	PYTHONPATH=. $(ORACLE)/bin/python -m training.golden tests/data/builtin tests/data/builtin/golden.json
	$(ORACLE)/bin/mindnano convert tests/data/builtin src/mindnano/data/builtin.safetensors --recipe mixed --force

fixtures: $(ORACLE)/.installed  ## make the committed fixtures again
	$(ORACLE)/bin/python -m tests.oracle.make_fixtures

lint: $(VENV)/.installed  ## ruff, mypy, clang-format
	$(VENV)/bin/python $(PIP) '.[lint]'
	$(VENV)/bin/ruff check src tests benchmarks training cross
	$(VENV)/bin/ruff format --check src tests benchmarks training cross
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

REPORT  ?= docs/report
RESULTS ?= build/report
BUDGET  ?=

report: $(FULL)  ## the whole benchmark on the full-size model, into REPORT=docs/report; BUDGET=minutes; resumes
	$(VENV)/bin/python $(PIP) '.[bench]'
	cat $(FULL) > /dev/null
	$(VENV)/bin/mindnano bench all $(FULL) --scale full --output-dir $(RESULTS) --report $(REPORT) \
	  $(if $(BUDGET),--budget $(BUDGET))

arm-tools:
	@cross/tools.sh

# An AArch64 Python of VENV's version, beside it what the tests need, and the wheel built for it.
$(ARM)/sysroot/.ready: cross/sysroot.sh | arm-tools $(VENV)/.installed
	cross/sysroot.sh $(ARM)/sysroot $(PY_VERSION)
	touch $@

$(ARM)/site/.needs: pyproject.toml cross/needs.py $(ARM)/sysroot/.ready
	rm -rf $(ARM)/site
	$(VENV)/bin/python cross/needs.py > $(ARM)/needs.txt
	$(VENV)/bin/python $(PIP) --target $(ARM)/site -r $(ARM)/needs.txt --only-binary=:all: --implementation cp \
	  --python-version $(PY_VERSION) $(foreach glibc,$(shell seq 17 36),--platform manylinux_2_$(glibc)_aarch64)
	touch $@

$(ARM)/wheel/.built: $(SOURCES) cross/aarch64.cmake $(ARM)/sysroot/.ready | arm-tools
	$(VENV)/bin/python $(PIP) cmake ninja nanobind scikit-build-core
	rm -rf $(ARM)/wheel
	PATH="$(abspath $(VENV))/bin:$$PATH" _PYTHON_HOST_PLATFORM=linux-aarch64 \
	  SETUPTOOLS_EXT_SUFFIX=.cpython-$(subst .,,$(PY_VERSION))-aarch64-linux-gnu.so \
	  CMAKE_ARGS="-DCMAKE_TOOLCHAIN_FILE=$(CURDIR)/cross/aarch64.cmake \
	    -DPython_INCLUDE_DIR=$(CURDIR)/$(ARM)/sysroot/python-headers" \
	  $(VENV)/bin/python -m pip --disable-pip-version-check wheel -q . --no-deps --no-build-isolation -w $(ARM)/wheel
	touch $@

$(ARM)/site/.installed: $(ARM)/site/.needs $(ARM)/wheel/.built
	rm -rf $(ARM)/site/mindnano*
	$(VENV)/bin/python -m zipfile -e $(ARM)/wheel/mindnano-*.whl $(ARM)/site
	touch $@

arm-wheel: $(ARM)/wheel/.built  ## a wheel for AArch64 into dist, by Debian's cross compiler
	mkdir -p dist
	cp $(ARM)/wheel/mindnano-*.whl dist/
	@ls dist/mindnano-*aarch64.whl

arm-python: $(ARM)/sysroot/.ready  # the tools, and a Python to run: what comes from Debian's packages

arm-test: $(ARM)/site/.installed  ## kernel tests, golden tokens and answers under qemu, with and without SDOT
	cross/test.sh $(VENV)/bin/python

arm-smoke: $(ARM)/site/.installed  ## the same, shortened for CI: every operation once, fewer shapes
	cross/test.sh $(VENV)/bin/python quick

arm-count: $(ARM)/wheel/.built  ## instructions per product of the NEON kernels' inner loops
	$(VENV)/bin/python cross/instructions.py

dev:  ## build the extension in place (while working on the kernels: PYTHONPATH=src)
	cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE=$$(command -v $(PYTHON)) $(CMAKE_ARGS)
	cmake --build $(BUILD)
	cp $(BUILD)/_native*.so src/mindnano/

clean:  ## remove what was built
	rm -rf $(VENV) $(ORACLE) build src/mindnano/*.so
