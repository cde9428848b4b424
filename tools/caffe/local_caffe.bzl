"""@local_caffe: the Caffe in CAFFE_ROOT, or the fact that there is none.

tools/setup.sh installs Debian's and writes where it is into user.bazelrc. A Caffe that the user has
built, or installed elsewhere, has its files in other places: all that are usual are looked at.
"""

_HEADERS = ["usr/include", "include"]
# Of the messages that protoc has made of caffe.proto, where they are not beside the other headers.
_GENERATED = ["build/src", "build/include", ".build_release/src", "proto"]
_LIBRARIES = [
    "usr/lib/x86_64-linux-gnu",
    "lib",
    "lib/x86_64-linux-gnu",
    "build/lib",
    ".build_release/lib",
    "lib64",
]

_BUILD = """package(default_visibility = ["//visibility:public"])

# Directory labels, as those of TensorFlow.
cc_library(
    name = "caffe",
    hdrs = {headers},
    defines = {defines},
    includes = {headers},
)

# The same as in a Caffe that was built for GPUs, to compile against; not to link.
cc_library(
    name = "caffe_for_gpus",
    hdrs = {headers},
    includes = {headers},
)

exports_files({libraries})
"""

_BUILD_WITHOUT = """package(default_visibility = ["//visibility:public"])

[cc_library(
    name = name,
    target_compatible_with = ["@tensorlightning//tools/caffe:caffe_is_installed"],
) for name in ["caffe", "caffe_for_gpus"]]
"""

_DEFS = """# For targets that depend on @local_caffe//:caffe: skipped where it is not.
REQUIRES_CAFFE = {requires}

# For the linker: what Caffe's process has loaded already, so it is not shipped.
CAFFE_LIBRARIES = {libraries}
CAFFE_LINKOPTS = {linkopts}

# For what is loaded into other processes: where Caffe is, and what it was built with. The old kind of
# entry, which Caffe's own libraries follow too.
CAFFE_RPATH = {rpath}

# Whether it knows GPUs.
CAFFE_HAS_GPUS = {has_gpus}
"""

def _first(ctx, root, folders, file):
    for folder in folders:
        if ctx.path("%s/%s/%s" % (root, folder, file)).exists:
            return "%s/%s" % (root, folder)
    return None

def _find(ctx):
    """Where its headers and libraries are, or why there is none."""
    root = ctx.os.environ.get("CAFFE_ROOT", "")
    if not root:
        return None, "CAFFE_ROOT is not set"
    headers = _first(ctx, root, _HEADERS, "caffe/caffe.hpp")
    libraries = _first(ctx, root, _LIBRARIES, "libcaffe.so")
    if not headers or not libraries:
        return None, "CAFFE_ROOT is %s, where there is no %s" % (
            root,
            "libcaffe.so" if headers else "caffe/caffe.hpp",
        )
    generated = _first(ctx, root, _HEADERS + _GENERATED, "caffe/proto/caffe.pb.h")
    if not generated:
        return None, "CAFFE_ROOT is %s, where there is no caffe/proto/caffe.pb.h" % root
    folders = [headers] + ([generated] if generated != headers else [])
    machine = headers + "/x86_64-linux-gnu"  # Debian's cblas.h.
    if ctx.path(machine).exists:
        folders.append(machine)
    return struct(folders = folders, libraries = libraries), ""

def _is_cpu_only(ctx, library):
    """Layers and solvers have other sizes in a library that was built for GPUs."""
    listed = ctx.execute(["nm", "-D", "--undefined-only", library])
    return "cudaMalloc" not in listed.stdout and "cublas" not in listed.stdout

def _local_caffe_impl(ctx):
    caffe, lacking = _find(ctx)
    libraries, linkopts, rpath = [], [], []
    cpu_only = True
    if caffe:
        headers = []
        for number, folder in enumerate(caffe.folders):
            headers.append("include%d" % number)
            ctx.symlink(folder, headers[-1])
        for name in ["libcaffe.so", "libprotobuf.so", "libglog.so"]:
            file = "%s/%s" % (caffe.libraries, name)
            if ctx.path(file).exists:
                ctx.symlink(file, name)
                libraries.append(name)
            else:  # The system's.
                linkopts.append("-l" + name[len("lib"):-len(".so")])
        rpath = ["-Wl,--disable-new-dtags,-rpath,%s" % caffe.libraries]
        cpu_only = _is_cpu_only(ctx, caffe.libraries + "/libcaffe.so")
        ctx.file("BUILD", _BUILD.format(
            headers = headers,
            defines = ["CPU_ONLY"] if cpu_only else [],
            libraries = libraries,
        ))
    else:
        # buildifier: disable=print
        print("%s: Caffe targets are skipped; make setup installs it" % lacking)
        ctx.file("BUILD", _BUILD_WITHOUT)
    ctx.file("defs.bzl", _DEFS.format(
        requires = [] if caffe else ["@tensorlightning//tools/caffe:caffe_is_installed"],
        libraries = ["@local_caffe//:" + library for library in libraries],
        linkopts = linkopts,
        rpath = rpath,
        has_gpus = not cpu_only,
    ))

local_caffe = repository_rule(
    implementation = _local_caffe_impl,
    configure = True,
    local = True,
    environ = ["CAFFE_ROOT"],
)
