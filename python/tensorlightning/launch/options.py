"""The command line of tlrun, and what is wrong with one."""

import argparse
import math
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from tensorlightning.launch.protocol import IDENTITY

# Options that only set a variable: those of tl.Elastic() that are the same for all workers.
SETTINGS = {
    "policy": "elastic, local, gradient, gradient-async, dense, ...",
    "period": "local steps between two exchanges",
    "beta": "strength of the elastic pull",
    "density": "share of the entries that a push keeps",
    "reply-density": "the same for the reply",
    "bits": "per value that travels",
    "when": "period, or adaptive",
}

EXAMPLES = """\
examples:
  tlrun -np 4 python train.py                       four workers on this machine
  tlrun -np 8 -H host1:4,host2:4 python train.py    on two, reached by ssh
  tlrun -np 4 --policy local --density 0.01 python train.py --epochs 3
  tlrun -np 4 --max-restarts 3 --snapshot-dir snapshots python train.py
  tlrun -np 2 caffe train --solver=solver.prototxt --log_dir=log_{rank}
  tlrun -np 2 --aggregator=host:7070 --secret-file=secret python train.py

Everything after the command's name belongs to the command; {rank}, {size} and
{local_rank} in its arguments are replaced. Workers learn who they are from
TL_RANK, TL_SIZE and so on: docs/tlrun.md has them all. The exit status is that
of the worst worker. Ctrl-C ends all workers, a second one kills them."""


class Parser(argparse.ArgumentParser):
    """As argparse's, with a hint after an error."""

    def error(self, message: str) -> None:
        self.exit(2, f"tlrun: {message}\ntry `tlrun --help`\n")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = _parser().parse_args(arguments)
    if options.command[:1] == ["--"]:
        del options.command[0]
    return options


def variables(options: argparse.Namespace) -> dict[str, str]:
    """What --env and the settings add to every worker's environment."""
    added = {}
    for item in options.env:
        name, equals, value = item.partition("=")
        if not name.isidentifier():
            raise ValueError(f"--env {item}: wanted is NAME=VALUE, or NAME to pass it on from here")
        if name in IDENTITY:
            hint = "see --secret-file" if "SECRET" in name else "tlrun sets it itself"
            raise ValueError(f"--env {name}: {hint}")
        if not equals and name not in os.environ:
            raise ValueError(f"--env {name}: there is no such variable here to pass on")
        added[name] = value if equals else os.environ[name]
    for name in SETTINGS:
        value = getattr(options, name.replace("-", "_"))
        if value is not None:
            added["TL_" + name.replace("-", "_").upper()] = value
    return added


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tlrun",
        usage="tlrun [-np N] [-H HOSTS] [OPTIONS] COMMAND [ARGUMENTS]",
        description="Starts the workers of a training job on this machine or on several, shows\n"
        "what they do, and leaves none behind.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument_group("where").add_argument
    add("-np", "-n", "--np", type=_positive, metavar="N", help="processes (default: all slots)")
    add("-H", "--host", "--hosts", metavar="HOSTS", help="host1:slots,host2:slots,...")
    add("--hostfile", type=Path, metavar="FILE", help="a line `host slots=N` for each")
    add("--wdir", metavar="FOLDER", help="where workers start, on every host (here)")
    add(
        "--ssh",
        type=shlex.split,
        default=["ssh"],
        metavar="COMMAND",
        help="this instead of `ssh`, options included",
    )
    add("--ssh-port", type=_port, metavar="PORT", help="where their sshd listens")
    add(
        "--ssh-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="passed to ssh as -o, repeatable",
    )
    add(
        "--remote-python",
        default=sys.executable,
        metavar="PATH",
        help="on other hosts (the same as here)",
    )
    add(
        "--start-timeout",
        type=_seconds,
        default=30.0,
        metavar="S",
        help="seconds for each host to answer (30)",
    )

    add = parser.add_argument_group("aggregator").add_argument
    add(
        "--aggregator",
        default="beside",
        metavar="beside|embedded|HOST:PORT",
        help="a process beside rank 0 (default), a part of rank 0's, or one that runs already",
    )
    add(
        "--aggregator-port",
        type=_port,
        default=0,
        metavar="PORT",
        help="where it listens (a free one)",
    )
    add(
        "--aggregator-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="passed to tl-aggregator as --NAME=VALUE, repeatable",
    )
    add("--address", metavar="HOST", help="how other hosts reach the first one (its name as given)")
    add("--network-interface", metavar="NAME", help="the same, by the first host's interface")
    add(
        "--snapshot-dir",
        metavar="FOLDER",
        help="snapshots of the centre; a later run goes on there",
    )
    add("--secret-file", type=Path, metavar="FILE", help="a secret, instead of a fresh one")
    add("--job", default="default", metavar="NAME", help="its name, kept in snapshots (default)")

    add = parser.add_argument_group("workers").add_argument
    add(
        "--env",
        "-x",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="a variable for all workers",
    )
    for name, meaning in SETTINGS.items():
        variable = "TL_" + name.replace("-", "_").upper()
        add(f"--{name}", metavar="X", help=f"{meaning} ({variable})")
    add(
        "--max-restarts", type=_count, default=0, metavar="N", help="for each worker that fails (0)"
    )
    add(
        "--grace",
        type=_seconds,
        default=5.0,
        metavar="S",
        help="seconds from SIGTERM to SIGKILL (5)",
    )

    add = parser.add_argument_group("output").add_argument
    add("--no-prefix", action="store_true", help="no [rank] before each line")
    add("--quiet", "-q", action="store_true", help="nothing but what workers print, and errors")
    add(
        "--report-every",
        type=_seconds,
        default=5.0,
        metavar="S",
        help="seconds between two lines of a worker (5)",
    )
    add("--output-dir", type=Path, metavar="FOLDER", help="also keep what each worker prints there")
    add("--summary-json", type=Path, metavar="FILE", help="the last table, for programs")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes from 1 on")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 on")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port from 1 to 65535")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value
