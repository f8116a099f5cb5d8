"""Replies of a chat model with token counts. A failed question is a reply, too, so that it does not stop a run."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from graphrerank.text.characters import whole_characters
from graphrerank.utils.checks import UserError

# Outcomes of a question. Rejected and failed questions say nothing about the model, so the next run asks them again.
ANSWERED = "answered"
CUT_OFF = "cut"  # The token limit truncated the answer, which is used as it is.
REFUSED = "refused"  # The model refused to answer, or a content filter removed the answer.
REJECTED = "rejected"  # The endpoint rejected the request, for example because it was too long.
FAILED = "failed"  # No attempt gave a usable answer (no server, timeout, error, or malformed response).
UNUSABLE = "unusable"  # The answer does not have the form that the prompt requires.
OUTCOMES = (ANSWERED, CUT_OFF, REFUSED, REJECTED, FAILED, UNUSABLE)
CACHED_OUTCOMES = frozenset({ANSWERED, CUT_OFF, REFUSED})


@dataclass(frozen=True)
class Reply:
    """Reply to one question.

    Attributes:
        text: Answer. Empty if the outcome is ``refused``, ``rejected``, ``failed`` or ``unusable``.
        outcome: One of :data:`OUTCOMES`.
        model: Name of the model that answered, as reported by the endpoint. It may differ from the requested one.
        input_tokens: Number of input tokens, as reported by the endpoint. None if it does not report them.
        output_tokens: Number of output tokens. None if the endpoint does not report them.
        attempts: Number of requests.
        problem: Cause of a rejection or failure, as reported by the endpoint.
    """

    text: str
    outcome: str
    model: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    attempts: int = 1
    problem: str = ""

    def __post_init__(self) -> None:
        for name in ("text", "model", "problem"):
            object.__setattr__(self, name, whole_characters(getattr(self, name)))

    @property
    def said(self) -> str | None:
        """Answer, which is blank if the model abstained, or None if there is no answer.

        A missing answer is neither correct nor an abstention.
        """
        is_answer = self.outcome == ANSWERED or (self.outcome == CUT_OFF and self.text.strip())
        return self.text if is_answer else None

    @property
    def has_come(self) -> bool:
        """Whether a model replied, so that its tokens are counted."""
        return self.outcome not in (REJECTED, FAILED)

    def to_bytes(self) -> bytes:
        """Return the reply in the form stored in caches."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> "Reply":
        """Restore a reply from the result of :meth:`to_bytes`.

        Args:
            content: Stored bytes.

        Returns:
            The reply.

        Raises:
            ValueError: If the bytes are not a stored reply.
        """
        try:
            return cls(**json.loads(content))
        except (ValueError, TypeError) as error:
            raise UserError(f"damaged reply in a cache ({error}): {content[:80]!r}") from error


class ReplyingModel(Protocol):
    """Protocol of chat models that report the outcome of each question."""

    @property
    def fingerprint(self) -> str:
        """Identifier that changes whenever the replies would change."""

    def replies(self, questions: Sequence[str], *, system: str | None) -> Iterator[tuple[int, Reply]]:
        """Ask each question in a separate conversation, and yield the replies as they arrive.

        Args:
            questions: ``n`` user messages.
            system: System message of each conversation. If None, there is none.

        Yields:
            Index of the question, and the reply.
        """


def read_reply(body: Mapping[str, Any]) -> Reply:
    """Parse a response of an OpenAI-compatible chat endpoint.

    Args:
        body: JSON content of the response.

    Returns:
        The reply.

    Raises:
        ValueError: If the answer is not a text.
        KeyError: If a required field is missing.
    """
    choice, usage = body["choices"][0], body.get("usage") or {}
    message, finish = choice["message"], choice.get("finish_reason")
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    read, written = (count if type(count) is int else None for count in counts)
    content, outcome = message.get("content"), CUT_OFF if finish == "length" else ANSWERED
    if message.get("refusal") or finish == "content_filter":
        content, outcome = "", REFUSED
    elif content is None and finish == "length":
        content = ""  # A reasoning model reached the token limit before its answer began.
    if not isinstance(content, str):
        raise UserError(f"the answer must be a text, got {content!r}")
    return Reply(content, outcome, str(body.get("model") or ""), read, written)
