"""RAPTOR's tree: passages, summaries of clusters of them, summaries of clusters of those."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from graphrerank.caching import hash_texts
from graphrerank.checks import check_counts, check_positive_share
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.text import WordTokenizer, count_tokens
from graphrerank.text.sentences import split_sentences
from graphrerank_papers.indexing.encode import IndexEncoder, encode_texts
from graphrerank_papers.indexing.sentence_selection import pick_sentences
from graphrerank_papers.indexing.stages import StageData, Stages
from graphrerank_papers.indexing.summaries import write_summaries

FORMAT = 1  # increment when the content of a stage changes
OPENING_SENTENCES = 2  # of a node's text that an extractive summary quotes: a title and the first sentence
_CLUSTERS = (1, 2, 3, 5, 8, 12, 18, 27, 40, 50)  # numbers of clusters that are tried
_ARRAYS = ("children", "vectors")


@dataclass(frozen=True)
class SummaryTreeSettings:
    """Settings of a summary tree."""

    max_layers: int = 5  # of summaries
    num_dims: int = 10  # of the vectors that are clustered; a layer of as many nodes plus one or fewer is the last
    membership: float = 0.1  # least probability, in (0, 1], of a cluster that a node also belongs to
    cluster_tokens: int = 1000  # words of a cluster's texts, above which it is clustered once more
    summary_tokens: int = 100  # words of a summary, at most
    seed: int = 0  # of clustering

    def __post_init__(self) -> None:
        check_counts(max_layers=self.max_layers, num_dims=self.num_dims)
        check_counts(cluster_tokens=self.cluster_tokens, summary_tokens=self.summary_tokens)
        check_positive_share(membership=self.membership)


@dataclass(frozen=True)
class SummaryTree:
    """A tree of ``P`` passages and ``S`` summaries; node ``P + s`` is summary ``s``, the lowest layers first."""

    num_passages: int  # `P`
    layers: Sequence[int]  # number of summaries of each layer, from the lowest
    texts: Sequence[str]  # `S` summaries
    children: Sequence[Sequence[int]]  # of each summary: nodes of the layer below, ascending
    vectors: Tensor  # `[S, d]` float32

    @cached_property
    def leaves(self) -> list[list[int]]:
        """The passages below each of ``S`` summaries, ascending."""
        below: list[list[int]] = []
        for children in self.children:
            leaves = (below[child - self.num_passages] if child >= self.num_passages else [child] for child in children)
            below.append(sorted({leaf for group in leaves for leaf in group}))
        return below

    def report(self) -> str:
        """Return one line with the number of nodes by layer."""
        layers = ", ".join(f"{count:,}" for count in self.layers) or "none"
        return f"summary tree: {self.num_passages:,} passages; summaries by layer: {layers}"


class SummaryTreeBuilder:
    """Builds a summary tree, or reads it from the folder (:class:`Stages`).

    Nodes of a layer are clustered, first all of them, then those of each cluster, and again those of a cluster whose
    texts are too long to be summarised at once; a node may be in several clusters. Each cluster is summarised, and its
    summary is a node of the next layer, until a layer is small or not smaller.

    Source: Sarthi et al., "RAPTOR: Recursive Abstractive Processing for Tree-Organized Retrieval", 2024, section 3:
    Gaussian mixtures with the number of clusters by BIC. *Where we differ:* principal components in place of UMAP;
    numbers of clusters on a grid up to 50, at least 2 where a cluster is too long; the paper summarises up to 3,500
    tokens at once, we 1,000 words, ten passages of its length of 100. Without a language model a summary quotes the
    openings of representative nodes (:func:`pick_sentences`); so does one that the language model fails to write.

    Args:
        encoder: Encoder of the summaries; queries and passages need the same one.
        language_model: Writes the summaries, best wrapped in an ``AnswerCache``; None to quote.
        prompt: Of the language model (:func:`write_summaries`); None for the one that ships.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        encoder: IndexEncoder,
        language_model: ChatModel | None = None,
        prompt: Prompt | None = None,
    ) -> None:
        self._stages = Stages(folder)
        self._encoder = encoder
        self._model = language_model
        self._prompt = prompt or shipped_prompt("summary")

    def build(
        self, passages: Sequence[str], vectors: Tensor, settings: SummaryTreeSettings | None = None
    ) -> SummaryTree:
        """Build the tree of ``P`` passages with vectors ``[P, d]``; a damaged file is a ValueError."""
        settings = settings or SummaryTreeSettings()
        writer = "extractive" if self._model is None else (self._model.fingerprint, self._prompt.fingerprint)
        dependencies = (hash_texts(passages).hex(), self._encoder.fingerprint, settings, writer)
        key = self._stages.key("summary_tree", FORMAT, *dependencies)
        arrays, content = self._stages.get(key, _ARRAYS, lambda: self._grow(passages, vectors, settings))
        children: list[list[int]] = [[] for _ in content["texts"]]
        for summary, child in arrays["children"].tolist():
            children[summary].append(child)
        return SummaryTree(len(passages), content["layers"], content["texts"], children, arrays["vectors"])

    def _grow(self, passages: Sequence[str], vectors: Tensor, settings: SummaryTreeSettings) -> StageData:
        texts, rows = list(passages), [vectors.float().cpu()]
        layer = list(range(len(texts)))
        edges: list[tuple[int, int]] = []
        layers: list[int] = []
        while len(layers) < settings.max_layers and len(layer) > settings.num_dims + 1:
            of_layer = torch.cat(rows)[layer]
            num_tokens = count_tokens(WordTokenizer(), [texts[node] for node in layer])
            clusters = cluster_nodes(of_layer, num_tokens, settings)
            if len(clusters) >= len(layer):
                break
            first = len(texts)
            groups = [[layer[position] for position in cluster] for cluster in clusters]
            edges += [(first + row - len(passages), child) for row, group in enumerate(groups) for child in group]
            members = [[texts[child] for child in group] for group in groups]
            texts += self._summarise(members, [of_layer[cluster] for cluster in clusters], settings)
            rows.append(encode_texts(self._encoder, texts[first:]))
            layers.append(len(groups))
            layer = list(range(first, len(texts)))
        children = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2)
        summaries = torch.cat([rows[0][:0], *rows[1:]])
        return {"children": children, "vectors": summaries}, {"texts": texts[len(passages) :], "layers": layers}

    def _summarise(
        self, members: Sequence[Sequence[str]], vectors: Sequence[Tensor], settings: SummaryTreeSettings
    ) -> list[str]:
        limit = settings.summary_tokens
        quoted = [quote(texts, own, limit) for texts, own in zip(members, vectors, strict=True)]
        if self._model is None:
            return quoted
        written = write_summaries(self._model, members, WordTokenizer(), limit=limit, prompt=self._prompt)
        return [summary or quotation for summary, quotation in zip(written, quoted, strict=True)]


