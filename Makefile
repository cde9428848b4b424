# The thin face of the build: what a person types. The work is in Bazel and tools/.
PYTHON := .venv/bin/python
FUZZ_SECONDS ?= 20
# Where optimised programs are. Not .bazel/bin: that follows whatever was built last.
OPT_BIN = "$$(bazel info -c opt bazel-bin 2>/dev/null)"
# The same without -c opt, which only adds NDEBUG: what tests have built is not built again.
BIN = "$$(bazel info bazel-bin 2>/dev/null)"

.DEFAULT_GOAL := help
.PHONY: help setup tools tf wheel demo demo-kernels test bench-kernels bench-comm bench-train format lint asan tsan fuzz clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what is missing: Debian packages, the venv, Bazel's disk cache
	@tools/setup.sh

tools: setup ## build tl-aggregator and tl-load into bin/
	@bazel build -c opt //comm/tools:all
	@mkdir -p bin
	@install $(OPT_BIN)/comm/tools/tl-aggregator $(OPT_BIN)/comm/tools/tl-load bin/
	@echo "bin/tl-aggregator and bin/tl-load are ready: try --help"

tf: setup ## build the TensorFlow ops and tl-aggregator into python/tensorlightning/; bin/tlrun
	@bazel build //tf_ops:libtensorlightning_tf.so //comm/tools:tl-aggregator
	@mkdir -p python/tensorlightning/bin bin
	@install $(BIN)/tf_ops/libtensorlightning_tf.so python/tensorlightning/
	@install $(BIN)/comm/tools/tl-aggregator python/tensorlightning/bin/
	@install tools/tlrun bin/

wheel: tf ## build a wheel of the Python package, its ops and tl-aggregator into dist/
	@$(PYTHON) tools/wheel.py

demo: tf ## train a CNN with one worker, with two, and with two that send everything (5 minutes)
	@$(PYTHON) examples/fashion_mnist_demo/demo.py

demo-kernels: setup ## prune and encode a real array: a table and a plot
	@bazel build -c opt //examples/prune_and_encode
	@$(PYTHON) examples/prune_and_encode/demo.py --binary $(OPT_BIN)/examples/prune_and_encode/prune_and_encode

test: setup ## run everything that must hold; ends with "N passed, N failed"
	@$(PYTHON) tools/test.py

bench-kernels: setup ## measure the kernels against the roof of the memory
	@bazel build -c opt //bench:kernels
	@$(PYTHON) bench/kernels.py --binary $(OPT_BIN)/bench/kernels

bench-comm: setup ## measure transport and aggregator against iperf3, an echo, the kernels (6 minutes)
	@bazel build -c opt //bench:comm //comm/tools:tl-aggregator //comm/tools:tl-load
	@$(PYTHON) bench/comm.py --bin $(OPT_BIN)

bench-train: tf ## measure training against TensorFlow's strategies and dense averaging (long)
	@$(PYTHON) bench/train.py

format: setup ## rewrite C++, CUDA and Python sources in the house style
	@$(PYTHON) tools/lint.py --fix

lint: setup ## check the style (clang-format, ruff) and look for mistakes (clang-tidy, ruff)
	@$(PYTHON) tools/lint.py

asan: setup ## run the tests under AddressSanitizer and UBSan
	@bazel test --config=asan //tests/...

tsan: setup ## run the tests with threads, real or emulated, under ThreadSanitizer
	@bazel test --config=tsan --build_tests_only --test_tag_filters=threads,emulated_cuda //tests/...

fuzz: setup ## fuzz each decoder from its kept corpus for FUZZ_SECONDS (20)
	@$(PYTHON) tools/fuzz/run.py --seconds $(FUZZ_SECONDS)

clean: ## remove what was built in this clone; caches shared by clones stay
	@if command -v bazel >/dev/null; then bazel clean; fi
	@rm -rf .bazel .venv bin dist bench/out examples/*/out compile_commands.json user.bazelrc
	@rm -rf python/tensorlightning/bin python/tensorlightning/libtensorlightning_tf.so
