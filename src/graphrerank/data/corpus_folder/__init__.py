"""A corpus on disk: written part by part, opened in constant time, mapped and not read."""

from graphrerank.data.corpus_folder.opening import is_corpus_folder, open_corpus
from graphrerank.data.corpus_folder.preparation import prepare_corpus

__all__ = ["is_corpus_folder", "open_corpus", "prepare_corpus"]
