import sys
from pathlib import Path

import pytest

# For the tests and benchmarks of other folders too: `from cluster.network import Network`.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cluster import tap_switch
from cluster.network import Network


@pytest.fixture(autouse=True)
def needs_namespaces() -> None:
    if reason := Network.why_not():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def switch() -> Path:
    """The program of the userspace switch."""
    return tap_switch.build()


@pytest.fixture(params=["bridge", "switch"])
def middle(request) -> dict:
    """Arguments of Network that choose what joins the hosts: each of the two in turn."""
    return {"switch": request.getfixturevalue("switch")} if request.param == "switch" else {}
