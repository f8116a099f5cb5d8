"""Tokenizers: find the positions of tokens in a text. All lengths and limits are counted in tokens."""

import hashlib
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from graphrerank.installation.extras import optional
from graphrerank.text.sentences import Span
from graphrerank.utils.checks import UserError

_WORD = re.compile(r"\S+")


class Tokenizer(Protocol):
    """Protocol of objects that split texts into tokens."""

    @property
    def fingerprint(self) -> str:
        """String that changes whenever the tokens would change."""

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the positions of the tokens of each text.

        Args:
            texts: ``n`` texts.

        Returns:
            Positions ``(start, stop)`` of the tokens of each text, in characters and in order.
        """


class WordTokenizer:
    """Split texts at white space, without a model. A text has about three quarters as many words as tokens of a model.

    Example:
        >>> WordTokenizer().spans(["two words"])
        [[(0, 3), (4, 9)]]
    """

    fingerprint = "words"

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the positions of the words of each text.

        Args:
            texts: ``n`` texts.

        Returns:
            Positions ``(start, stop)`` of the words of each text.
        """
        return [[word.span() for word in _WORD.finditer(text)] for text in texts]


class TransformersTokenizer:
    """Tokenizer of transformers without special tokens, loaded when it is first used.

    Args:
        model: Local folder of the tokenizer, or its id on the Hugging Face hub.
        revision: Commit of a hub model. If None, the latest commit is used.
    """

    def __init__(self, model: str | Path, *, revision: str | None = None) -> None:
        self.model = str(model)
        self.revision = revision

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the tokenizer files of a local model, or of the id and revision of a hub model."""
        folder = Path(self.model)
        files = sorted(folder.glob("*token*")) + sorted(folder.glob("vocab*")) if folder.is_dir() else []
        from graphrerank.utils.files import hash_files  # local import, because it loads torch

        content = hash_files(files) if files else f"{self.model}@{self.revision}"
        return hashlib.sha256(content.encode()).hexdigest()

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the positions of the tokens of each text.

        Args:
            texts: ``n`` texts.

        Returns:
            Positions ``(start, stop)`` of the tokens of each text.

        Raises:
            UserError: If the tokenizer cannot be loaded, or does not report the positions of tokens.
        """
        settings = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}
        return self._loaded(list(texts), **settings)["offset_mapping"] if texts else []

    @cached_property
    def _loaded(self) -> Any:
        library = optional("transformers", "a tokenizer")  # heavy import, so only when it is needed
        try:
            tokenizer = library.AutoTokenizer.from_pretrained(
                self.model, revision=self.revision, trust_remote_code=False
            )
        except (OSError, ValueError) as error:
            raise UserError(
                f"tokenizer `model` must be a local folder or a reachable hub id, got {self.model!r}: {error}"
            ) from error
        if not tokenizer.is_fast:
            raise UserError(
                f"tokenizer `model` must be a fast tokenizer, which reports the positions of tokens, got {self.model!r}"
            )
        return tokenizer


def count_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    """Return the number of tokens of each text.

    Args:
        tokenizer: Tokenizer that splits the texts.
        texts: ``n`` texts.

    Example:
        >>> count_tokens(WordTokenizer(), ["two words", ""])
        [2, 0]
    """
    return [len(spans) for spans in tokenizer.spans(texts)]
