"""The chat-completions protocol, against a server on loopback."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from msbench import providers
from msbench.conversation import Limits, Message
from msbench.errors import ProviderUnavailable, ReplyError
from msbench.providers._trim import trimmed
from msbench.providers.openai import DEFAULT_MODEL

ASKED = [Message("system", "You are an expert."), Message("user", "Write it.")]
Answer = Callable[[dict[str, Any]], tuple[int, Any]]


def completion(content: str | None, finish: str = "stop", **message: Any) -> dict[str, Any]:
    return {
        "id": "c", "object": "chat.completion", "created": 1, "model": "test-model-2026",
        "choices": [{
            "index": 0, "finish_reason": finish, "logprobs": None,
            "message": {"role": "assistant", "content": content, **message},
        }],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }  # fmt: skip


class Endpoint:
    """Answers each request by the next function of ``answers``; the last one answers all further requests."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[dict[str, Any]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "{}")
                endpoint.requests.append({**request, "key": self.headers["Authorization"], "path": self.path})
                answer = endpoint.answers.pop(0) if len(endpoint.answers) > 1 else endpoint.answers[0]
                status, body = answer(request)
                raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(raw)))
                    self.send_header("retry-after-ms", "10")
                    self.end_headers()
                    self.wfile.write(raw)
                except (BrokenPipeError, ConnectionResetError):
                    pass

            do_GET = do_POST

            def log_message(self, format: str, *args: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    endpoint = Endpoint()
    yield endpoint
    endpoint.close()


def provider(endpoint: Endpoint, **options: Any) -> providers.Provider:
    return providers.pick("openai", **{"model": "test-model", "base_url": endpoint.url, "retries": 2, **options})


def test_a_good_answer(endpoint: Endpoint) -> None:
    endpoint.answers = [lambda _: (200, completion("Here it is."))]
    reply = provider(endpoint, price=(2.0, 10.0)).complete("coder", ASKED, Limits(max_tokens=500))
    assert (reply.text, reply.model) == ("Here it is.", "test-model-2026")
    assert (reply.prompt_tokens, reply.completion_tokens) == (100, 20)
    assert reply.cost_usd == pytest.approx((100 * 2 + 20 * 10) / 1e6)
    request = endpoint.requests[0]
    assert request["model"] == "test-model" and request["key"] == "Bearer sk-test"
    assert request["messages"] == [{"role": m.role, "content": m.content} for m in ASKED]
    assert request["max_completion_tokens"] == 500 and request["path"] == "/v1/chat/completions"


def test_without_prices_the_cost_is_unknown(endpoint: Endpoint) -> None:
    endpoint.answers = [lambda _: (200, completion("x"))]
    assert provider(endpoint).complete("coder", ASKED, Limits()).cost_usd is None
    assert "max_completion_tokens" not in endpoint.requests[0]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_overload_and_server_errors_are_retried(endpoint: Endpoint, status: int) -> None:
    endpoint.answers = [lambda _: (status, {"error": {"message": "later"}}), lambda _: (200, completion("now"))]
    assert provider(endpoint).complete("coder", ASKED, Limits()).text == "now"
    assert len(endpoint.requests) == 2


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (429, "quota"), (500, "HTTP 500: .*out of order"), (401, "OPENAI_API_KEY"), (404, "no model 'test-model'"),
        (400, "HTTP 400: .*out of order"),
    ],
)  # fmt: skip
def test_lasting_errors_say_what_to_do(endpoint: Endpoint, status: int, says: str) -> None:
    endpoint.answers = [lambda _: (status, {"error": {"message": "out of order"}})]
    with pytest.raises(ProviderUnavailable, match=says):
        provider(endpoint).complete("coder", ASKED, Limits())
    assert len(endpoint.requests) == (3 if status in (429, 500) else 1)


def test_a_hang_is_a_timeout(endpoint: Endpoint) -> None:
    given_up = threading.Event()

    def hang(request: dict[str, Any]) -> tuple[int, Any]:
        given_up.wait(30)
        return 200, completion("too late")

    endpoint.answers = [hang]
    with pytest.raises(ProviderUnavailable, match=r"did not answer (within|in time)"):
        provider(endpoint, timeout_s=30, retries=0).complete("coder", ASKED, Limits(timeout_s=0.3))
    given_up.set()


