"""tlrun: from a command line to a run, and from its end to an exit status."""

import asyncio
import os
import secrets
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from tensorlightning.launch import job, options, summary
from tensorlightning.launch.aggregation import BESIDE, EMBEDDED, Aggregation
from tensorlightning.launch.conductor import Conductor, Plan
from tensorlightning.launch.display import OutputClosedError, make_display
from tensorlightning.launch.hosts import Host, parse_hosts, read_hostfile
from tensorlightning.launch.link import Ssh

USAGE_ERROR = 2


def main(arguments: Sequence[str] | None = None) -> int:
    given = options.parse(sys.argv[1:] if arguments is None else arguments)
    try:
        plan = make_plan(given)
    except ValueError as error:
        print(f"tlrun: {error}", file=sys.stderr)
        return USAGE_ERROR
    display = make_display(
        plan.workers,
        prefix=not given.no_prefix,
        quiet=given.quiet,
        report_every=given.report_every,
        folder=given.output_dir,
    )
    with display:
        status = asyncio.run(_run(plan, display))
    try:
        if any(worker.attempt for worker in plan.workers):
            display.summary()
    except OutputClosedError:
        _let_go_of_output()
    if given.summary_json:
        summary.write_json(given.summary_json, plan.workers, status)
    return status


async def _run(plan: Plan, display) -> int:
    return await Conductor(plan, display).run()


def make_plan(given: Namespace) -> Plan:
    """Raises ValueError with a sentence for a person if it makes no sense."""
    if not given.command:
        raise ValueError("what is to be run? As in: tlrun -np 4 python train.py")
    workers = job.place(given.np, _hosts(given))
    if given.output_dir:
        _make_folder(given.output_dir)
    ssh = Ssh(given.ssh, given.ssh_port, given.ssh_option, given.remote_python, given.start_timeout)
    if not ssh.command:
        raise ValueError("--ssh: an empty command reaches nobody")
    return Plan(
        command=given.command,
        workers=workers,
        aggregation=_aggregation(given),
        environment=job.common_environment(options.variables(given)),
        folder=str(Path(given.wdir or ".").absolute()),
        path=os.environ.get("PATH", os.defpath),
        secret=_secret(given),
        job=given.job,
        ssh=ssh,
        max_restarts=given.max_restarts,
        grace=given.grace,
    )


def _hosts(given: Namespace) -> list[Host]:
    if given.host and given.hostfile:
        raise ValueError("-H and --hostfile: which of them?")
    if given.hostfile:
        return read_hostfile(given.hostfile)
    return parse_hosts(given.host) if given.host else [Host("localhost", given.np or 1)]


def _aggregation(given: Namespace) -> Aggregation:
    kind = given.aggregator
    if kind not in (BESIDE, EMBEDDED) and ":" not in kind:
        raise ValueError(f"--aggregator={kind}: wanted is beside, embedded, HOST:PORT or unix:PATH")
    extra = [f"--{option.removeprefix('--')}" for option in given.aggregator_option]
    if given.snapshot_dir:
        extra.append(f"--snapshot-dir={Path(given.snapshot_dir).absolute()}")
    if extra and kind != BESIDE:
        raise ValueError(
            "--snapshot-dir and --aggregator-option are for an aggregator that tlrun starts: they "
            f"don't go with --aggregator={kind}"
        )
    # It is there for the workers, and they say what goes on; last, to be overruled.
    return Aggregation(
        kind,
        given.job,
        ["--log-level=warning", *extra],
        given.aggregator_port,
        given.address,
        given.network_interface,
        given.start_timeout,
    )


def _secret(given: Namespace) -> str:
    """A fresh one; for an aggregator that runs already, the one it knows."""
    path = given.secret_file
    if not path and given.aggregator not in (BESIDE, EMBEDDED):
        if "TL_SECRET_FILE" not in os.environ:
            return os.environ.get("TL_SECRET", "")
        path = Path(os.environ["TL_SECRET_FILE"])
    if not path:
        return secrets.token_hex(32)
    try:
        return path.read_text().rstrip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--secret-file {path}: {error}") from None


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--output-dir {path}: {error}") from None


def _let_go_of_output() -> None:
    """So that Python does not complain at its exit that nobody reads it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
