"""Writes compile_commands.json, for clang-tidy and editors, from what Bazel would run."""

import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Known to g++ and not to clang.
GCC_ONLY = {"-fno-canonical-system-headers", "-Wno-maybe-uninitialized", "-Wno-tsan"}
# Bazel redefines these, so that outputs don't tell the time; clang-tidy takes it for our mistake.
REDEFINED = ("-D__DATE__=", "-D__TIME__=", "-D__TIMESTAMP__=")
# Asio 1.74 looks for coroutines in clang's own library only; g++'s has them as well.
CLANG_ONLY = ["-DBOOST_ASIO_HAS_CO_AWAIT", "-Wno-unknown-warning-option"]
# Flags that name an output: nothing is written when clang only looks.
OUTPUTS = {"-o", "-MF"}


def _bazel(*arguments: str) -> str:
    command, *rest = arguments
    quiet = ["--ui_event_filters=-info", "--noshow_progress"]
    return subprocess.check_output(["bazel", command, *quiet, *rest], cwd=ROOT, text=True)


def clean(arguments: list[str], output_base: str, execution_root: str) -> list[str]:
    """Bazel's command line as clang would take it, from any folder."""
    kept = ["clang++"]
    rest = iter(arguments[1:])
    for argument in rest:
        if argument in OUTPUTS:
            next(rest)
        elif argument not in GCC_ONLY and argument != "-MD" and not argument.startswith(REDEFINED):
            for folder, base in (("external/", output_base), ("bazel-out/", execution_root)):
                for flag in ("", "-I"):
                    if argument.startswith(flag + folder):
                        argument = f"{flag}{base}/{argument.removeprefix(flag)}"
            kept.append(argument)
    return [*kept, *CLANG_ONLY]


def _source(arguments: list[str]) -> str:
    return arguments[arguments.index("-c") + 1]


def entries(aquery: dict, output_base: str, execution_root: str) -> list[dict]:
    """One entry for each of our own sources: not of others', nor generated."""
    found = {}
    for action in aquery.get("actions", []):
        source = _source(action["arguments"])
        if not source.startswith(("external/", "bazel-out/")):
            found[source] = {
                "directory": str(ROOT),
                "file": source,
                "arguments": clean(action["arguments"], output_base, execution_root),
            }
    return [found[source] for source in sorted(found)]


def main() -> None:
    query = 'mnemonic("CppCompile", //...)'
    aquery = json.loads(_bazel("aquery", "--output=jsonproto", query))
    found = entries(
        aquery, _bazel("info", "output_base").strip(), _bazel("info", "execution_root").strip()
    )
    (ROOT / "compile_commands.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