def test_older_endpoints_get_the_limit_by_its_older_name(endpoint: Endpoint) -> None:
    def old(request: dict[str, Any]) -> tuple[int, Any]:
        if "max_completion_tokens" in request:
            return 400, {"error": {"message": "Unrecognized request argument: max_completion_tokens"}}
        return 200, completion("fine")

    endpoint.answers = [old]
    asked = provider(endpoint)
    assert asked.complete("coder", ASKED, Limits(max_tokens=7)).text == "fine"
    assert asked.complete("coder", ASKED, Limits(max_tokens=7)).text == "fine"
    assert [r.get("max_tokens") for r in endpoint.requests] == [None, 7, 7]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (completion(None, "stop", refusal="I'd rather not."), "refused"),
        (completion("", "content_filter"), "refused"),
        (completion("", "length"), "truncated"),
        (completion("  \n"), "empty"),
        (completion(None), "empty"),
        ({**completion("x"), "choices": []}, "empty"),
    ],
)
def test_answers_that_hold_nothing(endpoint: Endpoint, body: dict[str, Any], kind: str) -> None:
    endpoint.answers = [lambda _: (200, body)]
    with pytest.raises(ReplyError) as caught:
        provider(endpoint).complete("coder", ASKED, Limits())
    assert caught.value.kind == kind


def test_a_truncated_answer_is_handed_on(endpoint: Endpoint) -> None:
    """Whether the code in it is whole is for the extraction to say."""
    endpoint.answers = [lambda _: (200, completion("```cuda\nint x", "length"))]
    assert provider(endpoint).complete("coder", ASKED, Limits()).text == "```cuda\nint x"


@pytest.mark.parametrize("body", ["<html>Log in</html>", "null", "[]", '"text"', "{}", '{"choices": "?"}'])
def test_what_is_no_completion_at_all(endpoint: Endpoint, body: str) -> None:
    endpoint.answers = [lambda _: (200, body)]
    with pytest.raises((ProviderUnavailable, ReplyError)):
        provider(endpoint, retries=0).complete("coder", ASKED, Limits())


def test_no_usage_is_unknown_not_zero(endpoint: Endpoint) -> None:
    endpoint.answers = [lambda _: (200, {**completion("x"), "usage": None})]
    reply = provider(endpoint, price=(1.0, 1.0)).complete("coder", ASKED, Limits())
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cost_usd) == (None, None, None)


def test_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ProviderUnavailable, match="can't be reached"):
        providers.pick("openai", model="m", retries=0).complete("coder", ASKED, Limits())


def test_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ProviderUnavailable, match="recorded"):
        providers.pick("auto")
    with pytest.raises(ProviderUnavailable, match="OPENAI_API_KEY"):
        providers.pick("openai", model="m")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    assert providers.pick("auto").name == "openai"


def test_which_model_it_asks(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MSBENCH_MODEL", raising=False)
    assert providers.pick("openai").model == DEFAULT_MODEL
    endpoint.answers = [lambda _: (200, {"object": "list", "data": [{"id": "local-a"}, {"id": "local-b"}]})]
    assert provider(endpoint, model="").model == "local-a"
    monkeypatch.setenv("MSBENCH_MODEL", "mine")
    assert provider(endpoint, model="").model == "mine"
    assert provider(endpoint, model="named").model == "named"


@pytest.mark.parametrize("answer", [(404, {"error": {"message": "no such path"}}), (200, "hello"), (200, {"data": []})])
def test_an_endpoint_that_lists_no_model(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, Any]
) -> None:
    monkeypatch.delenv("MSBENCH_MODEL", raising=False)
    endpoint.answers = [lambda _: answer]
    with pytest.raises(ProviderUnavailable, match="--model"):
        provider(endpoint, model="")


