"""Any endpoint that speaks the chat-completions protocol, through the ``openai`` package.

``OPENAI_API_KEY`` and ``OPENAI_BASE_URL`` say as whom and where; ``--model``, or else ``MSBENCH_MODEL``, which model.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msbench.conversation import Limits, Message, Reply
from msbench.errors import ProviderUnavailable, ReplyError
from msbench.providers import Provider

if TYPE_CHECKING:
    from openai import OpenAI

DEFAULT_MODEL = "gpt-5"
"""The model at OpenAI's own endpoint, for whoever names none. Elsewhere it is the first that the endpoint lists."""

Price = tuple[float, float]
_OPENAI = "api.openai.com"
_LIST_S = 30.0  # an endpoint that can't list its models in this time won't answer a prompt either
_NO_KEY = "none"


class OpenAIProvider(Provider):
    """See the module's docstring. The ``openai`` package retries 429 and server errors with growing pauses."""

    name = "openai"

    def __init__(self, client: OpenAI, model: str, timeout_s: float, price: Price | None) -> None:
        self.model = model
        self._client = client
        self._timeout_s = timeout_s
        self._price = price
        self._limit_name = "max_completion_tokens"

    def complete(self, agent: str, messages: Sequence[Message], limits: Limits) -> Reply:
        """One completion; see :meth:`msbench.providers.Provider.complete`."""
        answer = self._ask([{"role": m.role, "content": m.content} for m in messages], limits)
        if not isinstance(answer, dict) or not isinstance(answer.get("choices"), list):
            raise ProviderUnavailable(f"{self._where()} did not answer with a chat completion: check OPENAI_BASE_URL.")
        text = self._text(_object(next(iter(answer["choices"]), None)))
        usage = _object(answer.get("usage"))
        prompt, completion = (_count(usage.get(f"{what}_tokens")) for what in ("prompt", "completion"))
        cost = self.price(prompt, completion) if prompt is not None and completion is not None else None
        return Reply(text, str(answer.get("model") or self.model), prompt, completion, cost)

    def _text(self, choice: dict[str, Any]) -> str:
        """The text of an answer that has one."""
        message, finish = _object(choice.get("message")), choice.get("finish_reason")
        if message.get("refusal") or finish == "content_filter":
            reason = message.get("refusal") or "its content filter stopped it"
            raise ReplyError(f"{self.model} refused: {reason}", "refused")
        text = message.get("content")
        if isinstance(text, str) and text.strip():
            return text
        if finish == "length":
            raise ReplyError(f"{self.model} used up its tokens before it answered: allow it more.", "truncated")
        raise ReplyError(f"{self.model} answered with nothing.", "empty")

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """By the prices that were given, a million tokens."""
        if self._price is None:
            return None
        return (prompt_tokens * self._price[0] + completion_tokens * self._price[1]) / 1e6

    def _ask(self, messages: list[dict[str, str]], limits: Limits) -> Any:
        import openai

        timeout = min(limits.timeout_s or self._timeout_s, self._timeout_s)
        request: dict[str, Any] = {"model": self.model, "messages": messages, "timeout": timeout}
        if limits.max_tokens is not None:
            request[self._limit_name] = limits.max_tokens
        try:
            raw = self._client.chat.completions.with_raw_response.create(**request)
            return json.loads(raw.http_response.text)
        except openai.AuthenticationError as error:
            raise ProviderUnavailable(f"{self._where()} refused the key: check OPENAI_API_KEY.") from error
        except openai.NotFoundError as error:
            raise ProviderUnavailable(
                f"{self._where()} has no model {self.model!r}, or is no such endpoint: {_said(error)}"
            ) from error
        except openai.RateLimitError as error:
            raise ProviderUnavailable(f"{self._where()} is overloaded, or a quota is spent: {_said(error)}") from error
        except openai.APITimeoutError as error:
            raise ProviderUnavailable(f"{self._where()} did not answer within {timeout:.0f} s.") from error
        except openai.APIConnectionError as error:
            raise ProviderUnavailable(f"{self._where()} can't be reached: {error.__cause__ or error}") from error
        except openai.APIStatusError as error:
            if error.status_code in (400, 422) and self._other_limit_name(str(error)):
                return self._ask(messages, limits)
            raise ProviderUnavailable(f"{self._where()} answered HTTP {error.status_code}: {_said(error)}") from error
        except ValueError:
            return None  # not even JSON
        except openai.OpenAIError as error:
            raise ProviderUnavailable(f"{self._where()} can't be asked: {error}") from error

    def _other_limit_name(self, message: str) -> bool:
        """Older endpoints know the token limit as ``max_tokens``: whether it was that, and is now asked for so."""
        if self._limit_name == "max_completion_tokens" and self._limit_name in message:
            self._limit_name = "max_tokens"
            return True
        return False

    def _where(self) -> str:
        return str(self._client.base_url).rstrip("/")


def create(
    *,
    model: str = "",
    base_url: str = "",
    price: Price | None = None,
    timeout_s: float = 600.0,
    retries: int = 4,
    **_: Any,
) -> OpenAIProvider:
    """The provider.

    Args:
        model: its name at the endpoint; without one ``MSBENCH_MODEL``, else ``DEFAULT_MODEL`` at OpenAI's own endpoint,
            else the first model that the endpoint lists.
        price: dollars a million prompt tokens, and a million completion tokens.

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
    from openai import OpenAI

    client = OpenAI(api_key=key or _NO_KEY, base_url=url or None, timeout=timeout_s, max_retries=retries)
    model = model or os.environ.get("MSBENCH_MODEL", "")
    return OpenAIProvider(client, model or _default_model(client), timeout_s, price)


def _default_model(client: OpenAI) -> str:
    if client.base_url.host == _OPENAI:
        return DEFAULT_MODEL
    import openai

    where = str(client.base_url).rstrip("/")
    try:
        raw = client.with_options(timeout=_LIST_S).models.with_raw_response.list()
        listed = _object(json.loads(raw.http_response.text)).get("data")
    except openai.APIConnectionError as error:
        raise ProviderUnavailable(f"{where} can't be reached: {error.__cause__ or error}") from error
    except (openai.OpenAIError, ValueError) as error:
        raise ProviderUnavailable(f"{where} does not list its models: name one with --model. {_said(error)}") from error
    names = [
        name for one in (listed if isinstance(listed, list) else []) if isinstance(name := _object(one).get("id"), str)
    ]
    if not names:
        raise ProviderUnavailable(f"{where} lists no model: name one with --model.")
    return names[0]


def _said(error: Exception) -> str:
    return str(getattr(error, "message", error))[:500]


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
