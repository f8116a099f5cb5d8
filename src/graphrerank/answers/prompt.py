"""Prompts, which are files of ``conf/prompt`` that a user edits."""

import re
from dataclasses import KW_ONLY, dataclass

_FIELD = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Prompt:
    """A template of what a chat model is told; ``{name}`` stands for a text that is put in as it is."""

    name: str  # in reports
    user: str  # the user's message
    _: KW_ONLY
    system: str | None = None  # message before it; None for none
    abstention: str | None = None  # sentence by which an answer says that the passages do not hold it; None for none

    def fill(self, **texts: str) -> str:
        """Return the user's message with texts in their places.

        Raises:
            ValueError: If the template lacks one of the places, or has another.

        Example:
            >>> Prompt("p", "{context} Q: {question}").fill(context="{question}", question="Who?")
            '{question} Q: Who?'
        """
        places = set(_FIELD.findall(self.user))
        if places != set(texts):
            raise ValueError(f"prompt {self.name!r} must have the places {sorted(texts)}, got {sorted(places)}")
        return _FIELD.sub(lambda place: texts[place[1]], self.user)
