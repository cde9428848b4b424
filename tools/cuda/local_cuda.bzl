"""@local_cuda: the CUDA toolkit of this machine, or the fact that there is none.

Looks at CUDA_HOME, then for nvcc on PATH, then in /usr/local/cuda. TL_NO_CUDA=1 in the environment
makes it find nothing, to see what a machine without the toolkit sees.
"""

# What we compile for, where this toolkit knows it.
_ARCHITECTURES = ["75", "80", "90", "100", "120"]

_DEFS = """CUDA_FOUND = {found}
CUDA_HOME = "{home}"
CUDA_ARCHITECTURES = {architectures}
"""

_BUILD = """package(default_visibility = ["//visibility:public"])

# A directory label: a glob of the toolkit's thousands of headers costs seconds in every sandbox.
cc_library(
    name = "headers",
    hdrs = ["include"],
    includes = ["include"],
)

# The static runtime needs no driver: one binary runs with and without a GPU.
cc_library(
    name = "cudart_static",
    srcs = ["libcudart_static.a"],
    linkopts = ["-ldl", "-lpthread", "-lrt"],
    deps = [":headers"],
)
"""

_BUILD_WITHOUT = """package(default_visibility = ["//visibility:public"])

[cc_library(
    name = name,
    target_compatible_with = ["@tensorlightning//tools/cuda:nvcc_is_installed"],
) for name in ["headers", "cudart_static"]]
"""

def _find_home(ctx):
    if ctx.os.environ.get("TL_NO_CUDA", "") not in ["", "0"]:
        return None
    homes = [ctx.os.environ.get("CUDA_HOME", "")]
    on_path = ctx.which("nvcc")
    if on_path:
        # nvcc is often a symlink into the toolkit.
        homes.append(str(on_path.realpath.dirname.dirname))
    homes.append("/usr/local/cuda")
    for home in homes:
        if home and ctx.path(home + "/bin/nvcc").exists:
            return home
    return None

def _library(ctx, home):
    for folder in ["lib64", "lib", "targets/x86_64-linux/lib"]:
        path = ctx.path("%s/%s/libcudart_static.a" % (home, folder))
        if path.exists:
            return path
    return None

def _local_cuda_impl(ctx):
    home = _find_home(ctx)
    library = home and _library(ctx, home)
    architectures = []
    if library:
        listed = ctx.execute([home + "/bin/nvcc", "--list-gpu-code"]).stdout.split("\n")
        architectures = [a for a in _ARCHITECTURES if "sm_" + a in listed]
    found = len(architectures) > 0
    if found:
        ctx.symlink(home + "/include", "include")
        ctx.symlink(library, "libcudart_static.a")
    else:
        # buildifier: disable=print
        print("no nvcc found (CUDA_HOME, PATH, /usr/local/cuda): CUDA targets are skipped")
    ctx.file("BUILD", _BUILD if found else _BUILD_WITHOUT)
    ctx.file("defs.bzl", _DEFS.format(
        found = found,
        home = home if found else "",
        architectures = repr(architectures),
    ))

local_cuda = repository_rule(
    implementation = _local_cuda_impl,
    configure = True,
    local = True,
    environ = ["CUDA_HOME", "PATH", "TL_NO_CUDA"],
)
