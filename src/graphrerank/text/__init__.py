"""What is done with text before any graph: so far the client of language models."""

from graphrerank.text.language_model import LanguageModel

__all__ = ["LanguageModel"]
