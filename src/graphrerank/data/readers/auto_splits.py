r"""``splits: auto``: questions divided into train, val and test by a hash, near-duplicates together.

Two questions are near-duplicates if their character trigrams (of the text in lower case, all that is no letter or digit
read as one space) overlap in 0.7 of their weight:

.. math:: J(x, y) = \frac{\sum_{g \in x \cap y} w_g}{\sum_{g \in x \cup y} w_g} \ge 0.7, \quad
    w_g = \ln\left(1 + \frac{N}{N_g}\right)

with :math:`N_g` of the :math:`N` questions holding the trigram, so that questions made from one template differ.
Chains of near-duplicates are one group; with ``auto_documents`` so are questions that share a relevant document. The
SHA-256 of the first of a group's questions, in the order of their letters, says its split: below 0.8 of the range
train, below 0.9 val, else test. A question that is added moves others only if it joins their group.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence

from graphrerank.caching import hash_text

TRAIN, VAL, TEST = "train", "val", "test"  # as conf names them
SHARES = (":80%", "80%:90%", "90%:")  # of a file that holds all judgements
AUTO, AUTO_DOCUMENTS = "auto", "auto_documents"
BOUNDS = {TRAIN: 0.8, VAL: 0.9, TEST: 1.0}  # of the hash
SAME = 0.7  # weighted Jaccard similarity from which on two questions are near-duplicates
ROUNDING = 1e-9
_BREAK = re.compile(r"[\W_]+")


def divide_queries(texts: Sequence[str], documents: Sequence[Iterable[Hashable]] | None = None) -> list[str]:
    """Return the split of each question; ``documents`` are the relevant ones of each, for ``auto_documents``."""
    above = list(range(len(texts)))  # a forest, whose trees are the groups

    def root(number: int) -> int:
        while above[number] != number:
            above[number] = number = above[above[number]]
        return number

    for one, other in near_duplicates(texts):
        above[root(one)] = root(other)
    holders: dict[Hashable, int] = {}
    for query, relevant in enumerate(documents or ()):
        for document in relevant:
            above[root(query)] = root(holders.setdefault(document, query))
    first: dict[int, str] = {}
    for query, text in enumerate(map(_normal, texts)):
        first[root(query)] = min(first.get(root(query), text), text)
    split_of = [_split(first[root(query)]) for query in range(len(texts))]
    absent = [split for split in BOUNDS if split not in split_of]
    if absent:
        rule = AUTO if documents is None else AUTO_DOCUMENTS
        by_place = ", ".join(f'{split}: "FILE[{share}]"' for split, share in zip(BOUNDS, SHARES, strict=True))
        raise ValueError(
            f"`splits={rule}` must give each split a question, got none in {absent} of {len(texts)} questions in "
            f"{len(first)} groups; by place in a file of qrels instead: 'data.splits={{{by_place}}}'"
        )
    return split_of


def near_duplicates(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """List the pairs of near-duplicate texts by their places; equal texts are chained.

    Only texts that share one of the rarest trigrams of either, with which the similarity could not reach 0.7 otherwise,
    are compared.

    Source: the prefix filter of Bayardo, Ma and Srikant, "Scaling Up All Pairs Similarity Search", 2007.
    """
    alike: dict[str, int] = {}
    distinct: list[int] = []
    for place, text in enumerate(map(_normal, texts)):
        if (first := alike.setdefault(text, place)) != place:
            yield first, place
        else:
            distinct.append(place)
    grams = {place: _grams(_normal(texts[place])) for place in distinct}
    counts = Counter(gram for own in grams.values() for gram in own)
    weight = {gram: math.log1p(len(distinct) / count) for gram, count in counts.items()}
    total = {place: math.fsum(weight[gram] for gram in own) for place, own in grams.items()}
    holders: defaultdict[str, list[int]] = defaultdict(list)
    for place in distinct:
        own, seen = grams[place], set()
        for gram in _prefix(own, weight, total[place]):
            seen.update(holders[gram])
            holders[gram].append(place)
        for other in sorted(seen):
            shared = sum(weight[gram] for gram in own & grams[other])
            if shared + ROUNDING >= SAME * (total[place] + total[other] - shared):
                yield other, place


def _prefix(grams: Iterable[str], weight: dict[str, float], total: float) -> list[str]:
    """Return the rarest trigrams without which less than 0.7 of the weight is left."""
    taken, left = [], total
    for gram in sorted(grams, key=lambda gram: (-weight[gram], gram)):
        if left + ROUNDING < SAME * total:
            break
        taken.append(gram)
        left -= weight[gram]
    return taken


def _normal(text: str) -> str:
    return _BREAK.sub(" ", text.lower()).strip() or text


def _grams(text: str) -> frozenset[str]:
    padded = f" {text} "
    return frozenset(padded[start : start + 3] for start in range(max(1, len(padded) - 2)))


def _split(text: str) -> str:
    """Return the split of a text's hash."""
    share = int.from_bytes(hash_text(text)[:6], "big") / 2**48
    return next(split for split, bound in BOUNDS.items() if share < bound)
