"""Sentences, words, tokens and names of plain text."""

from graphrerank.text.keywords import find_keywords
from graphrerank.text.names import normalize_entity
from graphrerank.text.sentences import split_sentences
from graphrerank.text.tokenizer import Tokenizer, TransformersTokenizer, WordTokenizer, count_tokens

__all__ = [
    "Tokenizer",
    "TransformersTokenizer",
    "WordTokenizer",
    "count_tokens",
    "find_keywords",
    "normalize_entity",
    "split_sentences",
]
