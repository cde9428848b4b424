"""Checks, or with --fix rewrites, the style of the sources; looks for mistakes in C++ and Python.

clang-tidy takes seconds for each file, so what it has found clean is remembered in the user's
cache, under the hash of the file, of our headers that it includes, of its flags, of
.clang-tidy and of the version of clang-tidy.
"""

import argparse
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import compile_commands
import junit
from junit import FAILED, PASSED, Case

ROOT = Path(__file__).resolve().parent.parent
CACHE = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tensorlightning/clang-tidy"
)
# Of the two, only clang-tidy has to understand coroutines; 14 does not, with g++'s library.
CLANG_FORMAT, CLANG_TIDY = "clang-format-14", "clang-tidy-16"
INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def say(text: str) -> None:
    print(f"lint: {text}", flush=True)


def sources(*suffixes: str) -> list[str]:
    """Files of the repository, also new ones that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--"]
    listed = subprocess.check_output([*command, *(f"*{s}" for s in suffixes)], cwd=ROOT, text=True)
    return sorted({f for f in listed.split("\0") if f and (ROOT / f).exists()})


def run(name: str, command: list[str]) -> Case:
    say(name)
    status = subprocess.run(command, cwd=ROOT).returncode
    return Case(name, PASSED) if status == 0 else Case(name, FAILED, f"exit status {status}")


def format_cpp(fix: bool) -> Case:
    files = sources(".cc", ".h", ".cu", ".cuh")
    if fix:
        return run("clang-format", [CLANG_FORMAT, "-i", *files])
    say("clang-format")
    check = [CLANG_FORMAT, "--dry-run", "-Werror", *files]
    ran = subprocess.run(check, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    # It complains of every line; the names of the files are enough, `make format` does the rest.
    wrong = sorted({line.split(":")[0] for line in ran.stderr.splitlines() if ": error:" in line})
    for file in wrong:
        say(f"{file} is not formatted: make format")
    if ran.returncode == 0:
        return Case("clang-format", PASSED)
    return Case("clang-format", FAILED, ", ".join(wrong) or ran.stderr.strip())


def with_headers(source: Path, seen: set[Path] | None = None) -> set[Path]:
    """The source and those headers of this repository that it includes, directly or not."""
    seen = set() if seen is None else seen
    seen.add(source)
    for match in INCLUDE.findall(source.read_bytes()):
        for folder in (ROOT, source.parent):
            header = (folder / match.decode()).resolve()
            if header.is_file() and header not in seen:
                with_headers(header, seen)
    return seen


@functools.cache
def version() -> str:
    """As "version 16.0.6": without the host's processor, which some versions tell as well."""
    told = subprocess.check_output([CLANG_TIDY, "--version"], text=True)
    return re.search(r"version \S+", told)[0]


@functools.cache
def configuration() -> bytes:
    return (ROOT / ".clang-tidy").read_bytes()


def key(entry: dict) -> str:
    digest = hashlib.sha256(version().encode() + configuration())
    # Without the folders of this clone's Bazel, so that another clone finds the same key.
    flags = [a for a in entry["arguments"] if "/external/" not in a and "/bazel-out/" not in a]
    digest.update(json.dumps(flags).encode())
    for path in sorted(with_headers(ROOT / entry["file"])):
        digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()


def tidy(entries: list[dict]) -> list[Case]:
    CACHE.mkdir(parents=True, exist_ok=True)
    done = 0

    def one(entry: dict) -> Case:
        nonlocal done
        name, clean = f"clang-tidy {entry['file']}", CACHE / key(entry)
        if clean.exists():
            case, note = Case(name, PASSED), " (unchanged)"
        else:
            ran = subprocess.run(
                [CLANG_TIDY, "--quiet", "-p", str(ROOT), entry["file"]],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            if ran.returncode == 0:
                clean.touch()
                case, note = Case(name, PASSED), ""
            else:
                case, note = Case(name, FAILED, "see its warnings"), f"\n{ran.stdout}"
        done += 1
        say(f"{done}/{len(entries)} {name}{note}")
        return case

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(one, entries))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fix", action="store_true", help="rewrite what can be")
    parser.add_argument("--junitxml", type=Path)
    options = parser.parse_args()

    ruff = [sys.executable, "-m", "ruff"]
    cases = [format_cpp(options.fix)]
    if options.fix:
        cases.append(run("ruff check", [*ruff, "check", "--fix", "."]))
        cases.append(run("ruff format", [*ruff, "format", "."]))
    else:
        cases.append(run("ruff check", [*ruff, "check", "."]))
        cases.append(run("ruff format", [*ruff, "format", "--check", "."]))
        say("compile_commands.json")
        compile_commands.main()
        cases += tidy(json.loads((ROOT / "compile_commands.json").read_text()))

    if options.junitxml:
        junit.write(options.junitxml, "lint", cases)
    failed = [case.name for case in cases if case.outcome == FAILED]
    say(f"failed: {', '.join(failed)}" if failed else "clean")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
