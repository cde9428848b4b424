"""nvcc_library: CUDA sources compiled by nvcc, for cc_library, cc_binary and cc_test to depend on.

    load("//tools/cuda:nvcc.bzl", "REQUIRES_NVCC", "nvcc_library")

    nvcc_library(
        name = "prune",
        srcs = ["prune.cu"],
        hdrs = ["prune.h"],
        deps = ["//kernels:span"],
    )

Without nvcc the library, and all that depends on it, is skipped; other targets that want the toolkit
say `target_compatible_with = REQUIRES_NVCC`. Host code that only calls the CUDA runtime depends on
@local_cuda//:cudart_static.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@local_cuda//:defs.bzl", "CUDA_ARCHITECTURES", "CUDA_FOUND", "CUDA_HOME")

REQUIRES_NVCC = [] if CUDA_FOUND else ["@tensorlightning//tools/cuda:nvcc_is_installed"]

# IEEE arithmetic without fusing, as on the CPU: the kernels promise the same bits everywhere.
_ARITHMETIC = ["-fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true"]

# A kernel that spills registers is a bug of speed, and is refused like any other.
_STRICT = [
    "-Werror",
    "all-warnings",
    "-Xptxas",
    "-warn-spills,-warn-lmem-usage,-Werror",
]

_LANGUAGE = [
    "-std=c++20",
    # Kernels share constexpr functions with the CPU.
    "--expt-relaxed-constexpr",
    # nvcc takes every assignment to a [[nodiscard]] type for a discarded one; g++, which compiles the
    # same text for the emulator, knows better.
    "-diag-suppress",
    "2810",
]

_HOST = ["-Xcompiler", "-fPIC,-O2,-ffp-contract=off,-Wall,-Wextra"]

def _targets():
    flags = []
    for a in CUDA_ARCHITECTURES:
        flags += ["-gencode", "arch=compute_%s,code=sm_%s" % (a, a)]
    newest = CUDA_ARCHITECTURES[-1]

    # PTX of the newest, for GPUs that are newer still.
    return flags + ["-gencode", "arch=compute_%s,code=compute_%s" % (newest, newest)]

def _compile(ctx, source, context):
    output = ctx.actions.declare_file("_nvcc/%s/%s.o" % (ctx.label.name, source.basename))
    args = ctx.actions.args()
    args.add_all(["-c", source, "-o", output])
    args.add_all(_LANGUAGE + _ARITHMETIC + _STRICT + _HOST + _targets())
    args.add_all(ctx.attr.copts)
    args.add_all(depset(transitive = [context.defines]), format_each = "-D%s")
    args.add_all(ctx.attr.local_defines, format_each = "-D%s")

    # nvcc has no -iquote.
    args.add_all(depset(transitive = [context.includes, context.quote_includes]), format_each = "-I%s")
    args.add_all(context.system_includes, before_each = "-isystem")
    ctx.actions.run(
        executable = CUDA_HOME + "/bin/nvcc",
        arguments = [args],
        inputs = depset([source] + ctx.files.hdrs, transitive = [context.headers]),
        outputs = [output],
        use_default_shell_env = True,
        mnemonic = "NvccCompile",
        progress_message = "Compiling %s for sm_%s" % (
            source.short_path,
            ", ".join(CUDA_ARCHITECTURES),
        ),
    )
    return output

def _archive(ctx, objects):
    archive = ctx.actions.declare_file("lib%s.pic.a" % ctx.label.name)
    args = ctx.actions.args()
    args.add("rcsD", archive)
    args.add_all(objects)
    ctx.actions.run(
        executable = "/usr/bin/ar",
        arguments = [args],
        inputs = objects,
        outputs = [archive],
        mnemonic = "NvccArchive",
    )
    return archive

def _nvcc_library_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(ctx = ctx, cc_toolchain = toolchain)
    interface = CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset(ctx.files.hdrs),
        quote_includes = depset([".", ctx.bin_dir.path]),
        defines = depset(ctx.attr.defines),
    ))
    deps = [d[CcInfo] for d in ctx.attr.deps + [ctx.attr._cudart]]
    context = cc_common.merge_cc_infos(cc_infos = [interface] + deps).compilation_context
    archive = _archive(ctx, [_compile(ctx, s, context) for s in ctx.files.srcs])
    library = cc_common.create_library_to_link(
        actions = ctx.actions,
        feature_configuration = features,
        cc_toolchain = toolchain,
        pic_static_library = archive,
        alwayslink = ctx.attr.alwayslink,
    )
    linking = CcInfo(linking_context = cc_common.create_linking_context(
        linker_inputs = depset([cc_common.create_linker_input(
            owner = ctx.label,
            libraries = depset([library]),
        )]),
    ))

    # In this order the linker sees the archive before what it calls.
    return [
        DefaultInfo(files = depset([archive])),
        cc_common.merge_cc_infos(cc_infos = [interface, linking] + deps),
    ]

_nvcc_library = rule(
    implementation = _nvcc_library_impl,
    attrs = {
        "alwayslink": attr.bool(),
        "copts": attr.string_list(),
        "defines": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = True),
        "local_defines": attr.string_list(),
        "srcs": attr.label_list(allow_files = [".cu"], mandatory = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
        "_cudart": attr.label(default = "@local_cuda//:cudart_static"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def nvcc_library(name, srcs, hdrs = [], deps = [], target_compatible_with = [], **kwargs):
    """Like cc_library, for .cu files; see the top of this file.

    Args:
      name: of the library.
      srcs: .cu files, each compiled by itself (no relocatable device code).
      hdrs: headers for dependents, and for the sources.
      deps: cc_library or nvcc_library targets.
      target_compatible_with: added to "nvcc is there".
      **kwargs: copts, defines, local_defines, alwayslink, visibility, tags.
    """
    _nvcc_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        deps = deps,
        target_compatible_with = REQUIRES_NVCC + target_compatible_with,
        **kwargs
    )
