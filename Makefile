PYTHON ?= python3
BUILD  ?= build/dev

.PHONY: dev
dev:  ## build the extension in place (used while working on the kernels)
	cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE=$$(command -v $(PYTHON)) $(CMAKE_ARGS)
	cmake --build $(BUILD)
	cp $(BUILD)/_native*.so src/mindnano/
