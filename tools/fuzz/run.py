"""Runs every tl_fuzz_test as a libFuzzer binary, from its kept corpus, for some seconds each.

New inputs go to a temporary folder and are forgotten. An input that breaks something is kept, and
its path printed: add it to tests/fuzz/corpus/<name>/ together with the fix.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import junit  # noqa: E402
from junit import FAILED, PASSED, Case  # noqa: E402

# Inputs slower than this are a finding: a decoder's work is bounded by its layout.
SLOWEST_INPUT_S = 10
MEMORY_MB = 2048


def fuzzers() -> list[str]:
    query = [
        "bazel",
        "query",
        "--ui_event_filters=-info",
        "--noshow_progress",
        "attr(tags, '\\bfuzz\\b', tests(//...))",
    ]
    return subprocess.check_output(query, cwd=ROOT, text=True).split()


def build(labels: list[str]) -> bool:
    return subprocess.run(["bazel", "build", "--config=fuzz", *labels], cwd=ROOT).returncode == 0


def fuzz(label: str, seconds: int) -> Case:
    package, name = label.removeprefix("//").split(":")
    folder = Path(tempfile.mkdtemp(prefix=f"tensorlightning-{name}-"))
    new, log = folder / "new", folder / "log"
    new.mkdir()
    command = [
        ROOT / ".bazel/bin" / package / name,
        f"-max_total_time={seconds}",
        f"-timeout={SLOWEST_INPUT_S}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-artifact_prefix={folder}/",
        "-print_final_stats=1",
        new,
        ROOT / package / "corpus" / name,
    ]
    symbolizer = {"ASAN_SYMBOLIZER_PATH": shutil.which("llvm-symbolizer-14") or ""}
    print(f"fuzz {label}: {seconds} s from {len(list(command[-1].iterdir()))} inputs", flush=True)
    with log.open("w") as output:
        status = subprocess.run(
            command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | symbolizer
        ).returncode
    text = log.read_text(errors="replace")
    if status == 0:
        runs = [
            line.split()[-1] for line in text.splitlines() if "number_of_executed_units" in line
        ]
        print(f"fuzz {label}: nothing found in {runs[0] if runs else '?'} runs", flush=True)
        shutil.rmtree(folder)
        return Case(label, PASSED)
    found = [
        p for p in folder.iterdir() if p.name.startswith(("crash-", "timeout-", "oom-", "leak-"))
    ]
    where = f"reproducer {found[0]}" if found else f"exit status {status}, log {log}"
    print(f"{text[-6000:]}\nfuzz {label}: FAILED, {where}", flush=True)
    return Case(label, FAILED, where)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=20, help="for each fuzzer")
    parser.add_argument("--junitxml", type=Path)
    options = parser.parse_args()

    labels = fuzzers()
    if not labels:
        print("fuzz: there is no tl_fuzz_test")
    elif not build(labels):
        return 1
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        cases = list(pool.map(lambda label: fuzz(label, options.seconds), labels))
    if options.junitxml:
        junit.write(options.junitxml, "fuzz", cases)
    return 1 if any(case.outcome == FAILED for case in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
