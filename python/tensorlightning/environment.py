"""Who this worker is: what a launcher has said through TL_* variables.

Without a launcher: rank 0 of 1.
"""

import os
import sys

_ALONE = {"TL_RANK": 0, "TL_SIZE": 1, "TL_LOCAL_RANK": 0, "TL_LOCAL_SIZE": 1}


def _number(name: str) -> int:
    text = os.environ.get(name, "")
    if not text:
        return _ALONE[name]
    try:
        number = int(text)
    except ValueError:
        number = -1
    least = _ALONE[name]
    if number < least:
        raise ValueError(f"{name}={text!r} in the environment is no whole number from {least} on")
    return number


def rank() -> int:
    """This worker's number, from 0 on; known before it has joined anything.

    >>> if tl.rank() == 0:
    ...     model.save("model.keras")
    """
    return _number("TL_RANK")


def size() -> int:
    """How many workers were started; some may have ended since (see ``tl.statistics()``)."""
    return _number("TL_SIZE")


def local_rank() -> int:
    """This worker's number among those of its machine: which GPU to take, for instance."""
    return _number("TL_LOCAL_RANK")


def local_size() -> int:
    """How many workers were started on this machine."""
    return _number("TL_LOCAL_SIZE")


def ends_apart() -> bool:
    """Whether workers come and go as they like, and nobody waits for others at the end."""
    return os.environ.get("TL_ENDING") == "apart"


def job() -> str:
    """The job's name at the aggregator."""
    return os.environ.get("TL_JOB") or "default"


def beside(job_name: str, what: str) -> str:
    """The name of a job beside another, of this run of the program only.

    The first training of a program is its job; a later run goes on from what the aggregator has of
    it. What else it needs starts anew in each run.
    """
    run = os.environ.get("TL_RUN", "")
    return f"{job_name}/{what}.{run}" if run else f"{job_name}/{what}"


def say(text: str) -> None:
    """A line for people, on stderr."""
    print(f"tensorlightning: rank {rank()}: {text}", file=sys.stderr, flush=True)
