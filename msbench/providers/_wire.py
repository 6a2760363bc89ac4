"""Reads what endpoints answer: a chat completion or a response, whole or as server-sent events, as they really come."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Answer:
    """What an answer held. ``ended``: it said that it was complete; ``failed``: an error that came in its place."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    model: str = ""
    finish: str = ""
    tool: bool = False
    ended: bool = False
    usage: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, Any] | None = None


def read(raw: bytes) -> Answer | None:
    """The answer in a body; None where it is none."""
    body = raw.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    events = [_json(body)] if body.startswith(("{", "[")) else list(_events(body))
    answer, known = Answer(), False
    for event in events:
        if isinstance(event, str):  # [DONE]
            answer.ended = True
        elif isinstance(event, dict) and _take(answer, event):
            known = True
    if body.startswith("{"):
        answer.ended = True
    return answer if known or answer.failed is not None else None


def _events(body: str) -> Iterator[Any]:
    """The data of server-sent events; one that is no JSON is left out."""
    for line in body.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if line.startswith("data:"):
            data = line[5:].strip()
            yield "[DONE]" if data == "[DONE]" else _json(data)


def _json(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None


def _take(answer: Answer, event: dict[str, Any]) -> bool:
    """Add an event, or a whole body, to an answer; whether it belongs to one."""
    if event.get("error"):
        answer.failed = event["error"] if isinstance(event["error"], dict) else {"message": str(event["error"])}
        return True
    if isinstance(event.get("model"), str):
        answer.model = event["model"]
    answer.usage |= _object(event.get("usage"))
    if isinstance(event.get("choices"), list):
        _choices(answer, event["choices"])
        return True
    if isinstance(event.get("output"), list):
        _response(answer, event)
        return True
    inner = event.get("response")
    if isinstance(inner, dict) and event.get("type") in (
        "response.completed", "response.incomplete", "response.failed",
    ):  # fmt: skip
        answer.ended = True
        return _take(answer, inner)
    return False


def _choices(answer: Answer, choices: list[Any]) -> None:
    """Of several choices the one that came first."""
    ours = [choice for choice in map(_object, choices) if choice.get("index", 0) in (0, None)] or [{}]
    for choice in ours[:1]:
        message = _object(choice.get("message")) or _object(choice.get("delta"))
        answer.text.append(_text(message.get("content")))
        answer.reasoning.append(_text(message.get("reasoning_content") or message.get("reasoning")))
        answer.refusal.append(_text(message.get("refusal")))
        answer.tool |= bool(message.get("tool_calls") or message.get("function_call"))
        if isinstance(choice.get("finish_reason"), str):
            answer.finish = choice["finish_reason"]
            answer.ended = True


def _response(answer: Answer, event: dict[str, Any]) -> None:
    """A body of the Responses API."""
    for item in map(_object, event["output"]):
        kind, content = item.get("type"), item.get("content")
        parts = [_object(part) for part in (content if isinstance(content, list) else [])]
        if kind == "message":
            answer.text += [_text(part.get("text")) for part in parts if part.get("type") == "output_text"]
            answer.refusal += [_text(part.get("refusal")) for part in parts if part.get("type") == "refusal"]
        elif kind == "reasoning":
            summary = item.get("summary")
            answer.reasoning += [_text(summary if isinstance(summary, list) else parts)]
        elif isinstance(kind, str) and kind.endswith("_call"):
            answer.tool = True
    reason = _object(event.get("incomplete_details")).get("reason")
    answer.finish = {"max_output_tokens": "length", "content_filter": "content_filter"}.get(str(reason), "stop")


def _text(value: Any) -> str:
    """Text, also where it comes in parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_text(_object(part).get("text") if isinstance(part, dict) else part) for part in value)
    return ""


@dataclass(frozen=True)
class Usage:
    """What an endpoint counted; None where it did not say, or said what can't be."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    reasoning: int | None = None
    cost_usd: float | None = None


def usage(found: dict[str, Any]) -> Usage:
    """The usage in an answer, by the names of either protocol."""

    def count(*names: str) -> int | None:
        return next((number for name in names if (number := _count(found.get(name))) is not None), None)

    def detail(of: tuple[str, str], name: str) -> int | None:
        return _count((_object(found.get(of[0])) or _object(found.get(of[1]))).get(name))

    prompt, completion = count("prompt_tokens", "input_tokens"), count("completion_tokens", "output_tokens")
    return Usage(
        prompt or None,  # no prompt has no tokens
        completion,
        detail(("prompt_tokens_details", "input_tokens_details"), "cached_tokens"),
        detail(("completion_tokens_details", "output_tokens_details"), "reasoning_tokens"),
        _amount(found.get("cost")),
    )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**40 else None


def _amount(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < 1e9 and math.isfinite(value) else None
