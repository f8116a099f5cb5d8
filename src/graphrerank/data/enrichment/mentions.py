"""Mention edges, the hyperlinks of a corpus without hyperlinks: one Aho-Corasick pass over the words of all texts.

Words, not characters, are the automaton's letters, so that a match starts and ends at word boundaries; accents,
punctuation and HTML entities are folded first ("A. J. Mintu" finds "A J Mintu").
"""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import le

import ahocorasick
import torch
from torch import Tensor

from graphrerank.utils.checks import UserError

MAX_OWNERS = 2  # a name borne equally strongly by more passages is ambiguous and dropped
MAX_MENTION_SHARE = 0.02  # a name mentioned in a larger share of the passages is too common and dropped, but for
MIN_COMMON = 10  # passages: a name in this many or fewer is never "too common", however small the corpus
MIN_CHARACTERS = 3  # shorter names are dropped

NameWords = tuple[str, ...]  # words in lower case
Owner = tuple[bool, bool]  # whether the first and the last word of a name have a capital initial

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"  # scripts without spaces: each character is a word
_WORD = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
_DISAMBIGUATION = re.compile(r"\s*\([^()]*\)\s*$")
_OPENING = re.compile(r"\s*(.{3,80}?)\s*(?:\(|,? (?:is|was|are|were) )", re.DOTALL)


def find_mentions(titles: Sequence[str], texts: Sequence[str]) -> Tensor:
    """Join each passage with the passages whose name occurs in its text, in time linear in the corpus.

    A passage's names are, strongest first: its title; the title without a trailing "(film)"; the name that opens its
    text ("Harnam Singh Rawail (21 August ..." of the passage "H. S. Rawail"), if it has two words or more and one of
    them is in the title; the title up to its first comma, if that has two words or more. A name belongs only to the
    passages that bear it most strongly. Short names are dropped, as are those without a letter ("1984").

    A mention counts if its first and last word have a capital initial where the name's have one (so a lower-cased
    title is found in any case), and if it does not lie inside a longer mention ("York" in "New York").

    Thresholds were chosen on the training questions of 2WikiMultihopQA and HotpotQA, by the share of questions whose
    relevant passages all lie among the top 30 or one hop from them; there, ignoring case or keeping mentions inside
    longer ones adds edges and no coverage.

    ``texts`` are without the ``titles``, of which an empty one is never mentioned.

    Returns:
        ``[M, 2]`` int64, pairs of different passages (mentioning, mentioned), ascending.

    Example:
        >>> titles = ["Laila Majnu (1976 film)", "H. S. Rawail"]
        >>> texts = ["Laila Majnu is directed by Harnam Singh Rawail.", "Harnam Singh Rawail (born 1921) made films."]
        >>> find_mentions(titles, texts)
        tensor([[0, 1]])
    """
    if len(titles) != len(texts):
        raise UserError(
            f"`titles` and `texts` must have one entry per passage, got {len(titles)} titles and {len(texts)} texts"
        )
    owners = _names(titles, texts)
    clear = [len(bearers) <= MAX_OWNERS for bearers in owners.values()]
    mentions: dict[int, list[tuple[int, int]]] = {}
    mentioning: Counter[int] = Counter()  # passages
    mentioned = _searching(owners)
    for source, text in enumerate(texts):
        for name, bearers in mentioned(text).items():
            if clear[name] and source not in bearers:
                mentioning[name] += 1
                mentions.setdefault(name, []).extend((source, node) for node in bearers)
    limit = max(MIN_COMMON, MAX_MENTION_SHARE * len(titles))
    common = {name for name, count in mentioning.items() if count > limit}
    pairs = {pair for name, named_pairs in mentions.items() if name not in common for pair in named_pairs}
    return torch.tensor(sorted(pairs), dtype=torch.int64).reshape(-1, 2)


def split_words(text: str) -> list[str]:
    """Split a text into words without accents, punctuation and HTML entities; case is kept."""
    if "&" in text:
        text = html.unescape(text)
    if not text.isascii():
        text = "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
    return _WORD.findall(text)


def _names(titles: Sequence[str], texts: Sequence[str]) -> dict[NameWords, dict[int, Owner]]:
    """Return the passages that bear each name most strongly."""
    tiers: list[dict[NameWords, dict[int, Owner]]] = [{} for _ in range(5)]
    for node, (title, text) in enumerate(zip(titles, texts, strict=True)):
        for tier, words in _names_of(title, text):
            name = tuple(word.lower() for word in words)
            length = sum(map(len, name)) + len(name) - 1
            if words and length >= MIN_CHARACTERS and any(char.isalpha() for word in name for char in word):
                owner = (words[0][0].isupper(), words[-1][0].isupper())
                tiers[tier].setdefault(name, {}).setdefault(node, owner)
    # of several tiers the strongest, which comes last
    return {name: bearers for tier in reversed(tiers) for name, bearers in tier.items()}


def _names_of(title: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the words of each name of a passage with its tier: 0 for the strongest."""
    title_words = split_words(title)
    yield 0, title_words
    yield 1, split_words(_DISAMBIGUATION.sub("", title))
    opening = _OPENING.match(text)
    if opening is not None:
        words = split_words(opening[1])
        if len(words) > 1 and {word.lower() for word in words} & {word.lower() for word in title_words}:
            yield 3, words
    head = split_words(title.partition(",")[0])
    if len(head) > 1:
        yield 4, head


def _searching(owners: Mapping[NameWords, Mapping[int, Owner]]) -> Callable[[str], dict[int, list[int]]]:
    """Build what returns the names mentioned in a text, by their numbers, and their bearers."""
    all_bearers = [list(bearers.items()) for bearers in owners.values()]
    vocabulary = {word: number for number, word in enumerate({word for name in owners for word in name}, start=1)}
    automaton = ahocorasick.Automaton(ahocorasick.STORE_ANY, ahocorasick.KEY_SEQUENCE)
    for number, name in enumerate(owners):
        automaton.add_word(tuple(vocabulary[word] for word in name), (number, len(name)))
    automaton.make_automaton()

    def mentioned(text: str) -> dict[int, list[int]]:
        words = split_words(text)
        letters = tuple(vocabulary.get(word.lower(), 0) for word in words)
        spans = []
        for last, (name, length) in automaton.iter(letters) if owners and letters else ():
            first = last - length + 1
            written = (words[first][0].isupper(), words[last][0].isupper())
            if bearers := [node for node, owner in all_bearers[name] if all(map(le, owner, written))]:
                spans.append((first, -last, name, bearers))
        found: dict[int, list[int]] = {}
        reached = -1
        for _, negative_last, name, bearers in sorted(spans):
            if -negative_last > reached:  # else inside a longer mention that began no later
                reached = -negative_last
                found[name] = sorted({*found.get(name, ()), *bearers})
        return found

    return mentioned
