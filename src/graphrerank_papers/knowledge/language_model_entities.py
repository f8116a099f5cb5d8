"""Named entities by an instruction-tuned language model behind an OpenAI-compatible endpoint, as GraphER does."""

import ast
import json
import re
from collections.abc import Sequence
from typing import Any

from graphrerank.checks import check_counts
from graphrerank.knowledge.passage_knowledge import Knowledge
from graphrerank.language_models.client import LanguageModel
from graphrerank.language_models.prompt import Prompt, in_form, shipped_prompt

_FENCED = re.compile(r"```\w*\n(.*)\n```", re.DOTALL)


class LanguageModelEntityExtractor:
    """Asks a chat model for the names in each text; wrap it in a ``KnowledgeCache`` to pay for nothing twice.

    A failed request, and an answer that :func:`parse_entities` refuses, is retried as :class:`LanguageModel` does.

    Args:
        base_url: The endpoint up to and including its version, as ``http://localhost:8000/v1``.
        model: The model's name there.
        max_characters: Longer texts are cut.
        prompt: With the place ``{text}``; None for ``entities``, which wants no dates; ``grapher_entities`` does.
        settings: Further arguments of :class:`~graphrerank.language_models.client.LanguageModel`.

    Raises:
        ValueError: If ``max_characters`` is below 1, or as :class:`~graphrerank.language_models.client.LanguageModel`.
    """

    def __init__(
        self, base_url: str, model: str, *, max_characters: int = 8000, prompt: Prompt | None = None, **settings: Any
    ) -> None:
        check_counts(max_characters=max_characters)
        self.max_characters = max_characters
        self.prompt = prompt or shipped_prompt("entities")
        self.prompt.fill(text="")
        self._model = in_form(LanguageModel(base_url, model, **settings), self.prompt.form)

    @property
    def fingerprint(self) -> str:
        """The model's name, its settings, the prompt and ``max_characters``, without the endpoint, which may move."""
        model = self._model
        plain = model.fingerprint == LanguageModel(model.base_url, model.model).fingerprint
        further = () if plain else (model.fingerprint,)
        return repr(("language model", model.model, self.prompt.key, self.max_characters, *further))

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        """Extract the entities of each text."""
        asked = [self.prompt.fill(text=text[: self.max_characters]) for text in texts]
        return self._model.ask(asked, system=self.prompt.instructions(), read=parse_entities)


def parse_entities(content: str) -> Knowledge:
    """Read a model's answer, strictly: a list of strings, or a JSON object with one, ``entities``, and nothing else.

    The list may be one of Python's, as GraphER's prompt asks for, and either may stand in a fence of code.

    Example:
        >>> parse_entities('{"entities": ["Lothair II", "Metz"]}').names
        ['Lothair II', 'Metz']
        >>> parse_entities("['Metz', '8 August 869']").names
        ['Metz', '8 August 869']
    """
    fenced = _FENCED.fullmatch(content.strip())
    answer = _read_list(fenced[1] if fenced else content)
    if isinstance(answer, dict):
        answer = answer["entities"] if set(answer) == {"entities"} else None
    if not isinstance(answer, list):
        raise ValueError(f'the answer must be {{"entities": [...]}} or a list, got {content[:80]!r}')
    return Knowledge.from_names(answer)


def _read_list(content: str) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        pass
    try:
        return ast.literal_eval(content.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"the answer must be JSON or a Python list, got {content[:80]!r}") from error
