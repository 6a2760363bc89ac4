"""A server on loopback that misbehaves as endpoints do, and counts what it would bill."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.optimizing import fenced, kernel, planned

USAGE = {"prompt_tokens": 900, "completion_tokens": 300, "total_tokens": 1200}
PATIENCE_S = 1.2


@dataclass
class Request:
    """One request; ``number`` counts from 1."""

    number: int
    body: dict[str, Any]
    handler: BaseHTTPRequestHandler
    server: Server

    def text(self) -> str:
        """A good answer to whoever asks."""
        system = json.dumps(self.body.get("messages", ""))
        return planned(2.0) if "You are the planner" in system else fenced(kernel(1.0 + self.number / 10))

    def whole(self, **changes: Any) -> dict[str, Any]:
        """A good answer in one piece."""
        message = {"role": "assistant", "content": self.text(), **changes.pop("message", {})}
        choice = {"index": 0, "finish_reason": "stop", "message": message, **changes.pop("choice", {})}
        return {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": USAGE, **changes}

    def send(self, body: Any, status: int = 200, **headers: str) -> None:
        raw = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.head(status, {"Content-Type": "application/json", "Content-Length": str(len(raw)), **headers})
        self.handler.wfile.write(raw)

    def head(self, status: int, headers: dict[str, str]) -> None:
        self.handler.send_response(status)
        for name, value in headers.items():
            self.handler.send_header(name.replace("_", "-"), value)
        self.handler.end_headers()

    def stream(self, *events: Any, done: bool = True) -> None:
        """Server-sent events, then the end of the connection."""
        self.head(200, {"Content-Type": "text/event-stream", "Connection": "close"})
        for event in events:
            line = event if isinstance(event, str) else f"data: {json.dumps(event)}\n\n"
            self.handler.wfile.write(line.encode())
            self.handler.wfile.flush()
        if done:
            self.handler.wfile.write(b"data: [DONE]\n\n")

    def deltas(self, parts: int = 4) -> list[dict[str, Any]]:
        text = self.text()
        step = max(1, len(text) // parts)
        pieces = [text[i : i + step] for i in range(0, len(text), step)]
        return [{"model": "m", "choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]

    def good(self) -> None:
        end = {"model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": USAGE}
        self.stream(*self.deltas(), end)

    def hang(self, seconds: float = 30.0) -> None:
        self.server.leaving.wait(seconds)

    def trickle(self, piece: bytes, every: float = 0.02) -> None:
        while not self.server.leaving.wait(every):
            self.handler.wfile.write(piece)
            self.handler.wfile.flush()

    def cut(self) -> None:
        self.handler.connection.shutdown(socket.SHUT_RDWR)


Way = Callable[[Request], None]


@dataclass
class Server:
    """Answers in the way that it is told, and good where that way returns without an answer to it."""

    way: Way = lambda request: request.good()
    requests: list[dict[str, Any]] = field(default_factory=list)
    leaving: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        server = self
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"] or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                with lock:
                    server.requests.append(body)
                    number = len(server.requests)
                with suppress(OSError):  # the client may have gone
                    server.way(Request(number, body, self, server))
                self.close_connection = True

            do_GET = do_POST

            def log_message(self, format: str, *args: Any) -> None:
                return

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                return

        self._http = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.leaving.set()
        self._http.shutdown()
        self._http.server_close()


def _first(then: Way) -> Way:
    """Misbehaves once, then is good."""
    return lambda request: then(request) if request.number == 1 else request.good()


def _window(tokens: int, says: str) -> Way:
    def way(request: Request) -> None:
        asked = len(json.dumps(request.body["messages"])) // 4 + int(request.body.get("max_completion_tokens") or 0)
        if asked > tokens:
            request.send({"error": {"message": says.format(tokens, asked), "code": "context_length_exceeded"}}, 400)
        else:
            request.good()

    return way


def _refuses(name: str) -> Way:
    def way(request: Request) -> None:
        if name in request.body:
            request.send({"error": {"message": f"Unrecognized request argument supplied: {name}"}}, 400)
        else:
            request.send(request.whole()) if name == "stream" else request.good()

    return way


def _usage(**usage: Any) -> Way:
    return lambda request: request.send(request.whole(usage=usage or None))


def _status(status: int, **headers: str) -> Way:
    return lambda request: request.send({"error": {"message": "not now"}}, status, **headers)


def _length(request: Request) -> None:
    request.head(200, {"Content-Type": "application/json", "Content-Length": "100000"})
    request.handler.wfile.write(json.dumps(request.whole()).encode())


def _header_trickle(request: Request) -> None:
    request.handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    request.trickle(b"X-Wait: 1\r\n")


def _body_trickle(request: Request) -> None:
    request.head(200, {"Content-Type": "application/json", "Connection": "close"})
    request.trickle(b" ")


def _comment_trickle(request: Request) -> None:
    request.head(200, {"Content-Type": "text/event-stream", "Connection": "close"})
    request.trickle(b": keep-alive\n\n")


def _stays_open(request: Request) -> None:
    end = {"model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": USAGE}
    request.stream(*request.deltas(), end)
    request.handler.wfile.flush()
    request.hang()


def _hang_in_the_middle(request: Request) -> None:
    request.stream(*request.deltas()[:2], done=False)
    request.hang()


def _cut_in_the_middle(request: Request) -> None:
    request.stream(*request.deltas()[:2], done=False)


def _tool(request: Request) -> None:
    call = {"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    request.send(request.whole(message={"content": None, "tool_calls": [call]}))


def _surrogate(request: Request) -> None:
    request.send(json.dumps(request.whole(message={"content": request.text() + " \ud800"})))


def _garbage(request: Request) -> None:
    request.handler.wfile.write(b"\x00\xff\xfe not HTTP at all\r\n\r\n")


def _megabyte(request: Request) -> None:
    request.send(request.whole(message={"content": "a" * 2**20}))


def _parts(request: Request) -> None:
    text = request.text()
    half = len(text) // 2
    parts = [{"type": "text", "text": text[:half]}, {"type": "text", "text": text[half:]}]
    request.send(request.whole(message={"content": parts}))


def _slow(request: Request) -> None:
    time.sleep(0.05)
    request.good()


def _gzip(request: Request) -> None:
    request.send(b"this is not gzip", Content_Encoding="gzip")


def _both(request: Request) -> None:
    choices = [{"index": i, "finish_reason": "stop", "message": {"content": request.text()}} for i in (1, 0)]
    request.send(request.whole(choices=choices))


WAYS: dict[str, Way] = {
    "good": lambda request: request.good(),
    "whole though a stream was asked for": lambda request: request.send(request.whole()),
    "content in parts": _parts,
    "empty": lambda request: request.send(request.whole(message={"content": ""})),
    "null content": lambda request: request.send(request.whole(message={"content": None})),
    "no message": lambda request: request.send(request.whole(choice={"message": None})),
    "no choices": lambda request: request.send(request.whole(choices=[])),
    "choices is a text": lambda request: request.send(request.whole(choices="?")),
    "choices of numbers": lambda request: request.send(request.whole(choices=[1, None, "x"])),
    "two choices": _both,
    "refusal": lambda request: request.send(request.whole(message={"content": None, "refusal": "No. \udc00"})),
    "content filter": lambda request: request.send(request.whole(choice={"finish_reason": "content_filter"})),
    "tool call": _tool,
    "used up its tokens": lambda request: request.send(
        request.whole(message={"content": ""}, choice={"finish_reason": "length"})
    ),
    "lone surrogate": _surrogate,
    "NUL in the text": lambda request: request.send(request.whole(message={"content": "\0" + request.text()})),
    "a megabyte of one letter": _megabyte,
    "no usage": _usage(),
    "negative usage": _usage(prompt_tokens=-5000, completion_tokens=-100),
    "usage of texts": _usage(prompt_tokens="many", completion_tokens="few"),
    "usage beyond all bounds": _usage(prompt_tokens=10**30, completion_tokens=1),
    "usage of nothing": _usage(prompt_tokens=0, completion_tokens=0),
    "negative dollars": lambda request: request.send(request.whole(usage={**USAGE, "cost": -5.0})),
    "not a number of dollars": lambda request: request.send(
        json.dumps(request.whole(usage={**USAGE, "cost": float("nan")}))
    ),
    "HTML": lambda request: request.send("<html>Log in</html>"),
    "an empty body": lambda request: request.send(b""),
    "JSON null": lambda request: request.send("null"),
    "a JSON list": lambda request: request.send("[]"),
    "deep JSON": lambda request: request.send("[" * 100_000),
    "half of a JSON body": lambda request: request.send(json.dumps(request.whole())[:200]),
    "no UTF-8": lambda request: request.send(b'{"choices": [{"message": {"content": "\xff\xfe"}}]}'),
    "an error in the body": lambda request: request.send({"error": {"message": "overloaded", "code": 503}}),
    "an error as a text": lambda request: request.send({"error": "overloaded"}),
    "an error in the stream": lambda request: request.stream(*request.deltas()[:1], {"error": {"message": "sorry"}}),
    "broken events": lambda request: request.stream("data: {\n\n", "event: x\n\n", *request.deltas(), "data: }\n\n"),
    "a stream without its end": _cut_in_the_middle,
    "a stream that falls silent": _hang_in_the_middle,
    "a stream that stays open": _stays_open,
    "a stream of comments": _comment_trickle,
    "headers that trickle": _header_trickle,
    "a body that trickles": _body_trickle,
    "a hang": lambda request: request.hang(),
    "a cut connection": lambda request: request.cut(),
    "cut once": _first(lambda request: request.cut()),
    "no HTTP": _garbage,
    "a shorter body than promised": _length,
    "no gzip": _gzip,
    "a redirect to itself": lambda request: request.send("", 307, Location="/v1/chat/completions"),
    "a redirect elsewhere": lambda request: request.send("", 302, Location="http://127.0.0.1:9/"),
    "204": lambda request: request.head(204, {}),
    "400": _status(400),
    "401": _status(401),
    "402": _status(402),
    "403": _status(403),
    "404": _status(404),
    "408": _status(408),
    "413": _status(413),
    "418": _status(418),
    "500": _status(500),
    "500 once": _first(_status(500)),
    "502 in HTML": lambda request: request.send("<html>Bad gateway</html>", 502),
    "503 for an hour": _status(503, Retry_After="3600"),
    "429 at once": _status(429, Retry_After="0"),
    "429 once": _first(_status(429, Retry_After="0.05")),
    "429 until a date": _status(429, Retry_After="Wed, 21 Oct 2099 07:28:00 GMT"),
    "429 with nonsense": _status(429, Retry_After="soon"),
    "429, negative": _status(429, Retry_After="-7"),
    "599": _status(599),
    "no stream_options": _refuses("stream_options"),
    "no stream": _refuses("stream"),
    "the older limit": _refuses("max_completion_tokens"),
    "8k window": _window(8192, "This model's maximum context length is {} tokens. However, you requested {} tokens."),
    "4k window": _window(4096, "Input too long: the context window is {} tokens, {} were given."),
    "a window that it keeps to itself": _window(8000, "prompt is too long"),
    "slow": _slow,
}
