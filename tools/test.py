"""What `make test` runs: every stage, even after one has failed, and then one line of counts.

Individual test cases are counted from the XML that each stage writes. A stage that fails without a
failing case (it did not compile, say), or that ran nothing at all, counts as one failure.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

import junit
from junit import FAILED, PASSED, SKIPPED, Case

ROOT = Path(__file__).resolve().parent.parent
STAGES = ("bazel", "pytest", "asan", "tsan", "fuzz", "lint")
LACKING = "needs what this machine lacks (nvcc)"


@dataclass(frozen=True)
class Stage:
    name: str
    command: list[str]
    # From the report that the command has written to its cases.
    read: Callable[[Path], list[Case]]


def read_bazel(report: Path) -> list[Case]:
    """Cases of a Bazel run, from its build events: they name the XML of this run, no older one."""
    tests: set[str] = set()
    unbuilt: dict[str, Case] = {}
    # By label, run and shard; a later attempt replaces an earlier one.
    results: dict[tuple, list[Case]] = {}
    for line in report.read_text().splitlines():
        event = json.loads(line)
        ident = event["id"]
        if "targetConfigured" in ident and "testSize" in event.get("configured", {}):
            tests.add(ident["targetConfigured"]["label"])
        elif "targetCompleted" in ident and not event.get("completed", {}).get("success"):
            label = ident["targetCompleted"]["label"]
            if event.get("aborted", {}).get("reason") != "SKIPPED":
                unbuilt[label] = Case(label, FAILED, "does not build")
            elif label in tests:
                unbuilt[label] = Case(label, SKIPPED, LACKING)
        elif "testResult" in ident:
            test = ident["testResult"]
            results[test["label"], test.get("run"), test.get("shard")] = _read_test(
                test["label"], event["testResult"]
            )
    cases = [case for group in results.values() for case in group]
    return cases + list(unbuilt.values())


def _read_test(label: str, result: dict) -> list[Case]:
    cases = []
    for output in result.get("testActionOutput", []):
        path = Path(unquote(urlparse(output.get("uri", "")).path))
        if output["name"] == "test.xml" and path.exists():
            cases = [Case(f"{label} {c.name}", c.outcome, c.message) for c in junit.read(path)]
    if result["status"] != "PASSED" and not any(c.outcome == FAILED for c in cases):
        cases.append(Case(label, FAILED, result["status"].lower().replace("_", " ")))
    return cases


def stages(report: Path, fuzz_seconds: int) -> list[Stage]:
    python = sys.executable
    progress = [] if sys.stderr.isatty() else ["--show_progress_rate_limit=20"]

    def bazel(name: str, *arguments: str) -> Stage:
        events = f"--build_event_json_file={report}"
        return Stage(
            name, ["bazel", "test", "--keep_going", events, *progress, *arguments], read_bazel
        )

    threads = "--test_tag_filters=threads,emulated_cuda"
    return [
        bazel("bazel", "//..."),
        Stage("pytest", [python, "-m", "pytest", "-q", f"--junitxml={report}"], junit.read),
        bazel("asan", "--config=asan", "//tests/..."),
        bazel("tsan", "--config=tsan", "--build_tests_only", threads, "//tests/..."),
        Stage(
            "fuzz",
            [python, "tools/fuzz/run.py", f"--seconds={fuzz_seconds}", f"--junitxml={report}"],
            junit.read,
        ),
        Stage("lint", [python, "tools/lint.py", f"--junitxml={report}"], junit.read),
    ]


def judge(stage: Stage, status: int, report: Path) -> list[Case]:
    """Cases of a stage that has ended; at least one of them failed if the stage did."""
    try:
        cases = stage.read(report)
    except (OSError, ValueError, SyntaxError) as error:  # a ParseError is a SyntaxError
        cases, status = [Case("its report", FAILED, str(error))], status or 1
    if status != 0 and not any(case.outcome == FAILED for case in cases):
        cases.append(Case("the stage itself", FAILED, f"exit status {status}"))
    elif not cases:
        cases.append(Case("the stage itself", FAILED, "nothing ran"))
    return cases


def summary(cases: Iterable[Case]) -> str:
    count = Counter(case.outcome for case in cases)
    line = f"{count[PASSED]} passed, {count[FAILED]} failed"
    return line + (f", {count[SKIPPED]} skipped" if count[SKIPPED] else "")


def say(text: str = "") -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fuzz-seconds", type=int, default=10, help="for each fuzzer")
    parser.add_argument("stage", nargs="*", help=f"only these of {', '.join(STAGES)}")
    options = parser.parse_args()
    for name in options.stage:
        if name not in STAGES:
            parser.error(f"there is no stage {name}; there are {', '.join(STAGES)}")

    everything: list[tuple[str, Case]] = []
    table = []
    with tempfile.TemporaryDirectory(prefix="tensorlightning-test-") as folder:
        report = Path(folder) / "report"
        chosen = stages(report, options.fuzz_seconds)
        if options.stage:
            chosen = [stage for stage in chosen if stage.name in options.stage]
        for number, stage in enumerate(chosen, 1):
            say(f"\n=== {number}/{len(chosen)} {stage.name}: {' '.join(stage.command)}")
            report.unlink(missing_ok=True)
            start = time.monotonic()
            status = subprocess.run(stage.command, cwd=ROOT).returncode
            cases = judge(stage, status, report)
            table.append(f"  {stage.name:8}{time.monotonic() - start:7.1f} s  {summary(cases)}")
            say(table[-1])
            everything += [(stage.name, case) for case in cases]

    say("\n=== summary")
    say("\n".join(table))
    for stage_name, case in everything:
        if case.outcome != PASSED:
            why = (case.message.splitlines() or [""])[0]
            say(f"  {case.outcome.upper()} {stage_name}: {case.name}: {why}")
    cases = [case for _, case in everything]
    say(summary(cases))
    good = any(c.outcome == PASSED for c in cases) and all(c.outcome != FAILED for c in cases)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
