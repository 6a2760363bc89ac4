"""Runs functions of a built library in a process of its own: ``python child.py LIBRARY ORDER SEED WORKERS LIMIT_S NAME…``.

Prints one JSON object: by name what the function wrote into its message, and the launch failure that was left.
"""

from __future__ import annotations

import ctypes
import json
import sys


def main() -> None:
    path, order, seed, workers, limit, *names = sys.argv[1:]
    library = ctypes.CDLL(path)
    library.msbench_cpu_configure(int(order), ctypes.c_uint64(int(seed)), int(workers), ctypes.c_double(float(limit)))
    answers = {}
    for name in names:
        message, failure = ctypes.create_string_buffer(512), ctypes.create_string_buffer(8192)
        getattr(library, name)(message)
        library.msbench_cpu_failure(failure, ctypes.c_size_t(len(failure)))
        answers[name] = {"message": message.value.decode(), "failure": failure.value.decode()}
    print(json.dumps(answers))


main()
