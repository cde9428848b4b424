"""The stock Caffe, our plugin and our driver for it, built once per session, for all tests."""

import os
from pathlib import Path

import pytest
import tf_library

ROOT = tf_library.ROOT
PREFIX = ROOT / ".caffe"
PLUGIN = "//caffe_layers:libtensorlightning_caffe.so"
DRIVER = "//caffe_layers:libtensorlightning_caffe_driver.so"
# In our own prefix, in one that was installed, in a tree that was built.
_PROGRAMS = ("bin/caffe", "usr/bin/caffe", "build/tools/caffe", ".build_release/tools/caffe")

needed = pytest.mark.skipif(
    not PREFIX.exists(),
    reason="there is no Caffe here: make setup says why",
)


def program(name: str = "caffe") -> Path:
    """One of Caffe's programs."""
    found = [PREFIX / path for path in _PROGRAMS if (PREFIX / path).exists()]
    return found[0].with_name(name)


def plugin() -> Path:
    given = os.environ.get("TL_CAFFE_PLUGIN")
    return (Path(given) if given else tf_library.build(PLUGIN)).resolve()


def driver() -> Path:
    """Skips the test if there is no Caffe."""
    if given := os.environ.get("TL_CAFFE_DRIVER"):
        return Path(given)
    if not PREFIX.exists():
        pytest.skip("there is no Caffe here: `make setup` says why")
    return tf_library.build(DRIVER)


def environment(**variables: str) -> dict[str, str]:
    """For workers of tests: nothing of another job, and the programs that were built."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TL_")}
    return clean | {
        "TL_CAFFE_PLUGIN": str(plugin()),
        "TL_PROGRAMS": str(tf_library.aggregator().parent),
        "PYTHONPATH": str(ROOT / "python"),
        **variables,
    }
