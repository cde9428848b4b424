"""tl_fuzz_test: one source, two programs.

Normally it is a cc_test that replays the kept corpus, so that every bug once found stays found under
all compilers and sanitizers. With --config=fuzz it is a libFuzzer binary, which `make fuzz` runs.

    load("//tools/fuzz:fuzz.bzl", "tl_fuzz_test")

    tl_fuzz_test(
        name = "decode_fuzz",
        srcs = ["decode_fuzz.cc"],      # defines LLVMFuzzerTestOneInput
        deps = ["//kernels:codec"],
    )
"""

def tl_fuzz_test(name, srcs, corpus = None, deps = [], tags = [], **kwargs):
    """A fuzz test.

    Args:
      name: of the test; its corpus is the folder corpus/<name>/ beside it.
      srcs: sources, one of which defines LLVMFuzzerTestOneInput.
      corpus: files of the corpus, if not all of that folder.
      deps: libraries under test.
      tags: added to "fuzz".
      **kwargs: as for cc_test.
    """
    folder = "corpus/" + name
    native.cc_test(
        name = name,
        srcs = srcs,
        # An empty corpus would be a test of nothing.
        data = corpus or native.glob([folder + "/**"], allow_empty = False),
        args = [native.package_name() + "/" + folder],
        linkopts = select({
            "//tools/fuzz:libfuzzer": ["-fsanitize=fuzzer"],
            "//conditions:default": [],
        }),
        deps = deps + select({
            "//tools/fuzz:libfuzzer": [],
            "//conditions:default": ["//tools/fuzz:replay_main"],
        }),
        tags = ["fuzz"] + tags,
        **kwargs
    )
