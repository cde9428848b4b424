"""What the package's tests share; they see no settings of whoever runs them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import tf_library
from integration.processes import Aggregator

from . import nursery as nurseries

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Some virtual machines claim AMX and do not have it: there plain TensorFlow dies of bfloat16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
# Where to find what was built is no setting.
KEPT = ("TL_CAFFE_DRIVER", "TL_TF_LIBRARY", "TL_PROGRAMS", "TL_TEST_PROGRAMS")


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch):
    for name in [name for name in os.environ if name.startswith("TL_") and name not in KEPT]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def ops():
    """The ops, in this process."""
    from tensorlightning import _library

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TL_TF_LIBRARY", str(tf_library.library()))
        return _library.load()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """The wheel, as `make wheel` builds it."""
    out = tmp_path_factory.mktemp("dist")
    built = [f"--library={tf_library.library()}", f"--aggregator={tf_library.aggregator()}"]
    command = [sys.executable, tf_library.ROOT / "tools/wheel.py", *built, f"--out={out}"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="session")
def shared_nursery():
    nursery = nurseries.Nursery(tf_library.library())
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
