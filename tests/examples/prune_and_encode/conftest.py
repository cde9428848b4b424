import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent.parent
EXAMPLE = "examples/prune_and_encode"


@pytest.fixture(scope="session")
def binary() -> Path:
    build = ["bazel", "build", "-c", "opt", "--noshow_progress", f"//{EXAMPLE}"]
    subprocess.run(build, cwd=ROOT, check=True)
    return (ROOT / ".bazel/bin" / EXAMPLE / "prune_and_encode").resolve()


@pytest.fixture(scope="session")
def program(binary):
    """Runs the C++ program, and gives its status and output."""

    def runner(*arguments: object) -> subprocess.CompletedProcess:
        return subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True)

    return runner


@pytest.fixture(scope="session")
def demo():
    """Runs demo.py, and gives its status and output."""

    def runner(*arguments: object) -> subprocess.CompletedProcess:
        command = [sys.executable, f"{EXAMPLE}/demo.py", *map(str, arguments)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    return runner
