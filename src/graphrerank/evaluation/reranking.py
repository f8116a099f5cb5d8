"""Rerank the candidates of a data set with one system in batches."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from graphrerank.calibration.labelled_lists import LabelledLists
from graphrerank.core import CandidateGraphs, ModelInputs, Ranking
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.qrels import Qrels
from graphrerank.evaluation.measuring import measure_ranking
from graphrerank.evaluation.systems import System
from graphrerank.utils.progress import progress_bar, step

BATCH_QUERIES = 64  # number of queries whose candidates are scored in one forward pass
#: Number of queries per batch of states of tokens, which take some tens of MiB per query.
BATCH_STATES_QUERIES = 4


@torch.inference_mode()
def rerank(prepared: PreparedDataset, queries: Tensor, system: System) -> Ranking:
    """Rerank the candidates of queries in batches.

    Args:
        prepared: Data set with the candidates of its queries.
        queries: Indices of the queries to rerank, ``[Q]`` int64.
        system: System that scores the candidates.

    Returns:
        Ranking ``[Q, top_k]``, best first, padded with node -1 and score ``-inf``.

    Raises:
        ValueError: If a score is NaN.
    """
    batches = list[Ranking]()
    with progress_bar(f"ranking {prepared.dataset.name} with {system.name}", len(queries)):
        for batch in torch.split(queries, BATCH_STATES_QUERIES if system.inputs.last_layers else BATCH_QUERIES):
            with step(len(batch)):
                graphs = prepared.graphs(batch, inputs=system.inputs)
                batches.append(rerank_batch(graphs, system, prepared.top_k))
    nodes = torch.cat([ranking.nodes for ranking in batches])
    return Ranking(nodes, torch.cat([ranking.scores for ranking in batches]))


def rerank_batch(graphs: CandidateGraphs, system: System, top_k: int) -> Ranking:
    """Rerank one batch of candidate graphs.

    Args:
        graphs: Candidate graphs of ``B`` queries.
        system: System that scores the candidates.
        top_k: Number of columns of the result. Must be at least the number of candidates of each query.

    Returns:
        Ranking ``[B, top_k]``, best first, padded with node -1 and score ``-inf``.

    Raises:
        ValueError: If a score is NaN.
    """
    node_scores = system.score(graphs).cpu().float()
    order = graphs.order(node_scores)
    is_padding, position = order < 0, order.clamp(min=0)
    assert graphs.nodes is not None
    nodes = graphs.nodes[position].masked_fill(is_padding, -1)
    scores = node_scores[position].masked_fill(is_padding, -torch.inf)
    padding = (0, top_k - nodes.shape[1])
    return Ranking(
        torch.nn.functional.pad(nodes, padding, value=-1), torch.nn.functional.pad(scores, padding, value=-torch.inf)
    )


@torch.inference_mode()
def measure_queries(
    prepared: PreparedDataset, split: str, system: System, *, measures: Sequence[str]
) -> dict[str, Tensor]:
    """Rerank the candidates of a split's queries with one system, and compute the scores of each query.

    Args:
        prepared: Data set with the candidates of its queries.
        split: Split whose queries and judgements are used.
        system: System that scores the candidates.
        measures: Names of measures, such as ``nDCG@10``.

    Returns:
        Scores ``[Q]`` (float64) by measure (:func:`~graphrerank.evaluation.measuring.measure_ranking`).
    """
    qrels = prepared.dataset.split(split)
    return measure_ranking(prepared.dataset, qrels, qrels.queries, rerank(prepared, qrels.queries, system), measures)


def labelled_lists(prepared: PreparedDataset, split: str, system: System) -> LabelledLists:
    """Rank all candidates of a split's queries, and look up their judgements.

    Args:
        prepared: Data set with the candidates of its queries.
        split: Split whose queries and judgements are used.
        system: System that scores the candidates.

    Returns:
        Rankings with their judgements.
    """
    qrels = prepared.dataset.split(split)
    ranking = rerank(prepared, qrels.queries, system)
    return label_ranking(ranking, qrels, qrels.queries, num_nodes=prepared.dataset.graph.num_nodes)


def label_ranking(ranking: Ranking, qrels: Qrels, queries: Tensor, *, num_nodes: int) -> LabelledLists:
    """Look up the judgements of ranked passages.

    Args:
        ranking: Ranking ``[Q, K]``.
        qrels: Judgements of the ranked queries.
        queries: Indices of the queries, ``[Q]`` int64.
        num_nodes: Number of passages in the corpus.

    Returns:
        Ranking with its judgements.
    """
    relevant = qrels.relevance(queries, ranking.nodes, num_nodes=num_nodes) > 0
    return LabelledLists(ranking.scores, relevant, (qrels.gains(queries) > 0).sum(1))


def trained_system(name: str, model: nn.Module, device: torch.device) -> System:
    """Wrap a trained model as a system.

    Args:
        name: Name of the system in reports.
        model: Trained reranker. It is moved to ``device`` and set to evaluation mode.
        device: Device on which the model scores candidates.

    Returns:
        System that reranks with the model.
    """
    model = model.to(device).eval()
    inputs = cast(ModelInputs, model.inputs)

    def score(graphs: CandidateGraphs) -> Tensor:
        scores: Tensor = model(*graphs.to(device).model_inputs(inputs))
        return scores

    return System(name, score, inputs=inputs)