def cluster_nodes(vectors: Tensor, num_tokens: Sequence[int], settings: SummaryTreeSettings) -> list[list[int]]:
    """Cluster nodes of ``[n, d]`` vectors and ``n`` lengths: positions of each cluster, ascending; none is left out.

    A cluster that is too long but cannot be divided stays as it is.
    """
    clusters: dict[tuple[int, ...], None] = {}
    groups = _divide(list(range(len(vectors))), vectors, settings, least=1)
    pending = [cluster for group in groups for cluster in _divide(group, vectors, settings, least=1)]
    while pending:
        cluster = pending.pop(0)
        parts = [cluster]
        if sum(num_tokens[position] for position in cluster) > settings.cluster_tokens:
            parts = _divide(cluster, vectors, settings, least=2)
        if max(map(len, parts)) < len(cluster):
            pending = parts + pending
        else:
            clusters[tuple(cluster)] = None
    return [list(cluster) for cluster in clusters]


def quote(texts: Sequence[str], vectors: Tensor, limit: int) -> str:
    """Join the openings of representative texts with vectors ``[n, d]``, up to ``limit`` words; at least one."""
    openings = [_opening(text) for text in texts]
    unit = torch.nn.functional.normalize(vectors, dim=1)
    chosen = pick_sentences(unit, count_tokens(WordTokenizer(), openings), limit=limit)
    return " ".join(openings[position] for position in sorted(chosen)) or " ".join(openings[0].split()[:limit])


def _opening(text: str) -> str:
    spans = split_sentences(text)[:OPENING_SENTENCES]
    return text[spans[0][0] : spans[-1][1]] if spans else text


def _divide(group: list[int], vectors: Tensor, settings: SummaryTreeSettings, *, least: int) -> list[list[int]]:
    """Cluster some nodes softly by a Gaussian mixture of ``least`` components or more, the number by BIC."""
    from sklearn.decomposition import PCA
    from sklearn.mixture import GaussianMixture

    rows = vectors[group].double().numpy()
    if len(group) <= settings.num_dims + 1 or len(np.unique(rows, axis=0)) == 1:
        return [group]
    reduced = PCA(min(settings.num_dims, rows.shape[1]), random_state=settings.seed).fit_transform(rows)
    most = len(np.unique(reduced, axis=0)) // 2
    counts = [count for count in _CLUSTERS if least <= count <= max(least, most)]
    mixtures = [GaussianMixture(count, random_state=settings.seed, reg_covar=1e-4).fit(reduced) for count in counts]
    best = min(mixtures, key=lambda mixture: float(mixture.bic(reduced)))
    probability = best.predict_proba(reduced)
    is_member = (probability >= settings.membership) | (probability == probability.max(axis=1, keepdims=True))
    return [[group[position] for position in np.flatnonzero(column)] for column in is_member.T if column.any()]
