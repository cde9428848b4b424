"""One training from the driver's side: aggregator, Watch, ticket, snapshots, progress.

with Job(spark.sparkContext, workers=8, settings={"policy": "local"}, epochs=3) as job:
    records = job.run(lambda: df.mapInArrow(task(job.ticket), ...).collect())
    with job.reader():
        ... join, which brings the centre ...
"""

import contextlib
import os
import re
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tensorlightning.options import AVERAGING, Options
from tensorlightning.spark import aggregation, checks, run_folder, shipping
from tensorlightning.spark.places import Places
from tensorlightning.spark.progress import Progress, total
from tensorlightning.spark.task import Ticket, environment
from tensorlightning.spark.watch import Watch

SETTINGS = (
    "period",
    "beta",
    "density",
    "reply_density",
    "bits",
    "policy",
    "when",
    "change",
    "patience",
)
# Executors start, import TensorFlow and may be retried while others wait for the first weights.
PATIENCE_SECONDS = 180.0
_SAVE_SECONDS = 2.0
# Without a single worker: then somebody may want to know why.
_NOBODY_SECONDS = 30.0
_END_SECONDS = 10.0
# What Spark remembers of a thread's jobs.
_GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")

T = TypeVar("T")
# A process has one environment, and several trainings may end at once.
_reading = threading.Lock()


class TrainingError(RuntimeError):
    """A training that has failed, with what the worker said that it failed on."""


def checked(**settings: Any) -> dict[str, Any]:
    """The settings that were given, if they are right; a ValueError or TypeError otherwise."""
    if unknown := sorted(set(settings) - set(SETTINGS)):
        raise TypeError(f"there is no setting {unknown[0]!r}; there are {', '.join(SETTINGS)}")
    given = {name: value for name, value in settings.items() if value is not None}
    options = Options.make(**given)
    if options.averages_gradients:
        raise ValueError(
            f"policy={options.policy!r} waits for everybody in each step, and Spark's workers come "
            f"and go: choose one of {', '.join(AVERAGING)}, or start your own loop with "
            "tl.spark.run()"
        )
    return {name: getattr(options, name) for name in given}


def variables(settings: Mapping[str, Any], *, apart: bool = True) -> dict[str, str]:
    """As TL_* variables."""
    named = {"patience": PATIENCE_SECONDS, **settings}
    told = {f"TL_{name.upper()}": str(value) for name, value in named.items()}
    return told | {"TL_ENDING": "apart"} if apart else told


