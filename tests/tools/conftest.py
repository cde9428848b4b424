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

    def runner(*command: str, **options) -> subprocess.CompletedProcess:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, **options)

    return runner
