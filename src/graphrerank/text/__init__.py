"""Text processing: sentences, words, tokens and normalised names."""

from graphrerank.text.names import normalize_entity
from graphrerank.text.sentences import split_sentences
from graphrerank.text.stems import lead, words
from graphrerank.text.tokenizer import Tokenizer, TransformersTokenizer, WordTokenizer, count_tokens

__all__ = [
    "Tokenizer",
    "TransformersTokenizer",
    "WordTokenizer",
    "count_tokens",
    "lead",
    "normalize_entity",
    "split_sentences",
    "words",
]
