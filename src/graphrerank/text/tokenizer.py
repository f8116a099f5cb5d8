"""Tokenizers, which give the positions of tokens in a text: the unit of all lengths and limits."""

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
    """Anything that splits texts into tokens."""

    @property
    def fingerprint(self) -> str:
        """A string that changes whenever the tokens would."""

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the tokens of each of ``n`` texts: ``(start, stop)`` characters, in order."""


class WordTokenizer:
    """Splits at white space, without a model; texts have about three quarters of a model's tokens."""

    fingerprint = "words"

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the words of each of ``n`` texts."""
        return [[word.span() for word in _WORD.finditer(text)] for text in texts]


class TransformersTokenizer:
    """A transformers tokenizer without special tokens, of a local folder or a hub id, loaded at its first use."""

    def __init__(self, model: str | Path, *, revision: str | None = None) -> None:
        self.model = str(model)
        self.revision = revision

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the tokenizer's files; of the name and revision for a hub model."""
        folder = Path(self.model)
        files = sorted(folder.glob("*token*")) + sorted(folder.glob("vocab*")) if folder.is_dir() else []
        from graphrerank.utils.files import hash_files  # loads torch, which text alone does not need

        content = hash_files(files) if files else f"{self.model}@{self.revision}"
        return hashlib.sha256(content.encode()).hexdigest()

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the tokens of each of ``n`` texts."""
        settings = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}
        return self._loaded(list(texts), **settings)["offset_mapping"] if texts else []

    @cached_property
    def _loaded(self) -> Any:
        library = optional("transformers", "a tokenizer")  # heavy: only when something must be counted
        try:
            tokenizer = library.AutoTokenizer.from_pretrained(
                self.model, revision=self.revision, trust_remote_code=False
            )
        except (OSError, ValueError) as error:
            raise UserError(
                f"tokenizer `model` must be a local folder or a reachable hub id, got {self.model!r}: {error}"
            ) from error
        if not tokenizer.is_fast:
            raise UserError(f"tokenizer `model` must give the positions of tokens (a fast one), got {self.model!r}")
        return tokenizer


def count_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    """Count the tokens of each of ``n`` texts."""
    return [len(spans) for spans in tokenizer.spans(texts)]
