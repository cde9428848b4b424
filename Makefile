# The thin face of the build: what a person types. The work is in Bazel and tools/.
PYTHON := .venv/bin/python
FUZZ_SECONDS ?= 20
# Where optimised programs are. Not .bazel/bin: that follows whatever was built last.
OPT_BIN = "$$(bazel info -c opt bazel-bin 2>/dev/null)"
# The same without -c opt, which only adds NDEBUG: what tests have built is not built again.
BIN = "$$(bazel info bazel-bin 2>/dev/null)"

.DEFAULT_GOAL := help
.PHONY: help setup tools tf caffe wheel demo demo-caffe demo-spark demo-kernels test bench-kernels bench-comm bench-train bench-caffe bench-spark format lint asan tsan fuzz clean

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

caffe: setup ## build the plugin and the driver for Caffe, and tl-aggregator, into python/tensorlightning/; bin/tlrun
	@test -e .caffe || { echo "make caffe: there is no Caffe (see above), and CAFFE_ROOT names none" >&2; exit 1; }
	@bazel build //caffe_layers:libtensorlightning_caffe.so //caffe_layers:libtensorlightning_caffe_driver.so //comm/tools:tl-aggregator
	@mkdir -p python/tensorlightning/bin bin
	@install $(BIN)/caffe_layers/libtensorlightning_caffe.so python/tensorlightning/
	@install $(BIN)/caffe_layers/libtensorlightning_caffe_driver.so python/tensorlightning/
	@install $(BIN)/comm/tools/tl-aggregator python/tensorlightning/bin/
	@install tools/tlrun bin/
	@echo "the plugin is ready: bin/tlrun -np 2 .caffe/bin/caffe train --solver=solver.prototxt"

wheel: tf ## build a wheel of the Python package, its ops and tl-aggregator into dist/
	@$(PYTHON) tools/wheel.py

demo: tf ## train a CNN with one worker, with two, and with two that send everything (5 minutes)
	@$(PYTHON) examples/fashion_mnist_demo/demo.py

demo-caffe: caffe ## the same with LeNet in a stock Caffe: 1, 2 and 4 workers (3 minutes)
	@$(PYTHON) examples/caffe_lenet/demo.py

demo-spark: tf ## a CNN and LeNet on a Spark cluster of a master and two workers, started for it (4 minutes)
	@test ! -e .caffe || $(MAKE) --no-print-directory caffe
	@$(PYTHON) examples/spark_demo/demo.py

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

bench-train: tf ## measure training against TensorFlow's strategies and dense averaging (90 minutes)
	@$(PYTHON) bench/train.py

bench-caffe: caffe ## measure LeNet in a stock Caffe against one worker and dense averaging (30 minutes)
	@$(PYTHON) bench/caffe.py

bench-spark: tf ## measure training on a Spark cluster against elephas, and how rows are fed (45 minutes)
	@$(PYTHON) bench/spark.py

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
	@rm -rf .bazel .venv .venv-spark4 bin dist bench/out examples/*/out compile_commands.json user.bazelrc .caffe
	@rm -rf python/tensorlightning/bin python/tensorlightning/libtensorlightning_*.so