class Job:
    """Runs from its making to close(); a context manager."""

    def __init__(
        self,
        context: Any,
        *,
        workers: int | None,
        settings: Mapping[str, Any] | None = None,
        epochs: int = 1,
        aggregator: str = aggregation.DRIVER,
        secret_file: str | None = None,
        port: int = 0,
        snapshots: str | os.PathLike[str] | None = None,
        resume: str | os.PathLike[str] | None = None,
        progress: bool = True,
        record: str | os.PathLike[str] | None = None,
        name: str = "training",
        hang_seconds: float = 30.0,
        stall_seconds: float = 600.0,
        gather: bool = False,
        gather_seconds: float = 600.0,
    ):
        """`workers`: how many; None where Spark decides. `port`: the aggregator's, and the next one
        for the Watch; 0: free ones. `snapshots`: a folder, kept; without it one in the folder for
        temporary files, which is kept only if the training fails. `resume`: such a folder.

        `record`: a file that says how it goes, written anew every two seconds.

        `name`: what Spark's page calls it.

        `gather`: all workers must be there before any begins (tl.spark.run), within gather_seconds.
        """
        if workers is not None:
            checks.whole("workers", workers)
        aggregation.check(aggregator, slots_of(context))
        if aggregator != aggregation.DRIVER:
            run_folder.refuse(aggregator, snapshots=snapshots, resume=resume)
        fresh = {"job": f"spark-{secrets.token_hex(4)}", "epochs": 0.0}
        # A resumed run has the name that its snapshots have.
        before = run_folder.run_of(resume) if resume else fresh
        self.name = str(before["job"])
        run_folder.check_epochs(resume, float(before["epochs"]), epochs)
        _check_places(port, record)
        shipping.ship(context)
        self._context, self._record = context, record
        self._description = f"TensorLightning: {name}"
        self._epochs, self._settings = epochs, dict(settings or {})
        self._began = time.time()
        self._failure = ""
        self._saved_at = 0.0
        self._failed = False
        self._nobody_since = float("inf")
        self._undo = contextlib.ExitStack()
        given = aggregator not in (aggregation.DRIVER, aggregation.TASK)
        secret = aggregation.secret_of(secret_file) if given else secrets.token_hex(32)
        host, bind = _addresses(context)
        self.places = Places(workers, gather=gather, start=float(before["epochs"]))
        self.watch = _watch(self.places, secret, bind, port)
        self._undo.callback(self.watch.close)
        self.watch.on_fatal(self._fail)
        self._told = {
            "job": self.name,
            "run": secrets.token_hex(3),
            "start": float(before["epochs"]),
            "secret": secret,
            "watch": (host, self.watch.port),
            "settings": variables(self._settings, apart=not gather),
            "gather_seconds": gather_seconds if gather else float("inf"),
            "hang_seconds": hang_seconds,
            "stall_seconds": stall_seconds,
        }
        self._program: aggregation.Program | None = None
        self.progress = Progress(self.places, self.watch.lock, self._look, shown=progress)
        try:
            self._folder = run_folder.make(snapshots, resume)
            self._undo.callback(self._part_with_folder, bool(snapshots))
            self._start_aggregator(aggregator, host, bind, port)
            self.ticket = Ticket(context.broadcast(self._told))
        except BaseException:
            self._undo.close()
            raise
        self._undo.callback(self._destroy_broadcast)
        self._undo.callback(self._finish)

    def __enter__(self) -> "Job":
        """Shows how far it is, from now on."""
        if self._program is not None and self._epochs != 1:
            self.progress.tell(f"snapshots, for resume=, are in {self._folder}")
        self.progress.__enter__()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.close(failed=error is not None)

    def run(self, action: Callable[[], T]) -> T:
        """A Spark action whose tasks train. Ctrl-C ends it, and what is wrong in any attempt."""
        before = {name: self._context.getLocalProperty(name) for name in _GROUP}
        self._context.setJobGroup(self.name, self._description, True)
        self._nobody_since = time.monotonic()
        try:
            return action()
        except BaseException as error:
            # Before the others end, and say so.
            why = self._why()
            self.watch.stop("the driver has ended the job")
            self._cancel()
            self._wait_for_tasks()
            why = why or _missing_module(str(error))
            if isinstance(error, Exception) and why:
                # Spark's own error, and Java's stack with it, is its cause.
                raise TrainingError(why) from error
            raise
        finally:
            with contextlib.suppress(Exception):  # There may be no Spark any more.
                for name, value in before.items():
                    self._context.setLocalProperty(name, value)

    def has_weights(self) -> bool:
        """Whether there is something to read: of this run, or of the one that it goes on with."""
        return self.places.have_begun() or self._told["start"] > 0

    def expect(self, workers: int) -> None:
        """So many are to come, if that was not known before."""
        with self.watch.lock:
            self.places.size = self.places.size or workers

    @contextlib.contextmanager
    def reader(self) -> Iterator[dict[str, str]]:
        """TL_* for the driver itself, as one more worker: whoever joins gets the centre."""
        told = self._told["settings"] | {
            "TL_AGGREGATOR": str(self.watch.aggregator),
            "TL_JOB": self.name,
            "TL_SECRET": self._told["secret"],
            "TL_RANK": str(len(self.places.by_partition)),
            "TL_SIZE": str(len(self.places.by_partition) + 1),
            # The lowest: a worker that gets this rank later on is not fenced off.
            "TL_ATTEMPT": "1",
        }
        with _reading, environment(told):
            yield told

    def summary(self) -> dict[str, Any]:
        """The run's record."""
        with self.watch.lock:
            places = self.places.all()
            whole = total(places)
            workers = [
                {
                    "rank": place.rank,
                    "partition": place.partition,
                    "host": place.host,
                    "state": place.state,
                    "attempts": place.attempts,
                    "steps": place.steps,
                    "samples": place.samples,
                    "epochs": place.epochs,
                    "bytes": place.bytes,
                    "report": place.report,
                    **({"error": place.error} if place.error else {}),
                }
                for place in places
            ]
        return {
            "job": self.name,
            "seconds": round(time.time() - self._began, 3),
            "settings": self._settings,
            "steps": whole["step"],
            "samples": sum(worker["samples"] for worker in workers),
            "bytes": whole["sent"],
            "dense_bytes": whole["dense"],
            "workers": workers,
        }

    def close(self, failed: bool = False) -> None:
        """Ends aggregator and Watch. The record is written, and snapshots are kept or removed."""
        self._failed = failed
        self._undo.close()

    def _finish(self) -> None:
        # Before the aggregator ends: they would try to reach it again.
        self.watch.part()
        self.progress.__exit__()
        self._save_progress(now=True)

    def _wait_for_tasks(self) -> None:
        """Python workers that Spark is about to end must not be given to the next job's tasks."""
        until = time.monotonic() + _END_SECONDS
        with contextlib.suppress(Exception):
            tracker = self._context.statusTracker()
            while time.monotonic() < until and any(
                stage is not None and stage.numActiveTasks
                for number in tracker.getJobIdsForGroup(self.name)
                for stage in map(tracker.getStageInfo, tracker.getJobInfo(number).stageIds)
            ):
                time.sleep(0.1)

    def _destroy_broadcast(self) -> None:
        with contextlib.suppress(Exception):  # It went with its Spark.
            self.ticket.broadcast.destroy()

    def _cancel(self) -> None:
        with contextlib.suppress(Exception):  # What has ended with its Spark need not be.
            self._context.cancelJobGroup(self.name)

    # ---- Aggregator and snapshots. ---------------------------------------------------------------

    def _start_aggregator(self, kind: str, host: str, bind: str, port: int) -> None:
        if kind == aggregation.TASK:
            in_task = aggregation.InTask(self._context, self._told, self._fail)
            self._undo.callback(in_task.close)
            # It is told when it asks; the Watch outlives it.
            self._undo.callback(self.watch.stop, "the driver has ended the job")
            self._wait_for_slot()
        elif kind == aggregation.DRIVER:
            program = aggregation.Program(
                self.name, self._told["secret"], bind, port, str(self._folder)
            )
            self._program = program
            self._undo.callback(program.close)
            self.watch.aggregator = aggregation.with_port(host, program.port)
        else:
            self.watch.aggregator = kind

    def _wait_for_slot(self) -> None:
        """Workers must not take all slots before the aggregator has one."""
        until = time.monotonic() + aggregation.SLOT_SECONDS
        while self.watch.aggregator is None:
            if self._failure:
                raise aggregation.AggregatorError(self._failure)
            if time.monotonic() > until:
                raise aggregation.AggregatorError(
                    f"no slot for the aggregator's task within {aggregation.SLOT_SECONDS:.0f} s: "
                    "with aggregator='task' the cluster needs one more than there are workers"
                )
            time.sleep(0.1)

    def _part_with_folder(self, named: bool) -> None:
        """One that nobody has named is kept only if somebody may need it."""
        if self._failed and self.places.have_begun() and run_folder.has_snapshots(self._folder):
            self.progress.say(f"the training can go on from here: resume={str(self._folder)!r}")
        elif not named:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _look(self) -> None:
        """A few times a second, while it runs."""
        if self._program is not None and self._program.has_died():
            self.progress.say(
                f"the aggregator has died, and is started again: {self._program.last_words()}"
            )
            try:
                self._program.start_again()
            except Exception as error:
                self._fail(f"the aggregator does not start again: {error}")
        self._save_progress()
        self._say_that_nobody_comes()

    def _say_that_nobody_comes(self) -> None:
        if self.places.by_partition or self.places.gathering():
            return
        if time.monotonic() - self._nobody_since > _NOBODY_SECONDS:
            self._nobody_since = float("inf")  # Once.
            self.progress.tell(
                f"no worker has come within {_NOBODY_SECONDS:.0f} s: Spark may have no free slot, "
                "or be busy making the rows"
            )

    def _save_progress(self, now: bool = False) -> None:
        """How far the run is: the record, and beside the snapshots where a resumed one begins."""
        if not now and time.monotonic() - self._saved_at < _SAVE_SECONDS:
            return
        self._saved_at = time.monotonic()
        # A full disk is the aggregator's to complain of; and in the end, a record is no model.
        if self._program is not None:
            with self.watch.lock:
                state = {"job": self.name, "epochs": self.places.epochs(), "of": self._epochs}
            with contextlib.suppress(OSError):
                run_folder.write_run(self._folder, state)
        if self._record is not None:
            try:
                run_folder.write_json(Path(self._record), self.summary())
            except OSError as error:
                if now:
                    self.progress.say(f"the record can't be written: {error}")

    def _why(self) -> str:
        """What has ended it, in the words of who noticed; empty: nobody of ours did."""
        with self.watch.lock:
            failed = [place for place in self.places.all() if place.state == "failed"]
        said = [f"rank {place.rank} on {place.host}: {place.error}" for place in failed]
        return self._failure or "; ".join(said)

    def _fail(self, why: str) -> None:
        """Ends the Spark job: another attempt would only repeat it."""
        self._failure = self._failure or why
        self.watch.stop(why)
        self._cancel()


