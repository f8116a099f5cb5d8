"""Replies of a chat model with what they took, of which none stops a run."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from graphrerank.text.characters import whole_characters
from graphrerank.utils.checks import UserError

# What became of a question. What is rejected or failed says nothing about the model: the next run asks again.
ANSWERED = "answered"
CUT_OFF = "cut"  # the limit of tokens ended the text, which counts as it is
REFUSED = "refused"  # the model would not answer, or a filter took the answer away
REJECTED = "rejected"  # the endpoint found the request at fault, as one that is too long
FAILED = "failed"  # no usable answer in all attempts: no server, too slow, an error, or rubbish
UNUSABLE = "unusable"  # a text that has not the form that its prompt asks for
OUTCOMES = (ANSWERED, CUT_OFF, REFUSED, REJECTED, FAILED, UNUSABLE)
CACHED_OUTCOMES = frozenset({ANSWERED, CUT_OFF, REFUSED})


@dataclass(frozen=True)
class Reply:
    """The reply to one question."""

    text: str  # empty if the outcome is `refused`, `rejected`, `failed` or `unusable`
    outcome: str  # one of :data:`OUTCOMES`
    model: str = ""  # name under which the endpoint answered; it may differ from the requested one
    input_tokens: int | None = None  # as the endpoint counts them; None if it does not
    output_tokens: int | None = None
    attempts: int = 1  # requests that it took
    problem: str = ""  # of what was rejected or failed, in the endpoint's words

    def __post_init__(self) -> None:
        for name in ("text", "model", "problem"):
            object.__setattr__(self, name, whole_characters(getattr(self, name)))

    @property
    def said(self) -> str | None:
        """The answer, blank where it abstains; None where there is none, which is neither right nor an abstention."""
        is_answer = self.outcome == ANSWERED or (self.outcome == CUT_OFF and self.text.strip())
        return self.text if is_answer else None

    @property
    def has_come(self) -> bool:
        """Whether a model replied, so that its tokens count."""
        return self.outcome not in (REJECTED, FAILED)

    def to_bytes(self) -> bytes:
        """Write the content of a cache."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> "Reply":
        """Read :meth:`to_bytes`; a ValueError if it is none."""
        try:
            return cls(**json.loads(content))
        except (ValueError, TypeError) as error:
            raise UserError(f"damaged reply in a cache ({error}): {content[:80]!r}") from error


class ReplyingModel(Protocol):
    """A chat model that replies to each question by itself."""

    @property
    def fingerprint(self) -> str:
        """A string that changes whenever the replies would."""

    def replies(self, questions: Sequence[str], *, system: str | None) -> Iterator[tuple[int, Reply]]:
        """Ask each question in a separate conversation, and yield its index with the reply, as they come."""


def read_reply(body: Mapping[str, Any]) -> Reply:
    """Read a response of an OpenAI-compatible chat endpoint; any error means that it has another form."""
    choice, usage = body["choices"][0], body.get("usage") or {}
    message, finish = choice["message"], choice.get("finish_reason")
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    read, written = (count if type(count) is int else None for count in counts)
    content, outcome = message.get("content"), CUT_OFF if finish == "length" else ANSWERED
    if message.get("refusal") or finish == "content_filter":
        content, outcome = "", REFUSED
    elif content is None and finish == "length":
        content = ""  # the limit of tokens ended it before the answer began, as of a model that reasons first
    if not isinstance(content, str):
        raise UserError(f"the answer must be a text, got {content!r}")
    return Reply(content, outcome, str(body.get("model") or ""), read, written)
