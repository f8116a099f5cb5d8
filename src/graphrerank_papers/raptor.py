"""RAPTOR: search a tree whose leaves are passages and whose inner nodes are summaries of clusters of nodes."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from graphrerank.core.queries import IndexEncoder
from graphrerank.language_models.answer_cache import ChatModel, remembering
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources, Step
from graphrerank.text import WordTokenizer, count_tokens
from graphrerank.text.sentences import split_sentences
from graphrerank.utils.caching import hash_texts
from graphrerank.utils.checks import check_choice, check_counts
from graphrerank_papers.indexing import Stages, encode_texts, with_listed
from graphrerank_papers.summaries import pick_sentences, write_summaries

#: Number of leading sentences of a text that an extractive summary may quote: the title and the first sentence.
OPENING_SENTENCES = 2
#: Maximum number of layers of summaries.
MAX_LAYERS = 5
#: Dimension of the vectors that are clustered. Layers with at most one node more than this are not clustered.
NUM_DIMS = 10
#: Minimum probability of a cluster for a node to belong to it.
MEMBERSHIP = 0.1
#: Maximum number of words of a cluster's texts. Longer clusters are divided again.
CLUSTER_TOKENS = 1000
#: Maximum number of words of a summary.
SUMMARY_TOKENS = 100
#: Random seed of the clustering.
SEED = 0
#: Candidate numbers of clusters.
_CLUSTERS = (1, 2, 3, 5, 8, 12, 18, 27, 40, 50)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SummaryTree:
    """Tree of ``P`` passages and ``S`` summaries. Node ``p`` is passage ``p``, and node ``P + s`` is summary ``s``.

    Attributes:
        num_passages: Number of passages ``P``, which are the leaves.
        layers: Number of summaries in each layer, lowest layer first. Empty if the corpus is too small to be clustered.
        texts: Texts of the ``S`` summaries, lowest layer first.
        children: Nodes in the layer below that each summary summarises, ascending.
        vectors: Vectors of the summaries ``[S, d]`` float32.
    """

    num_passages: int
    layers: Sequence[int]
    texts: Sequence[str]
    children: Sequence[Sequence[int]]
    vectors: Tensor

    @cached_property
    def leaves(self) -> list[list[int]]:
        """Passages below each summary, ascending."""
        below: list[list[int]] = []
        for children in self.children:
            leaves = (below[child - self.num_passages] if child >= self.num_passages else [child] for child in children)
            below.append(sorted({leaf for group in leaves for leaf in group}))
        return below


@dataclass(eq=False, repr=False)
class RAPTORSearch(Step):
    """Replace the retrieved passages by the passages that a search in the summary tree finds.

    - ``collapsed``: rank passages and summaries together by similarity to the query. Each summary is replaced by the
      passages below it that are not in the ranking yet, most similar first.
    - ``tree``: start at the highest layer, and repeatedly replace the ``num_branches`` most similar nodes by their
      children. The passages that are reached are ranked by similarity. There may be fewer passages than the budget.

    Source: Sarthi et al., "RAPTOR: Recursive Abstractive Processing for Tree-Organized Retrieval", 2024, section 3,
    tree traversal and collapsed tree. *Differences from the paper:* only passages are returned. RAPTOR gives its reader
    the texts of all selected nodes. Without a ``language_model``, summaries quote the passages.

    A query without a vector keeps its previous ranking.

    Args:
        resources: Resources of the pipeline. The graph needs an embedding, and the text encoder a fingerprint.
        folder: Folder of the tree. One tree is built per corpus, encoder and summary writer.
        search: ``collapsed`` or ``tree``.
        num_branches: Number of nodes to expand on each layer. Only used by ``search=tree``.
        language_model: Language model that writes the summaries. If None, summaries quote the passages.
        prompt: Prompt of the language model, as in :func:`~graphrerank_papers.summaries.write_summaries`.
        cache: Folder where the answers of the language model are cached. If None, they are not cached.

    Raises:
        ValueError: If a setting is out of range, or the pipeline has no text encoder.
    """

    resources: Resources
    _: KW_ONLY
    folder: str | Path
    search: str = "collapsed"
    num_branches: int = 10
    language_model: ChatModel | None = None
    prompt: Prompt = field(default_factory=partial(shipped_prompt, "summary"))
    cache: str | Path | None = None

    def __post_init__(self) -> None:
        check_choice(("collapsed", "tree"), search=self.search)
        check_counts(num_branches=self.num_branches)
        graph, model = self.resources.graph, self.language_model
        self._tree = build_summary_tree(
            graph.all_texts,
            graph.encoded,
            folder=self.folder,
            encoder=self.resources.index_encoder,
            language_model=None if model is None else remembering(model, self.cache),
            prompt=self.prompt,
        )
        self._vectors = torch.cat([graph.encoded, self._tree.vectors.to(graph.encoded)])

    def run(self, state: RetrievalState) -> RetrievalState:
        """Search the tree for each query of a batch.

        Args:
            state: State of ``B`` queries. Their retrieved passages are replaced.

        Returns:
            State with at most ``budget`` passages per query.
        """
        with self.resources.clock("graph"):
            similarity = (state.queries.encoded.to(self._vectors) @ self._vectors.T).cpu()
            find = self._collapsed if self.search == "collapsed" else self._descend
            listed = [list(find(row)) if bool(row.any()) else [] for row in similarity]
            return with_listed(state, listed, budget=self.resources.budget)

    def _collapsed(self, similarity: Tensor) -> Iterator[int]:
        num_passages, seen, scores = self._tree.num_passages, set[int](), similarity.tolist()
        for node in torch.argsort(similarity, descending=True, stable=True).tolist():
            passages = [node] if node < num_passages else self._tree.leaves[node - num_passages]
            for passage in sorted(passages, key=lambda leaf: (-scores[leaf], leaf)):
                if passage not in seen:
                    seen.add(passage)
                    yield passage
            if len(seen) >= self.resources.budget:
                return

    def _descend(self, similarity: Tensor) -> list[int]:
        num_passages, scores = self._tree.num_passages, similarity.tolist()
        num_roots = self._tree.layers[-1] if self._tree.layers else len(scores)
        nodes = list(range(len(scores) - num_roots, len(scores)))
        for _ in self._tree.layers:
            followed = sorted(nodes, key=lambda node: (-scores[node], node))[: self.num_branches]
            nodes = sorted({child for node in followed for child in self._tree.children[node - num_passages]})
        return sorted(nodes, key=lambda node: (-scores[node], node))


def build_summary_tree(
    passages: Sequence[str],
    vectors: Tensor,
    *,
    folder: str | Path,
    encoder: IndexEncoder,
    language_model: ChatModel | None = None,
    prompt: Prompt | None = None,
) -> SummaryTree:
    """Build the summary tree of a corpus, or read it from a folder where it was built before.

    All nodes of a layer are clustered, and then the nodes of each cluster. Clusters whose texts are too long for a
    summary are divided again. A node may belong to several clusters. The summaries of the clusters are the nodes of the
    next layer. The tree ends when a layer is small, or not smaller than the layer below.

    Source: Sarthi et al., "RAPTOR: Recursive Abstractive Processing for Tree-Organized Retrieval", 2024, section 3:
    Gaussian mixtures, whose number of clusters is chosen by BIC. *Differences from the paper:*

    - Principal components replace UMAP.
    - The number of clusters is chosen from a grid up to 50. It is at least 2 for a cluster that is too long.
    - At most 1,000 words are summarised at once, which is ten passages of the paper's length of 100 tokens. The paper
      allows 3,500 tokens.
    - Without a language model, a summary quotes the first sentences of representative nodes
      (:func:`~graphrerank_papers.summaries.pick_sentences`). If the model fails to write a summary, such a quotation
      replaces it.

    Args:
        passages: Texts of the ``P`` passages.
        vectors: Vectors of the passages ``[P, d]``.
        folder: Folder of the stored tree (:class:`~graphrerank_papers.indexing.Stages`).
        encoder: Encoder of the summaries. Must be the encoder of the passages.
        language_model: Language model that writes the summaries. If None, summaries quote the passages.
        prompt: Prompt of the language model. If None, the shipped prompt ``summary`` is used.

    Returns:
        Summary tree. Its vectors are on the CPU.

    Raises:
        ValueError: If the encoder returns non-finite vectors, or not one vector per text.
    """
    prompt, words = prompt or shipped_prompt("summary"), WordTokenizer()

    def grow() -> SummaryTree:
        texts, rows = list(passages), vectors.float().cpu()
        layer = list(range(len(texts)))
        children: list[list[int]] = []
        layers: list[int] = []
        while len(layers) < MAX_LAYERS and len(layer) > NUM_DIMS + 1:
            clusters = cluster_nodes(rows[layer], count_tokens(words, [texts[node] for node in layer]))
            if len(clusters) >= len(layer):
                break
            groups = [[layer[position] for position in cluster] for cluster in clusters]
            members = [[texts[child] for child in group] for group in groups]
            summaries = [quote(each, rows[group], SUMMARY_TOKENS) for each, group in zip(members, groups, strict=True)]
            if language_model is not None:
                written = write_summaries(language_model, members, words, limit=SUMMARY_TOKENS, prompt=prompt)
                summaries = [text or quotation for text, quotation in zip(written, summaries, strict=True)]
            layer = list(range(len(texts), len(texts) + len(groups)))
            texts += summaries
            children += groups
            layers.append(len(groups))
            rows = torch.cat([rows, encode_texts(encoder, summaries)])
        return SummaryTree(len(passages), layers, texts[len(passages) :], children, rows[len(passages) :])

    stages = Stages(folder)
    writer = "extractive" if language_model is None else (language_model.fingerprint, prompt.fingerprint)
    settings = (MAX_LAYERS, NUM_DIMS, MEMBERSHIP, CLUSTER_TOKENS, SUMMARY_TOKENS, SEED)
    key = stages.key("summary_tree", hash_texts(passages).hex(), encoder.fingerprint, settings, writer)
    tree = stages.get(key, SummaryTree, grow)
    sizes = ", ".join(f"{count:,}" for count in tree.layers) or "none"
    logger.info("summary tree: %s passages; summaries by layer: %s", f"{tree.num_passages:,}", sizes)
    return tree


def cluster_nodes(vectors: Tensor, num_tokens: Sequence[int]) -> list[list[int]]:
    """Cluster nodes by their vectors, so that the texts of each cluster are short enough for a summary.

    Args:
        vectors: Vectors of the nodes ``[n, d]``.
        num_tokens: Number of words of each node's text.

    Returns:
        Indices of the nodes in each cluster, ascending. Each node belongs to at least one cluster. A long cluster that
        cannot be divided is returned undivided.
    """
    clusters: dict[tuple[int, ...], None] = {}
    groups = _divide(list(range(len(vectors))), vectors, least=1)
    pending = [cluster for group in groups for cluster in _divide(group, vectors, least=1)]
    while pending:
        cluster = pending.pop(0)
        is_long = sum(num_tokens[position] for position in cluster) > CLUSTER_TOKENS
        subclusters = _divide(cluster, vectors, least=2) if is_long else [cluster]
        if max(map(len, subclusters)) < len(cluster):
            pending = subclusters + pending
        else:
            clusters[tuple(cluster)] = None
    return [list(cluster) for cluster in clusters]


def quote(texts: Sequence[str], vectors: Tensor, limit: int) -> str:
    """Summarise texts by quoting the first sentences of the most representative ones.

    Args:
        texts: Texts of a cluster. Must not be empty.
        vectors: Vectors of the texts ``[n, d]``.
        limit: Maximum number of words.

    Returns:
        First sentences of the selected texts, in the order of the texts. If none of them is short enough, the first
        words of the first text are returned.

    Example:
        >>> quote(["Metz. It is a city. It is old.", "Rome. It is a city."], torch.eye(2), 20)
        'Metz. It is a city. Rome. It is a city.'
    """
    spans = [split_sentences(text)[:OPENING_SENTENCES] or [(0, len(text))] for text in texts]
    openings = [text[span[0][0] : span[-1][1]] for text, span in zip(texts, spans, strict=True)]
    unit = torch.nn.functional.normalize(vectors, dim=1)
    chosen = pick_sentences(unit, count_tokens(WordTokenizer(), openings), limit=limit)
    return " ".join(openings[position] for position in sorted(chosen)) or " ".join(openings[0].split()[:limit])


def _divide(group: list[int], vectors: Tensor, *, least: int) -> list[list[int]]:
    """Cluster nodes with a Gaussian mixture of at least ``least`` components. The number is chosen by BIC."""
    from sklearn.decomposition import PCA
    from sklearn.mixture import GaussianMixture

    rows = vectors[group].double().numpy()
    if len(group) <= NUM_DIMS + 1 or len(np.unique(rows, axis=0)) == 1:
        return [group]
    reduced = PCA(min(NUM_DIMS, rows.shape[1]), random_state=SEED).fit_transform(rows)
    most = len(np.unique(reduced, axis=0)) // 2
    counts = [count for count in _CLUSTERS if least <= count <= max(least, most)]
    mixtures = [GaussianMixture(count, random_state=SEED, reg_covar=1e-4).fit(reduced) for count in counts]
    best = min(mixtures, key=lambda mixture: float(mixture.bic(reduced)))
    probability = best.predict_proba(reduced)
    is_member = (probability >= MEMBERSHIP) | (probability == probability.max(axis=1, keepdims=True))
    return [[group[position] for position in np.flatnonzero(column)] for column in is_member.T if column.any()]