def _missing_module(error: str) -> str:
    """What to do about a Python of the executors that lacks something; empty: it lacks nothing."""
    found = re.search(r"ModuleNotFoundError: No module named '([^']+)'", error)
    if found is None:
        return ""
    return (
        f"the executors' Python has no module {found[1]!r}: the variable PYSPARK_PYTHON, where the "
        "driver starts, names one that has TensorFlow, numpy, pyarrow and rich"
    )


def _watch(places: Places, secret: str, bind: str, port: int) -> Watch:
    try:
        return Watch(places, secret, bind, port + 1 if port else 0)
    except OSError as error:
        if not port:
            raise
        raise ValueError(f"port={port}: the next one is used, too, and {error}") from error


def slots_of(context: Any) -> int | None:
    """Of the whole cluster; None if it may get more."""
    is_local = context.master == "local" or context.master.startswith("local[")
    return int(context.defaultParallelism) if is_local else None


def _check_places(port: int, record: Any) -> None:
    """What would be noticed only in the end otherwise."""
    if not 0 <= port < 65535:
        raise ValueError(f"port={port}: from 1 to 65534, for the next one is used too; 0: any")
    if record is not None:
        try:
            with Path(record).open("a"):
                pass
        except OSError as error:
            raise ValueError(f"record={os.fspath(record)!r}: {error}") from error


def _addresses(context: Any) -> tuple[str, str]:
    """Under which address executors reach the driver, and on which it listens."""
    configuration = context.getConf()
    # Of IPv6, Spark wants brackets.
    host = (configuration.get("spark.driver.host") or "127.0.0.1").strip("[]")
    bind = (configuration.get("spark.driver.bindAddress") or host).strip("[]")
    return host, socket.getaddrinfo(bind, 0, type=socket.SOCK_STREAM)[0][4][0]
