"""@local_tensorflow: the TensorFlow of one Python, or the fact that there is none.

TF_PYTHON names the interpreter; tools/setup.sh writes the venv's into user.bazelrc. It is asked where
the package is, and never imports it: that takes seconds, and all we need are its files.
"""

_LIBRARY = "libtensorflow_framework.so.2"

# Tells the folder of the package and its version; nothing when there is no TensorFlow.
_ASK = """
import importlib.metadata, importlib.util
spec = importlib.util.find_spec("tensorflow")
if spec and spec.submodule_search_locations:
    print(spec.submodule_search_locations[0])
    print(importlib.metadata.version(importlib.metadata.packages_distributions()["tensorflow"][0]))
"""

_BUILD = """package(default_visibility = ["//visibility:public"])

# A directory label: a glob of its 5,800 headers costs 20 s in every sandbox.
cc_library(
    name = "tensorflow",
    hdrs = ["include"],
    defines = [
        # In every command line, so that caches notice an upgrade.
        "TL_TENSORFLOW_VERSION={version}",
        # How TensorFlow itself was compiled.
        "EIGEN_MAX_ALIGN_BYTES=64",
    ],
    includes = ["include"],
)

exports_files(["libtensorflow_framework.so.2"])
"""

_BUILD_WITHOUT = """package(default_visibility = ["//visibility:public"])

cc_library(
    name = "tensorflow",
    target_compatible_with = ["@tensorlightning//tools/tensorflow:tensorflow_is_installed"],
)
"""

_DEFS = """# For targets that depend on @local_tensorflow//:tensorflow: skipped where it is not.
REQUIRES_TENSORFLOW = {requires}

# For the linker: what TensorFlow's process has loaded already, so it is not shipped. No dependency of
# @local_tensorflow//:tensorflow, because it has to come last (see tf_ops/BUILD).
TENSORFLOW_LIBRARY = {library}
"""

def _find(ctx):
    """The package's folder and version, or why there is none."""
    python = ctx.os.environ.get("TF_PYTHON", "")
    if not python:
        return None, "TF_PYTHON is not set"
    if not ctx.path(python).exists:
        return None, "TF_PYTHON is %s, which does not exist" % python
    asked = ctx.execute([python, "-c", _ASK])
    lines = asked.stdout.strip().split("\n")
    if asked.return_code != 0 or len(lines) != 2:
        return None, "%s has no tensorflow" % python
    for needed in ["include", _LIBRARY]:
        if not ctx.path("%s/%s" % (lines[0], needed)).exists:
            return None, "%s has no %s" % (lines[0], needed)
    return struct(folder = lines[0], version = lines[1]), ""

def _local_tensorflow_impl(ctx):
    tensorflow, lacking = _find(ctx)
    if tensorflow:
        ctx.symlink(tensorflow.folder + "/include", "include")
        ctx.symlink("%s/%s" % (tensorflow.folder, _LIBRARY), _LIBRARY)
        ctx.file("BUILD", _BUILD.format(version = tensorflow.version))
    else:
        # buildifier: disable=print
        print("%s: TensorFlow targets are skipped; make setup installs it" % lacking)
        ctx.file("BUILD", _BUILD_WITHOUT)
    ctx.file("defs.bzl", _DEFS.format(
        requires = [] if tensorflow else ["@tensorlightning//tools/tensorflow:tensorflow_is_installed"],
        library = ["@local_tensorflow//:" + _LIBRARY] if tensorflow else [],
    ))

local_tensorflow = repository_rule(
    implementation = _local_tensorflow_impl,
    configure = True,
    local = True,
    environ = ["TF_PYTHON"],
)
