"""emulated_cuda_library: the same .cu text, compiled by the C++ compiler against the emulator.

    load("//tools/cuda:emulated.bzl", "emulated_cuda_library")

    emulated_cuda_library(
        name = "prune_emulated",
        srcs = ["prune.cu"],
        hdrs = ["prune.h"],
    )

The emulator's cuda_runtime.h is found before any other, so the sources need no change. Tests of it
are tagged "emulated_cuda": they run again under ThreadSanitizer, which there is the race checker.
"""

def emulated_cuda_library(name, srcs, hdrs = [], deps = [], copts = [], **kwargs):
    """Like nvcc_library, for machines without a GPU.

    Args:
      name: of the library.
      srcs: .cu files of this package.
      hdrs: headers for dependents, and for the sources.
      deps: libraries, besides the emulator.
      copts: further flags, such as a switch that removes a barrier.
      **kwargs: as for cc_library.
    """
    wrappers = []
    for source in srcs:
        # cc_library refuses .cu files: include each from a file whose name it takes.
        wrapper = "_emulated/%s/%s.cc" % (name, source)
        native.genrule(
            name = "%s_%s_wrapper" % (name, source),
            outs = [wrapper],
            cmd = "echo '#include \"%s/%s\"' > $@" % (native.package_name(), source),
        )
        wrappers.append(wrapper)
    native.cc_library(
        name = name,
        srcs = wrappers,
        hdrs = hdrs,
        textual_hdrs = srcs,
        # #pragma unroll means nothing to g++.
        copts = ["-Wno-unknown-pragmas"] + copts,
        deps = deps + ["//kernels/cuda/emulator"],
        **kwargs
    )
