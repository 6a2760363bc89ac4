"""Any endpoint that speaks the chat-completions or the responses protocol, through the ``openai`` package.

``OPENAI_API_KEY`` and ``OPENAI_BASE_URL`` say as whom and where; ``--model``, or else ``MSBENCH_MODEL``, which model.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from msbench.conversation import Limits, Message, Reply, encodable
from msbench.errors import ProviderUnavailable, ReplyError
from msbench.providers import Provider
from msbench.providers._prices import Price, Prices
from msbench.providers._request import LASTING, Problem, fetch, pause
from msbench.providers._trim import size, trimmed
from msbench.providers._wire import Answer, read, usage

if TYPE_CHECKING:
    from openai import OpenAI

DEFAULT_MODEL = "gpt-5"
"""The default model at OpenAI's own endpoint. Elsewhere it is the first that the endpoint lists."""

_OPENAI = "api.openai.com"
_LIST_S = 30.0  # an endpoint that can't list its models in this time won't answer a prompt either
_NO_KEY = "none"
_BYTES_A_TOKEN = 3
_FEWEST_TOKENS = 1024
_ADAPTIONS = 8
_CONTEXT = re.compile(r"context|window|too long|too large|too many tokens|max_model_len|maximum.{0,20}(?:length|tokens)", re.I)  # fmt: skip
_WINDOW = re.compile(
    r"(?:context|window|max_model_len|maximum|limit|at most|up to)\D{0,60}?(\d[\d,_]{2,9})(?!\d)", re.IGNORECASE
)


