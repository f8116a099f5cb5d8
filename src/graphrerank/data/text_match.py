"""How many of a query's words a candidate and its neighbours cover together, which no score of one passage tells.

A question that needs two passages shares some words with each. Scores of single passages rank both low; the words that
two joined passages cover *together* distinguish them from the rest.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from threading import local

import torch
from Stemmer import Stemmer
from torch import Tensor

from graphrerank.graphs.algebra import graph_index, scatter_max

# Words that say nothing about a sentence's subject.
_STOP_WORDS = (
    "a about after all also an and any are as at be because been before both but by can did do does each every for from"
    " had has have he her his how i if in into is it its me more most no not of on only or other our out over same she"
    " some such than that the their them then there these they this those to under up was we were what when where which"
    " while who whom whose why will with you your"
)
STOP_WORDS = frozenset(_STOP_WORDS.split())
MATCH_FEATURES = ("query_coverage", "title_coverage", "neighbourhood_coverage")

_LOCAL = local()  # a stemmer serves one thread at a time
_WORD = re.compile(r"[^\W_]+")
_WITHIN_COMPOUND = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=[0-9])")
_END_OF_LEAD = re.compile(r"[.!?:;](?:\s|$)|\n")


def words(text: str) -> list[str]:
    """Split a text into stems of lower-case words without stop words; compounds also give their parts.

    The stems are Snowball's for English, which leave most words of other languages unchanged. Compounds are names such
    as ``shippedDate``, ``HTTPServer`` and ``top10``.

    Example:
        >>> words("Which cities have the most bus_stops by shippedDate?")
        ['citi', 'bus', 'stop', 'shippedd', 'ship', 'date']
    """
    spelled: list[str] = []
    for word in _WORD.findall(text):
        parts = _WITHIN_COMPOUND.split(word)
        spelled += [word, *parts] if len(parts) > 1 else [word]
    return _stems([word for word in map(str.lower, spelled) if word not in STOP_WORDS])


def lead(text: str) -> str:
    """Return a passage's first sentence, which is its title if it has one.

    Example:
        >>> lead("Marie Curie. She was a physicist.")
        'Marie Curie'
    """
    end = _END_OF_LEAD.search(text)
    return text if end is None else text[: end.start()]


class TextMatch:
    r"""Measure the share of a query's words, weighted by rarity, that a candidate covers alone and with its neighbours.

    With :math:`w(t) = \ln(1 + (N - n_t + 0.5) / (n_t + 0.5))` (BM25's weight; :math:`n_t` of :math:`N` passages hold
    word :math:`t`) and :math:`c(T) = \sum_{t \in q \cap T} w(t) / \sum_{t \in q} w(t)`, the features are

    - ``query_coverage``: :math:`c` of the passage's words;
    - ``title_coverage``: the weighted share of the words of its first sentence that the query holds;
    - ``neighbourhood_coverage``: :math:`c` of the words of the passage and all its neighbours together.

    All lie in [0, 1]. Neighbours are those among the candidates; without any, the last equals the first.

    Args:
        texts: The corpus, ``N`` texts; or the candidates of one query without a corpus.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.num_nodes = len(texts)
        self._number: dict[str, int] = {}
        rows = [self._numbers(words(text), grow=True) for text in texts]
        frequency = Counter(word for row in rows for word in row)
        count = torch.tensor([frequency[word] for word in range(len(self._number))], dtype=torch.float64)
        self._weight = torch.log1p((self.num_nodes - count + 0.5) / (count + 0.5)).float()  # [V]
        self._unknown_weight = float(torch.log1p(torch.tensor(2 * self.num_nodes + 1.0)))
        self._held = self._keys(rows)  # node * V + word, ascending
        leads = [self._numbers(words(lead(text))) for text in texts]
        self._held_by_lead = self._keys(leads)
        total = [float(self._weight[row].sum()) if (row := sorted(words_)) else 0.0 for words_ in leads]
        self._lead_weight = torch.tensor(total).clamp(min=torch.finfo(torch.float32).tiny)

    def score(self, query_texts: Sequence[str], nodes: Tensor, edge_index: Tensor, ptr: Tensor) -> Tensor:
        """Measure the candidates of a batch of queries.

        Args:
            query_texts: ``B`` texts.
            nodes: ``[M]`` int64 numbers of texts, the candidates of all queries, packed.
            edge_index: ``[2, E]`` int64 edges among them, in packed numbering.
            ptr: ``[B + 1]`` boundaries of the queries in ``nodes``.

        Returns:
            ``[M, 3]`` float32 in [0, 1], columns as in ``MATCH_FEATURES``; all 0 for a query without words.

        Example:
            >>> match = TextMatch(["Solaris. A film by Tarkovsky.", "Tarkovsky. Born in Russia.", "Rome. A city."])
            >>> edges, ptr = torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 3])
            >>> match.score(["director of Solaris born in"], torch.arange(3), edges, ptr)
            tensor([[0.2427, 1.0000, 0.4854],
                    [0.2427, 0.0000, 0.4854],
                    [0.0000, 0.0000, 0.0000]])
        """
        graph = graph_index(ptr)
        word, weight = self._query_words(query_texts)  # [B, T] each, weight 0 where padded
        holds = self._holds(self._held, nodes, word[graph])  # [M, T]
        share = weight / weight.sum(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
        share = share[graph]
        source, target = edge_index[0], edge_index[1]
        together = torch.maximum(holds, scatter_max(holds[source], target, len(nodes)))
        alone = (holds * share).sum(1)
        in_lead = self._holds(self._held_by_lead, nodes, word[graph])
        known = self._weight[word.clamp(min=0)][graph] if self._weight.numel() else torch.zeros_like(in_lead)
        title = (in_lead * known).sum(1) / self._lead_weight[nodes]
        return torch.stack([alone, title.clamp(max=1.0), (together * share).sum(1)], dim=1)

    def _query_words(self, query_texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Number and weigh each query's different words; -1 for those of no passage; padded with -1 and weight 0."""
        rows = [dict.fromkeys(words(text)) for text in query_texts]
        width = max(map(len, rows), default=0)
        padded = [[self._number.get(word, -1) for word in row] + [-1] * (width - len(row)) for row in rows]
        length = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        word = torch.tensor(padded, dtype=torch.int64).reshape(len(rows), width)
        known = self._weight[word.clamp(min=0)] if self._weight.numel() else torch.zeros(word.shape)
        weight = torch.where(word < 0, self._unknown_weight, known)
        return word, weight.masked_fill(torch.arange(width) >= length[:, None], 0.0)

    def _holds(self, keys: Tensor, nodes: Tensor, word: Tensor) -> Tensor:
        """Return 1 where a node ``[M]`` holds a word ``[M, T]``, else 0."""
        if not keys.numel():
            return torch.zeros(word.shape)
        wanted = nodes[:, None] * len(self._number) + word
        slot = torch.searchsorted(keys, wanted).clamp(max=keys.numel() - 1)
        return ((keys[slot] == wanted) & (word >= 0)).float()

    def _numbers(self, text: Iterable[str], *, grow: bool = False) -> set[int]:
        if grow:
            return {self._number.setdefault(word, len(self._number)) for word in text}
        return {self._number[word] for word in text}

    def _keys(self, rows: Sequence[set[int]]) -> Tensor:
        size = len(self._number)
        return torch.tensor([node * size + word for node, row in enumerate(rows) for word in sorted(row)]).long()


def _stems(plain: list[str]) -> list[str]:
    if not hasattr(_LOCAL, "stemmer"):
        _LOCAL.stemmer = Stemmer("english")
    stems: list[str] = _LOCAL.stemmer.stemWords(plain)
    return stems