def response(*output: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A body of the responses protocol."""
    usage = {
        "input_tokens": 100, "output_tokens": 20,
        "input_tokens_details": {"cached_tokens": 64}, "output_tokens_details": {"reasoning_tokens": 5},
    }  # fmt: skip
    return {
        "id": "r",
        "object": "response",
        "model": "m-1",
        "status": "completed",
        "output": list(output),
        "usage": usage,
        **fields,
    }


SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Here "}, {"type": "output_text", "text": "it is."}]}  # fmt: skip
THOUGHT = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hmm."}]}


@pytest.mark.parametrize("streamed", [False, True])
def test_the_responses_protocol(endpoint: Endpoint, streamed: bool) -> None:
    body: Any = response(THOUGHT, SAID)
    if streamed:
        events = [
            {"type": "response.output_text.delta", "delta": "Here "},
            {"type": "response.completed", "response": body},
        ]
        body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    endpoint.answers = [lambda _: (200, body)]
    options = {"api": "responses", "reasoning": {"effort": "high"}}
    reply = provider(endpoint, options=options).complete("coder", ASKED, Limits(max_tokens=500))
    assert (reply.text, reply.reasoning, reply.model) == ("Here it is.", "Hmm.", "m-1")
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens, reply.reasoning_tokens) == (
        100,
        20,
        64,
        5,
    )
    request = endpoint.requests[0]
    assert (request["path"], request["max_output_tokens"]) == ("/v1/responses", 500)
    assert request["input"] == [{"role": m.role, "content": m.content} for m in ASKED]
    assert request["reasoning"] == {"effort": "high"} and "api" not in request


def test_an_endpoint_without_the_responses_protocol_is_asked_by_the_other(endpoint: Endpoint) -> None:
    def way(request: dict[str, Any]) -> tuple[int, Any]:
        return (404, {"error": {"message": "no"}}) if "input" in request else (200, completion("x"))

    endpoint.answers = [way]
    asked = provider(endpoint, options={"api": "responses"})
    assert [asked.complete("coder", ASKED, Limits()).text for _ in range(2)] == ["x", "x"]
    assert [request["path"] for request in endpoint.requests] == ["/v1/responses", *["/v1/chat/completions"] * 2]


def test_each_agent_has_its_model_and_options_are_handed_on(endpoint: Endpoint) -> None:
    endpoint.answers = [lambda _: (200, completion("x"))]
    asked = provider(endpoint, model="planner=A,coder=B", options={"temperature": 0.5})
    for agent in ("planner", "coder", "debugger"):
        asked.complete(agent, ASKED, Limits())
    assert [request["model"] for request in endpoint.requests] == ["A", "B", "A"]
    assert all(request["temperature"] == 0.5 for request in endpoint.requests)
    assert asked.model == "planner=A,coder=B"


def test_listed_prices_are_taken_where_none_are_given(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is a package that need not be there; its version stands with the figure."""
    asked: list[dict[str, Any]] = []

    def calc_price(usage: SimpleNamespace, **which: Any) -> SimpleNamespace:
        if which["model_ref"] != "known":
            raise LookupError
        asked.append({**vars(usage), **which})
        return SimpleNamespace(total_price=Decimal("0.25"))

    listed = SimpleNamespace(Usage=SimpleNamespace, calc_price=calc_price)
    monkeypatch.setitem(sys.modules, "genai_prices", listed)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "9.9" if name == "genai-prices" else "0")
    endpoint.answers = [lambda _: (200, completion("x"))]
    reply = provider(endpoint, model="known").complete("coder", ASKED, Limits())
    assert (reply.cost_usd, reply.priced_by) == (0.25, "genai-prices 9.9")
    assert (asked[0]["input_tokens"], asked[0]["output_tokens"], asked[0]["cache_read_tokens"]) == (100, 20, 0)
    assert provider(endpoint, model="other").price(1, 1) is None
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert provider(endpoint, model="known").price(1, 1) is None


def test_a_prompt_that_does_not_fit_loses_what_can_be_spared(endpoint: Endpoint) -> None:
    long = [
        Message("system", "You."),
        Message("user", "# Plan\n\ndo it\n\n# Helpers\n\n" + "h" * 30_000 + "\n\n# Answer\n\nso"),
    ]

    def small(request: dict[str, Any]) -> tuple[int, Any]:
        if len(json.dumps(request["messages"])) > 4096 * 3:
            return 400, {"error": {"message": "This model's maximum context length is 4096 tokens."}}
        return 200, completion("x")

    endpoint.answers = [small]
    assert provider(endpoint).complete("coder", long, Limits()).text == "x"
    sent = endpoint.requests[-1]["messages"][-1]["content"]
    assert sent == "# Plan\n\ndo it\n\n# Answer\n\nso"
    assert trimmed([Message("user", "x" * 9000)], 3000)[0].content.count("left out") >= 1