class OpenAIProvider(Provider):
    """See the module's docstring. What fails for the moment is asked again here, and nowhere else."""

    name = "openai"

    def __init__(
        self, client: OpenAI, model: str, models: Mapping[str, str], price: Price | None, timeout_s: float, idle_s: float,
        retries: int, patience_s: float, options: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.model = model
        self._client = client
        self._models = models
        self._price = price
        self._timeout_s = timeout_s
        self._idle_s = idle_s
        self._retries = retries
        self._patience_s = patience_s
        self._options = {name: value for name, value in options.items() if name != "api"}
        at_openai = client.base_url.host == _OPENAI
        self._responses = options.get("api", "responses" if at_openai else "chat") == "responses"
        self._limit_name = "max_completion_tokens"
        self._stream = True
        self._stream_options = True
        self._window: int | None = None

    def complete(self, agent: str, messages: Sequence[Message], limits: Limits) -> Reply:
        """One completion; see :meth:`msbench.providers.Provider.complete`."""
        model = self._models.get(agent, self._models.get("", self.model))
        deadline = time.monotonic() + limits.timeout_s if limits.timeout_s is not None else None
        asked, answer_tokens = self._fit(messages, limits.max_tokens)
        failures = adaptions = 0
        waited = 0.0
        while True:
            try:
                return self._once(model, asked, answer_tokens, deadline, limits)
            except Problem as problem:
                where = f"{self._where()} {problem}"
                adapted = self._adapted(problem, asked, answer_tokens) if adaptions < _ADAPTIONS else None
                nothing = Reply("", model, 0, 0, 0.0, priced_by="refused") if 400 <= problem.status < 500 else None
                spent = _spent(problem, model)
                limits.attempts.settle(nothing or spent, encodable(where), sent=problem.sent)
                if adapted is not None:
                    adaptions += 1
                    asked, answer_tokens = adapted
                else:
                    failures += 1
                    wait = self._wait(problem, failures, waited, deadline)
                    if wait is None:
                        raise self._unavailable(problem, model, where) from problem
                    pause(wait)
                    waited += wait
                allowed = limits.attempts.again(answer_tokens)
                answer_tokens = allowed if answer_tokens is None or allowed is None else min(answer_tokens, allowed)

    def _once(
        self, model: str, messages: Sequence[Message], answer_tokens: int | None, deadline: float | None, limits: Limits
    ) -> Reply:
        total = self._timeout_s if deadline is None else min(self._timeout_s, deadline - time.monotonic())
        raw = fetch(lambda idle: self._open(model, messages, answer_tokens, idle), total, self._idle_s)
        answer = read(raw)
        if answer is None:
            start = encodable(raw[:80].decode("utf-8", "replace"))
            raise Problem(
                f"did not answer with a chat completion but with {start!r}: check OPENAI_BASE_URL", status=LASTING
            )
        if answer.failed is not None:
            code = answer.failed.get("code")
            status = code if isinstance(code, int) and not isinstance(code, bool) else 500
            raise Problem(f"answered with an error: {_short(answer.failed.get('message'))}", status=status, body=raw)
        if not answer.ended:
            raise Problem("broke off in the middle of its answer", body=raw)
        return self._reply(model, answer)

    def _reply(self, model: str, answer: Answer) -> Reply:
        counted = usage(answer.usage)
        cost, by = counted.cost_usd, self._where()
        if cost is None and counted.prompt is not None and counted.completion is not None:
            cost, by = self._prices(model).cost(counted.prompt, counted.completion, counted.cached or 0)
        text = "".join(answer.text)
        reply = Reply(
            text, answer.model or model, counted.prompt, counted.completion, cost, counted.cached, counted.reasoning,
            by if cost is not None else "", "".join(answer.reasoning),
        )  # fmt: skip
        refusal = "".join(answer.refusal)
        if refusal or answer.finish == "content_filter":
            raise ReplyError(f"{model} refused: {refusal or 'its content filter stopped it'}", "refused", reply)
        if text.strip():
            return reply
        if answer.tool:
            raise ReplyError(f"{model} called a tool, and was offered none.", "tool_call", reply)
        if answer.finish == "length":
            raise ReplyError(f"{model} used up its tokens before it answered: allow it more.", "truncated", reply)
        raise ReplyError(f"{model} answered with nothing.", "empty", reply)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """By the prices that were given or are listed; of several models the dearest."""
        costs = [self._prices(name).cost(prompt_tokens, completion_tokens)[0] for name in {self.model, *self._models.values()} if "=" not in name]  # fmt: skip
        known = [cost for cost in costs if cost is not None]
        return max(known) if costs and len(known) == len(costs) else None

    def _prices(self, model: str) -> Prices:
        return Prices(model, str(self._client.base_url.host), self._price)

    # ------------------------------------------------------------------ one request

    def _open(
        self, model: str, messages: Sequence[Message], answer_tokens: int | None, idle_s: float
    ) -> AbstractContextManager[Any]:
        """The response, while it comes."""
        import openai

        turns = [{"role": m.role, "content": encodable(m.content)} for m in messages]
        request: dict[str, Any] = {"model": model, "timeout": openai.Timeout(idle_s, connect=min(idle_s, 30.0))}
        body: dict[str, Any] = dict(self._options)
        if self._stream:
            request["stream"] = True
        limit_name = "max_output_tokens" if self._responses else self._limit_name
        if answer_tokens is not None:
            request[limit_name] = answer_tokens
        if self._stream and self._stream_options and not self._responses:
            request["stream_options"] = {"include_usage": True}
        create: Any
        if self._responses:
            create, request["input"] = self._client.responses.with_streaming_response.create, turns
        else:
            create, request["messages"] = self._client.chat.completions.with_streaming_response.create, turns
        return _Explained(create(**request, extra_body=body or None))

    def _fit(self, messages: Sequence[Message], answer_tokens: int | None) -> tuple[list[Message], int | None]:
        """The messages and the answer's length that the endpoint's window has room for, once that is known."""
        if self._window is None:
            return list(messages), answer_tokens
        room = self._window * 9 // 10
        for_answer = min(answer_tokens or room // 2, max(room // 2, _FEWEST_TOKENS))
        fitting = trimmed(messages, max(room - min(for_answer, room // 3), 256) * _BYTES_A_TOKEN)
        if answer_tokens is not None:
            answer_tokens = max(min(answer_tokens, room - size(fitting) // _BYTES_A_TOKEN), room // 4)
        return fitting, answer_tokens

    def _adapted(
        self, problem: Problem, messages: Sequence[Message], answer_tokens: int | None
    ) -> tuple[list[Message], int | None] | None:
        """What to ask instead, where the endpoint can't take the request as it is; None where that is not the matter."""
        said = str(problem)
        if problem.status == 404 and self._responses:
            self._responses = False
            return list(messages), answer_tokens
        if problem.status not in (400, 413, 422):
            return None
        if self._limit_name == "max_completion_tokens" and self._limit_name in said:
            self._limit_name = "max_tokens"  # as older endpoints know it
            return list(messages), answer_tokens
        if "stream_options" in said and self._stream_options:
            self._stream_options = False
            return list(messages), answer_tokens
        if "stream" in said and self._stream:
            self._stream = False
            return list(messages), answer_tokens
        if problem.status != 413 and not _CONTEXT.search(said):
            return None
        window = _window(said)
        known = self._window
        needed = size(messages) // _BYTES_A_TOKEN + (answer_tokens or 0)
        self._window = min(window or needed // 2, known * 3 // 4 if known else 2**40)
        fitting = self._fit(messages, answer_tokens)
        return fitting if fitting != (list(messages), answer_tokens) else None

    def _wait(self, problem: Problem, failures: int, waited: float, deadline: float | None) -> float | None:
        """Seconds until it is worth another request; None where it is not."""
        passing = problem.status in (408, 409, 425, 429) or problem.status >= 500 or problem.status == 0
        if not passing or failures > self._retries or "insufficient_quota" in str(problem):
            return None
        if problem.timed_out and deadline is not None and time.monotonic() >= deadline:
            return None
        wait = problem.wait_s if problem.wait_s is not None else min(0.5 * 2 ** (failures - 1), 30.0)
        if waited + wait > self._patience_s or (deadline is not None and time.monotonic() + wait >= deadline):
            return None
        return wait

    def _unavailable(self, problem: Problem, model: str, where: str) -> ProviderUnavailable:
        here, said = self._where(), str(problem)
        if problem.status in (401, 403):
            return ProviderUnavailable(f"{here} refused the key: check OPENAI_API_KEY.")
        if problem.status == 404:
            return ProviderUnavailable(f"{here} has no model {model!r}, or is the wrong endpoint: {said}")
        if problem.status == 429:
            later = f" It asks to come back in {problem.wait_s:.0f} s: see --patience." if problem.wait_s else ""
            return ProviderUnavailable(f"{here} is overloaded, or a quota is spent: {said}.{later}")
        return ProviderUnavailable(f"{where}.")

    def _where(self) -> str:
        return str(self._client.base_url).rstrip("/")


class _Explained(AbstractContextManager[Any]):
    """A response of the ``openai`` package, whose errors are problems."""

    def __init__(self, opened: AbstractContextManager[Any]) -> None:
        self._opened = opened

    def __enter__(self) -> Any:
        import openai

        try:
            return self._opened.__enter__()
        except openai.APITimeoutError as error:
            raise Problem("did not answer in time: it fell silent", timed_out=True) from error
        except openai.APIConnectionError as error:
            unsent = (
                "Connect" in type(error.__cause__).__name__ or "UnsupportedProtocol" in type(error.__cause__).__name__
            )
            raise Problem(f"can't be reached: {_short(error.__cause__ or error)}", sent=not unsent) from error
        except openai.APIStatusError as error:
            wait = _retry_after(error.response.headers)
            said = f"answered HTTP {error.status_code}: {_short(error.message)}"
            raise Problem(said, status=error.status_code, wait_s=wait) from error
        except openai.OpenAIError as error:
            raise Problem(f"can't be asked: {_short(error)}", sent=False, status=LASTING) from error
        except (ValueError, RuntimeError, OSError) as error:
            raise Problem(f"did not answer with HTTP: {_short(error)}") from error

    def __exit__(self, *details: Any) -> None:
        self._opened.__exit__(*details)


def create(
    *,
    model: str = "",
    base_url: str = "",
    price: Price | None = None,
    timeout_s: float = 1800.0,
    idle_s: float = 300.0,
    retries: int = 4,
    patience_s: float = 120.0,
    options: Mapping[str, Any] | None = None,
    **_: Any,
) -> OpenAIProvider:
    """The provider.

    Args:
        model: its name at the endpoint; without one ``MSBENCH_MODEL``, else ``DEFAULT_MODEL`` at OpenAI's own endpoint,
            else the first model that the endpoint lists. ``planner=A,coder=B`` names one for each agent.
        price: dollars a million prompt tokens, and a million completion tokens.
        timeout_s: until an answer is whole.
        idle_s: of silence in an answer.
        retries: of what fails for the moment.
        patience_s: waited between retries in all, also where the endpoint says how long (Retry-After).
        options: handed on with each request (temperature, reasoning_effort ...); ``api`` is ``chat`` or ``responses``.

    Raises:
        ProviderUnavailable: no key and no endpoint, or an endpoint that lists no model while none is named.
    """
    key = os.environ.get("OPENAI_API_KEY", "")
    url = base_url or os.environ.get("OPENAI_BASE_URL", "")
    if not key and not url:
        raise ProviderUnavailable(
            "No language model at hand: set OPENAI_API_KEY (and OPENAI_BASE_URL for an endpoint of your own), "
            "or answer yourself with --provider manual, or see a recorded run with --provider replay."
        )
    from openai import DefaultHttpxClient, OpenAI

    # A redirected request would be a second one that no ledger knows.
    http = DefaultHttpxClient(follow_redirects=False)
    client = OpenAI(api_key=key or _NO_KEY, base_url=url or None, max_retries=0, http_client=http)
    model = model or os.environ.get("MSBENCH_MODEL", "") or _default_model(client)
    return OpenAIProvider(
        client, model, _by_agent(model), price, timeout_s, idle_s, retries, patience_s, options or {}
    )  # fmt: skip


def _by_agent(model: str) -> dict[str, str]:
    """``planner=A,coder=B`` as a mapping; the first is also that of agents that are not named."""
    parts = [part.partition("=") for part in model.split(",")]
    if not all(agent.strip().isidentifier() and name.strip() for agent, _, name in parts):
        return {}
    named = {agent.strip(): name.strip() for agent, _, name in parts}
    return {"": next(iter(named.values())), **named}


def _default_model(client: OpenAI) -> str:
    if client.base_url.host == _OPENAI:
        return DEFAULT_MODEL
    import openai

    where = str(client.base_url).rstrip("/")
    try:
        raw = client.with_options(timeout=_LIST_S).models.with_raw_response.list()
        listed = json.loads(raw.http_response.text)
    except openai.APIConnectionError as error:
        raise ProviderUnavailable(f"{where} can't be reached: {error.__cause__ or error}") from error
    except (openai.OpenAIError, ValueError, RecursionError) as error:
        raise ProviderUnavailable(
            f"{where} does not list its models: name one with --model. {_short(error)}"
        ) from error
    found = listed.get("data") if isinstance(listed, dict) else None
    entries = [one for one in (found if isinstance(found, list) else []) if isinstance(one, dict)]
    names = [one["id"] for one in entries if isinstance(one.get("id"), str) and one["id"]]
    if not names:
        raise ProviderUnavailable(f"{where} lists no model: name one with --model.")
    return encodable(names[0])


def _spent(problem: Problem, model: str) -> Reply | None:
    """The usage that a broken answer brought all the same."""
    answer = read(problem.body) if problem.body else None
    if answer is None or not answer.usage:
        return None
    counted = usage(answer.usage)
    return Reply("", model, counted.prompt, counted.completion, counted.cost_usd, counted.cached, counted.reasoning)


def _window(said: str) -> int | None:
    """The context window that an endpoint named when it refused a prompt."""
    sizes = [int(re.sub(r"\D", "", number)) for number in _WINDOW.findall(said)]
    usable = [number for number in sizes if 256 <= number <= 2**24]
    return min(usable) if usable else None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that an endpoint asks to wait: a number, or a date (RFC 9110, section 10.2.3)."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name, "")
        try:
            seconds = float(value) * unit
        except ValueError:
            from email.utils import parsedate_to_datetime

            try:
                seconds = parsedate_to_datetime(value).timestamp() - time.time()
            except (ValueError, TypeError, OverflowError):
                continue
        if 0 <= seconds < 1e9:
            return seconds
    return None


def _short(what: Any) -> str:
    return encodable(str(what))[:500]
