"""The folder of one training: the aggregator's snapshots, and how far the run was.

fit(df, resume=folder) goes on from there.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RUN_FILE = "run.json"


def make(snapshots: Any, resume: Any) -> Path:
    """For a run, with the snapshots from which it goes on; a temporary one if none is named."""
    folder = Path(snapshots or tempfile.mkdtemp(prefix="tensorlightning-snapshots-"))
    folder.mkdir(parents=True, exist_ok=True)
    if resume and Path(resume).resolve() == folder.resolve():
        return folder
    if has_snapshots(folder):
        raise ValueError(
            f"snapshots={str(folder)!r} has those of another training: name another folder, or "
            f"go on from there with resume={str(folder)!r}"
        )
    for file in _snapshots_in(Path(resume)) if resume else ():
        shutil.copy2(file, folder)
    return folder


def has_snapshots(folder: Path) -> bool:
    return any(_snapshots_in(folder))


def run_of(folder: Any) -> dict[str, Any]:
    """Which run the snapshots in this folder are of, and how far it had come."""
    try:
        run = json.loads((Path(folder) / RUN_FILE).read_text())
        found = {"job": str(run["job"]), "epochs": float(run["epochs"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"resume={os.fspath(folder)!r}: its {RUN_FILE} can't be read ({error}); is it a folder "
            "with the snapshots of a training?"
        ) from error
    if not has_snapshots(Path(folder)):
        raise ValueError(
            f"resume={os.fspath(folder)!r}: there is no snapshot in it to go on from; the training "
            "has to begin anew"
        )
    return found


def check_epochs(resume: Any, done: float, epochs: int | None) -> None:
    # None, or 0: something else than epochs decides.
    if resume and epochs and done >= epochs:
        raise ValueError(
            f"resume={os.fspath(resume)!r}: {done:.2f} epochs are done, and epochs={epochs} is how "
            f"many there are to be in all: epochs={int(done) + epochs} adds as many"
        )


def refuse(aggregator: str, **folders: Any) -> None:
    """An aggregator elsewhere neither writes nor reads snapshots here."""
    for name, folder in folders.items():
        if folder:
            raise ValueError(
                f"{name}={os.fspath(folder)!r}: snapshots are of an aggregator in the driver, and "
                f"this one is to be elsewhere, aggregator={aggregator!r}"
            )


def write_run(folder: Path, state: dict[str, Any]) -> None:
    write_json(folder / RUN_FILE, state)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Whoever reads it meanwhile sees the old content or the new one."""
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(json.dumps(content, indent=1) + "\n")
    draft.replace(path)


def _snapshots_in(folder: Path) -> Iterator[Path]:
    return folder.glob("snapshot-*.tls")
