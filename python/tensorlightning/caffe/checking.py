"""Whether Caffe would end the process over a solver: asked of another process."""

import json
import re
import signal
import subprocess
import sys

from tensorlightning import _files
from tensorlightning.caffe import _check, _library
from tensorlightning.caffe._library import CaffeError

# F1116 17:02:01.123456  4242 net.cpp:154] Check failed: ...
_FATAL = re.compile(r"^F\d{4} [\d:.]+ +\d+ (\S+?)\] (.*)$", re.MULTILINE)


def check(solver: str, net: str, *, test: bool = False) -> None:
    """Builds it and tries one batch elsewhere. Raises CaffeError with what Caffe says."""
    for name, text in (("solver", solver), ("net", net)):
        if "\0" in text:
            raise CaffeError(f"{name}: has a zero byte")
    program = _files.find("caffe/_check.py")
    command = [sys.executable, str(program), str(_library.path()), str(int(test))]
    ended = subprocess.run(
        command,
        input=json.dumps({"solver": solver, "net": net}),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )
    if ended.returncode == _check.GOOD:
        return
    if ended.returncode == _check.WRONG:
        raise CaffeError(ended.stdout)
    raise CaffeError(_reason(ended))


def _reason(ended: subprocess.CompletedProcess[str]) -> str:
    fatal = _FATAL.findall(ended.stderr)
    if fatal:
        where, what = fatal[-1]
        return f"{what.strip()} ({where})"
    said = ended.stderr.strip().splitlines() or ["it said nothing"]
    if ended.returncode < 0:
        ending = f"died of {signal.Signals(-ended.returncode).name}"
    else:
        ending = f"ended with {ended.returncode}"
    return f"the process that tried this solver {ending}: {said[-1]}"
