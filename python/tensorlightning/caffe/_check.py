"""Builds a solver and tries one batch, in a process that may die: Caffe's fatal checks end it.

    python _check.py LIBRARY TEST < texts

The texts are in JSON. Run as a file, so that it imports nothing that the check doesn't need.
"""

import ctypes
import json
import os
import resource
import sys

GOOD, WRONG = 0, 3
ERROR_BYTES = 4096


def main() -> int:
    library, test = sys.argv[1:]
    # It may well die, and nobody wants to see its memory.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    texts = json.load(sys.stdin)
    driver = ctypes.CDLL(library, mode=os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
    error = ctypes.create_string_buffer(ERROR_BYTES)
    result = driver.tl_caffe_check(
        texts["solver"].encode(),
        texts["net"].encode(),
        ctypes.c_int(int(test)),
        error,
        ctypes.c_size_t(ERROR_BYTES),
    )
    if result == 0:
        return GOOD
    sys.stdout.buffer.write(error.value)
    return WRONG


if __name__ == "__main__":
    sys.exit(main())
