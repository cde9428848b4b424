"""Whether a process lives: one that has ended, and that nobody has asked for, does not."""

from pathlib import Path


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"
