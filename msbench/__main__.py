"""`python -m msbench` and `msbench` are the same command."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """The command; Ctrl-C has no traceback even while msbench is still being loaded."""
    try:
        from msbench.cli import main as command
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    try:
        command()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nor while the interpreter ends


if __name__ == "__main__":
    main()
