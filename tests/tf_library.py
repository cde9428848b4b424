"""The library of TensorFlow ops, built once per session, for all tests that load it."""

import functools
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = "//tf_ops:libtensorlightning_tf.so"
AGGREGATOR = "//comm/tools:tl-aggregator"


def library() -> Path:
    """What TL_TF_LIBRARY names, or else what Bazel builds now.

    Resolved, as the package does it: TensorFlow finds no ops in a library that it has loaded before
    under another name.
    """
    given = os.environ.get("TL_TF_LIBRARY")
    return (Path(given) if given else build(LIBRARY)).resolve()


def aggregator() -> Path:
    if given := os.environ.get("TL_PROGRAMS"):
        return Path(given) / "tl-aggregator"
    return build(AGGREGATOR)


@functools.cache
def build(target: str) -> Path:
    subprocess.run(["bazel", "build", "--noshow_progress", target], cwd=ROOT, check=True)
    # Not .bazel/bin: that follows whatever was built last, by anyone.
    where = subprocess.run(
        ["bazel", "info", "bazel-bin"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    return Path(where.stdout.strip()) / target.removeprefix("//").replace(":", "/")
