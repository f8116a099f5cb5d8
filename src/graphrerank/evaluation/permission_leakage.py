"""Measure what results would reveal about hidden passages if permissions were only applied after ranking."""

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from graphrerank.core import Queries, Ranking, RetrieverFactory
from graphrerank.corpus import CorpusGraph
from graphrerank.data.dataset import Dataset

DEPTH = 10  # number of passages per result
MAX_CALLERS = 20  # number of simulated callers with one principal; a caller without principals is added


@dataclass(frozen=True)
class PermissionLeakage:
    """Fractions of results that reveal hidden passages, over all pairs of a question and a caller.

    Attributes:
        num_callers: Number of callers.
        num_questions: Number of questions.
        changed: Fraction of pairs for which ranking the whole corpus and filtering afterwards gives another result than
            ranking only the passages that the caller may see.
        shown: Fraction of pairs for which the unfiltered result contains a passage that the caller may not see.
    """

    num_callers: int
    num_questions: int
    changed: float
    shown: float

    def __str__(self) -> str:
        """Summarise the leakage in a sentence."""
        return (
            f"{self.num_questions:,} questions, each by {self.num_callers} callers: without a filter, {self.shown:.1%} "
            f"of the top-{DEPTH} results contain a hidden passage; with a filter after ranking, {self.changed:.1%} "
            "reveal hidden passages, because they differ from the results without those passages"
        )


def crossing_edges(graph: CorpusGraph) -> tuple[int, int]:
    """Count the edges of a corpus, and the edges between passages with different principals.

    Args:
        graph: Corpus graph. Edges with access restrictions are included.

    Returns:
        Number of undirected edges, and number of those whose ends have different principals.

    Example:
        >>> from graphrerank.corpus.metadata import Metadata
        >>> graph = CorpusGraph.from_edges(list("abc"), [""] * 3, torch.tensor([[0, 1], [1, 2]]))
        >>> crossing_edges(graph.with_passages(metadata=Metadata([{}, {}, {"principals": ["hr"]}])))
        (2, 1)
    """
    edges, _, _ = graph.typed_edges()
    if graph.guarded is not None:
        edges = torch.cat([edges.cpu(), graph.guarded.pairs])
    pairs = torch.unique(edges.cpu().sort(dim=1).values, dim=0)
    number_of = dict[frozenset[str] | None, int]()
    metadata = graph.passages.metadata
    audiences = [None] * graph.num_nodes if metadata is None else metadata.audiences()
    label = torch.tensor([number_of.setdefault(audience, len(number_of)) for audience in audiences])
    return len(pairs), int((label[pairs[:, 0]] != label[pairs[:, 1]]).sum()) if len(pairs) else 0


def measure_leakage(
    dataset: Dataset, queries: Queries, ranking: Ranking, build_retriever: RetrieverFactory
) -> PermissionLeakage:
    """Compare a filtered ranking of the whole corpus with rankings of the passages that each caller may see.

    Args:
        dataset: Data set whose passages have principals.
        queries: Questions of the data set.
        ranking: Ranking of the whole corpus for these questions, ``[Q, K]``.
        build_retriever: Function that builds the retriever for the visible part of the corpus.

    Returns:
        Fractions of results that would reveal hidden passages.
    """
    graph = dataset.graph
    metadata = graph.passages.metadata
    audiences = [] if metadata is None else metadata.audiences()
    principals = Counter(name for names in audiences for name in names or ())
    callers = [frozenset[str](), *(frozenset([name]) for name, _ in principals.most_common(MAX_CALLERS))]
    changed = torch.zeros(())  # sum over the callers
    revealed = torch.zeros(())
    for caller in callers:
        visible = dataset.seen_by(caller)
        nodes = torch.arange(graph.num_nodes) if visible.part_of is None else visible.part_of[1]
        number = torch.full((graph.num_nodes + 1,), -1)
        number[nodes] = torch.arange(len(nodes))
        top_of_visible = torch.full((len(queries), 0), -1)
        if visible.num_nodes:
            top_of_visible = build_retriever(visible).retrieve(queries).nodes[:, :DEPTH].cpu()
        ranked = ranking.nodes.cpu()
        numbers = number[ranked]  # in the visible graph, -1 for hidden passages and padding
        is_hidden = (numbers < 0) & (ranked >= 0)
        changed += (_first(numbers) != _padded(top_of_visible)).any(1).float().mean()
        revealed += is_hidden[:, :DEPTH].any(1).float().mean()
    num_callers = len(callers)
    return PermissionLeakage(num_callers, len(queries), float(changed) / num_callers, float(revealed) / num_callers)


def _first(nodes: Tensor) -> Tensor:
    """Return the first ``DEPTH`` nodes of each row that are not padding (-1), as ``[B, DEPTH]``."""
    order = torch.argsort((nodes < 0).long(), dim=1, stable=True)
    return _padded(nodes.gather(1, order)[:, :DEPTH])


def _padded(nodes: Tensor) -> Tensor:
    return torch.nn.functional.pad(nodes, (0, DEPTH - nodes.shape[1]), value=-1)
