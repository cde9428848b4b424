"""The ops are built before the first test, and tests see no TL_* variables of whoever runs them."""

import functools
import os
import re
import socket
import subprocess
from pathlib import Path

import pytest
from integration.processes import Aggregator

from . import nursery as nurseries

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARY = "tf_ops/libtensorlightning_tf.so"


@functools.cache
def _library() -> str:
    if given := os.environ.get("TL_TF_LIBRARY"):
        return given
    subprocess.run(
        ["bazel", "build", "--noshow_progress", f"//{LIBRARY.replace('/', ':')}"],
        cwd=ROOT,
        check=True,
    )
    where = subprocess.run(
        ["bazel", "info", "bazel-bin"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    return str(Path(where.stdout.strip()) / LIBRARY)


@pytest.fixture(scope="session", autouse=True)
def only_the_library_is_given():
    library = _library()
    names = [name for name in os.environ if re.match("TL_(?!TEST_)", name)]
    given = {name: os.environ.pop(name) for name in names}
    os.environ["TL_TF_LIBRARY"] = library
    yield
    del os.environ["TL_TF_LIBRARY"]
    os.environ.update(given)


@pytest.fixture(scope="session")
def shared_nursery(only_the_library_is_given):
    nursery = nurseries.Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def nursery(shared_nursery):
    """Where workers come from."""
    yield shared_nursery
    shared_nursery.end_all()


@pytest.fixture
def aggregator():
    with Aggregator("--lease=3s") as running:
        yield running


@pytest.fixture
def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    report = outcome.get_result()
    nursery = getattr(item, "funcargs", {}).get("nursery")
    if report.failed and nursery is not None:
        report.sections.extend(nursery.logs())
