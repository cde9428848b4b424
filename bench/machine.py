"""Facts about this machine that a measured time depends on."""

import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def free_cores(seconds: float = 0.3) -> float:
    """Cores that nobody used for a moment; time that the hypervisor took counts as used."""
    before = _cpu_ticks()
    time.sleep(seconds)
    spent = [now - then for now, then in zip(_cpu_ticks(), before, strict=True)]
    idle = spent[3] + spent[4]  # waiting for a disk is idle too
    return round(idle / max(1, sum(spent)) * (os.cpu_count() or 1), 2)


def _cpu_ticks() -> list[int]:
    # user nice system idle iowait irq softirq steal; guest time is part of user.
    with Path("/proc/stat").open() as stat:
        return [int(field) for field in stat.readline().split()[1:9]]


def facts() -> dict:
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "huge_pages": _huge_pages(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def _huge_pages() -> str:
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    text = setting.read_text() if setting.exists() else ""
    return text[text.find("[") + 1 : text.find("]")] if "[" in text else "unknown"


def _commit() -> str:
    """The commit, with a plus when tracked files differ from it."""
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        return commit + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.check_output(command, cwd=ROOT, text=True, stderr=subprocess.DEVNULL).strip()
