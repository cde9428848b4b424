"""Watches a worker from a process of its own, and kills it when it hangs.

A worker that is stopped, or stuck in native code with Python's lock held, can do nothing about it,
and Spark does not notice. The worker writes a byte now and then; after too long without one it is
killed, and Spark starts its task again. When the worker ends, the pipe does, and so does this.

    python -c <this text> PID SECONDS < pipe
"""

import os
import select
import signal
import sys


def main() -> None:
    pid, seconds = int(sys.argv[1]), float(sys.argv[2])
    # Ctrl-C in a terminal is for the worker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([0], [], [], seconds)
        if ready and not os.read(0, 4096):
            return
        if os.getppid() != pid:
            return
        if not ready:
            print(
                f"tensorlightning: worker {pid} has hung for {seconds:g} s: killed, so that Spark "
                "starts its task again",
                file=sys.stderr,
                flush=True,
            )
            os.kill(pid, signal.SIGKILL)
            return


if __name__ == "__main__":
    main()
