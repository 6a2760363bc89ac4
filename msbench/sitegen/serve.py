"""Shows a built site on this machine."""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from msbench.errors import MsbenchError


def server(out: Path, port: int) -> ThreadingHTTPServer:
    """A server of the site in ``out``, bound to 127.0.0.1 and not yet serving: no other machine can reach it.

    Args:
        out: the folder that ``build`` made.
        port: of the loopback interface; 0 takes a free one (see ``server_port``).

    Raises:
        MsbenchError: there is no site, or the port is taken.
    """
    if not (out / "index.html").is_file():
        raise MsbenchError(f"There is no site in {out}: build one with `msbench build-site --out {out}`.")
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), partial(SimpleHTTPRequestHandler, directory=str(out)))
    except OSError as error:
        raise MsbenchError(f"Port {port} can't be used ({error.strerror}): choose another one with --port.") from error
