"""What a person reads when all is over: one line per worker. And the same as JSON, for programs."""

import json
from collections.abc import Sequence
from pathlib import Path

from tensorlightning.launch import figures
from tensorlightning.launch.job import Worker

HEADERS = ("worker", "host", "steps", "loss", "MB moved", "fewer bytes", "restarts", "exit status")


def rows(workers: Sequence[Worker]) -> list[tuple[str, ...]]:
    return [
        (
            str(worker.rank),
            worker.host.name,
            figures.steps(worker.report),
            figures.loss(worker.report),
            figures.megabytes(worker.report),
            figures.times_fewer(worker.report),
            str(worker.restarts),
            status(worker),
        )
        for worker in workers
    ]


def status(worker: Worker) -> str:
    if worker.status is None:
        return "not started" if worker.state == "waiting" else worker.state
    return f"{worker.status} ({worker.state})" if worker.state != "done" else str(worker.status)


def plain_table(workers: Sequence[Worker]) -> str:
    """Columns of text; numbers to the right."""
    lines = [HEADERS, *rows(workers)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADERS))]

    def cell(text: str, column: int) -> str:
        left = HEADERS[column] in ("host", "exit status")
        return text.ljust(widths[column]) if left else text.rjust(widths[column])

    return "\n".join(
        "  ".join(cell(text, column) for column, text in enumerate(line)).rstrip() for line in lines
    )


def write_json(path: Path, workers: Sequence[Worker], status: int) -> None:
    """For scripts: the last report of each worker, whole."""
    document = {
        "exit_status": status,
        "workers": [
            {
                "rank": worker.rank,
                "host": worker.host.name,
                "state": worker.state,
                "exit_status": worker.status,
                "restarts": worker.restarts,
                "report": worker.report,
            }
            for worker in workers
        ],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
