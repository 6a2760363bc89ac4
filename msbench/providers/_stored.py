"""Answers as they are stored with their calls."""

from __future__ import annotations

from msbench.conversation import Reply
from msbench.errors import ReplyError
from msbench.store.tables import CallRow, MessageRow


def stored_reply(call: CallRow, message: MessageRow) -> Reply:
    """The answer of a stored call.

    Raises:
        ReplyError: it was an answer that held nothing.
    """
    reply = Reply("", call.model, call.prompt_tokens, call.completion_tokens)
    if message.role == "error":
        kind, _, said = message.content.partition(": ")
        raise ReplyError(said, kind, reply)
    return Reply(message.content, call.model, call.prompt_tokens, call.completion_tokens)
