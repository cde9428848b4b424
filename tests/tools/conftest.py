import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def root() -> Path:
    return ROOT


@pytest.fixture
def run():
    """Runs a command in the root of the clone, and gives its status and output."""

    # Under `make test` a make is not to think that it is the child of another.
    environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}

    def runner(*command: str) -> subprocess.CompletedProcess:
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)

    return runner
