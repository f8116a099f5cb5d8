"""Steps that search, score, expand and loop: one class per operator."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from graphrerank.core import CandidateGraphs, GraphScorer, GraphScorerFactory, Ranking, RetrieverFactory
from graphrerank.core.adapters import as_graph_scorer
from graphrerank.core.loads_checkpoint import LoadsCheckpoint
from graphrerank.core.ranking import best_of_rows
from graphrerank.core.sparse_rows import pad_rows
from graphrerank.corpus import candidate_edges
from graphrerank.corpus.relations import absent_replacements, lift_replacements
from graphrerank.operators.granker import smooth_vectors
from graphrerank.operators.ppr import CorpusPPR
from graphrerank.operators.stex import semantic_topological_expansion
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources, Step, StepFactory
from graphrerank.utils.checks import UserError, check_counts, check_not_negative, check_share


def with_checkpoint(factory: GraphScorerFactory, checkpoint: str | None) -> GraphScorerFactory:
    """Return a factory whose scorer loads another checkpoint, if its class loads one.

    Args:
        factory: Class of a scorer, or a ``functools.partial`` of one.
        checkpoint: Path or name of the checkpoint. If None, the factory is returned as it is.

    Returns:
        The changed factory, or the same one for a class without the base
        :class:`~graphrerank.core.loads_checkpoint.LoadsCheckpoint`.
    """
    scorer_class = factory.func if isinstance(factory, partial) else factory
    loads_one = isinstance(scorer_class, type) and issubclass(scorer_class, LoadsCheckpoint)
    return partial(factory, checkpoint=checkpoint) if loads_one and checkpoint is not None else factory


class VectorSearch(Step):
    """Retrieve the top of a retriever's ranking; the ranking up to the budget becomes the ``pool``.

    Source: FastInsight, Definition 2 and Algorithm 1, line 1. ``retriever`` is the pipeline's when None.
    """

    def __init__(
        self, resources: Resources, *, top_k: int | None = None, retriever: RetrieverFactory | None = None
    ) -> None:
        check_counts(top_k=top_k)
        self.top_k = min(top_k or resources.budget, resources.budget)
        self._resources = resources
        self._retriever = (retriever or resources.retriever)(resources.graph, top_k=resources.budget)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Replace the retrieved nodes by the retriever's ranking."""
        with self._resources.clock("retrieve"):
            ranking = self._retriever.retrieve(state.queries).to(state.nodes.device)
            width = min(self.top_k, self._resources.graph.num_nodes)
            retrieved = state.with_ranking(ranking.nodes[:, :width], ranking.scores[:, :width])
            if ranking.features is not None:
                names = tuple(self._retriever.feature_names)
                retrieved = replace(retrieved, features=ranking.features[:, :width], feature_names=names)
            return retrieved.with_pool(ranking.nodes)


class Rerank(Step):
    """Rank the retrieved nodes by the cross-encoder's logits; each pair is encoded once.

    Source: FastInsight, Definition 4 (model-based search) and Example 3.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._encoder = resources.cross_encoder

    def run(self, state: RetrievalState) -> RetrievalState:
        """Encode new pairs, and rank all nodes."""
        state = self._resources.encode_pairs(state)
        with self._resources.clock("rerank"):
            return state.scored(self._encoder.head(state.vectors[state.nodes >= 0]))


class GRanker(Step):
    """Rank the retrieved nodes by the head's score of their smoothed vectors (:func:`smooth_vectors`).

    A trained head of the pipeline replaces the cross-encoder's and includes its own smoothing.

    Source: FastInsight, Algorithm 2. *Where we differ:* each pair is encoded once, not each time.
    ``smoothing`` is the weight in [0, 1] of the neighbours' vectors; 0 ranks as :class:`Rerank`.
    """

    def __init__(self, resources: Resources, *, smoothing: float = 0.2) -> None:
        check_share(smoothing=smoothing)
        self.smoothing = smoothing
        self._resources = resources
        self._encoder = resources.cross_encoder
        self._degree = resources.graph.num_neighbours

    def run(self, state: RetrievalState) -> RetrievalState:
        """Encode new pairs, smooth, and rank all nodes."""
        state = self._resources.encode_pairs(state)
        with self._resources.clock("graph"):
            edge_index, _, _, _ = candidate_edges(self._resources.graph, state.nodes)
            row, column = torch.nonzero(state.nodes >= 0, as_tuple=True)
            degree, vectors = self._degree[state.nodes[row, column]], state.vectors[row, column]
        with self._resources.clock("rerank"):
            if self._resources.head is not None:
                return state.scored(self._resources.head.score(vectors, edge_index, degree))
            return state.scored(self._encoder.head(smooth_vectors(vectors, edge_index, degree, self.smoothing)))


class GraphRerank(Step):
    """Rank the result of a vector search, the step before, by a model of its scores and the edges among its nodes.

    A passage that another one supersedes ranks below it (:mod:`~graphrerank.corpus.relations`), which is added if it
    was not retrieved.

    Source: GraphER, section 2; FastInsight, Definition 5 (graph model-based search). ``scorer`` is a factory, such as
    ``graphrerank.rerank.checkpoint_scorer.CheckpointScorer``.
    """

    def __init__(self, resources: Resources, *, scorer: GraphScorerFactory) -> None:
        self._resources = resources
        self._factory = with_checkpoint(scorer, resources.checkpoint)
        self.scorer: GraphScorer = as_graph_scorer(self._factory(resources.graph, text_encoder=resources.text_encoder))

    def factory_over(self, factory: StepFactory) -> StepFactory:
        """Return a factory of this step over another corpus, with the same model where the scorer can share it."""
        return partial(GraphRerank, scorer=self.scorer.factory_over(self._factory))

    def run(self, state: RetrievalState) -> RetrievalState:
        """Build the candidates' graphs, score them, and rank all nodes."""
        with self._resources.clock("graph"):
            graphs = self.candidate_graphs(state)
        with self._resources.clock("rerank"):
            scored, passages = state.scored(self.scorer.score(graphs)), self._resources.graph.passages
            if (absent := absent_replacements(passages, scored.nodes)).shape[1]:
                scored = scored.add(absent, from_graph=scored.from_graph)
            scored = scored.ranked_by(lift_replacements(passages, scored.nodes, scored.scores))
            return scored.top(self._resources.budget)

    def candidate_graphs(self, state: RetrievalState) -> CandidateGraphs:
        """Build the model's input from a vector search's result, nodes in the order of the state."""
        if state.features is None:
            raise UserError(
                "`steps` must have a vector search whose retriever returns features right before a graph reranker, "
                "got nodes without features"
            )
        ranking = Ranking(state.nodes, state.scores, state.features)
        return self.scorer.candidate_graphs(state.queries, ranking, state.feature_names)


class PageRank(Step):
    """Rank the corpus by personalized PageRank from the retrieved nodes (:class:`CorpusPPR`).

    Source: HippoRAG 2, its search over passages, without nodes of phrases and facts; FastInsight, section 4.1.1, adapts
    it to corpus graphs so. *Where we differ:* HippoRAG 2 seeds all passages, with scores scaled to [0, 1]; seeds here
    are the retrieved ones, weighted by their scores minus the lowest one.
    """

    def __init__(self, resources: Resources, *, restart_prob: float = 0.5) -> None:
        self._resources = resources
        self._operator = CorpusPPR(resources.graph, restart_prob=restart_prob)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Replace the retrieved nodes by the best ones of the corpus."""
        with self._resources.clock("graph"):
            lowest = state.scores.masked_fill(state.nodes < 0, torch.inf).amin(1, keepdim=True)
            seeds = Ranking(state.nodes, state.scores - lowest.clamp(max=torch.finfo(lowest.dtype).max))
            ranking = self._operator.expand(seeds, top_k=self._resources.budget)
            return state.with_ranking(ranking.nodes, ranking.scores)


class STeX(Step):
    """Add the next batch of nodes along the graph (:func:`semantic_topological_expansion`).

    Source: FastInsight, Algorithm 1, lines 4 to 6, and Algorithm 3. *Where we differ:* if the retrieved nodes have no
    other neighbour, Algorithm 1 would never end; we take the batch from the rest of the vector search.
    """

    def __init__(self, resources: Resources, *, batch: int = 10, structure_weight: float = 1.0) -> None:
        check_counts(batch=batch)
        check_not_negative(structure_weight=structure_weight)
        _ = resources.graph.encoded
        self.batch = batch
        self.structure_weight = structure_weight
        self._resources = resources

    def run(self, state: RetrievalState) -> RetrievalState:
        """Add up to ``batch`` nodes."""
        with self._resources.clock("graph"):
            limit = self._resources.remaining(state).clamp(max=self.batch)
            neighbours = semantic_topological_expansion(
                self._resources.graph,
                state.ranking,
                state.queries.encoded.to(state.scores.device),
                top_k=self.batch,
                structure_weight=self.structure_weight,
            ).nodes
            from_graph = (neighbours >= 0).any(1)
            position = torch.arange(self.batch, device=neighbours.device)
            neighbours = neighbours.masked_fill(position >= limit.unsqueeze(1), -1)
            others = state.next_in_pool(limit.masked_fill(from_graph, 0))
            return state.add(torch.cat([neighbours, others], dim=1), from_graph=from_graph)


class AlternateFrontier(Step):
    """Add a batch of nodes, alternately from the frontier and from the vector search.

    The frontier is all neighbours of retrieved nodes that are not retrieved, each ranked by the best score of its
    retrieved neighbours, ties broken by node index. If one source is exhausted, the batch comes from the other.

    Source: MacAvaney et al., *Adaptive Re-Ranking with a Corpus Graph*, 2022, Algorithm 1; FastInsight, section 4.1.1
    (budget 100, batch 10). *Where we differ:* the rest of the vector search is not appended to the scored nodes.
    """

    def __init__(self, resources: Resources, *, batch: int = 10) -> None:
        check_counts(batch=batch)
        self.batch = batch
        self._resources = resources

    def run(self, state: RetrievalState) -> RetrievalState:
        """Add up to ``batch`` nodes; the retrieved ones must be scored."""
        with self._resources.clock("graph"):
            limit = self._resources.remaining(state).clamp(max=self.batch)
            frontier, pool = self._frontier(state, limit), state.next_in_pool(limit)
            is_graph_turn = ~state.from_graph | ~(pool >= 0).any(1)
            from_graph = is_graph_turn & (frontier >= 0).any(1)
            nodes = [frontier.masked_fill(~from_graph[:, None], -1), pool.masked_fill(from_graph[:, None], -1)]
            return state.add(torch.cat(nodes, dim=1), from_graph=from_graph)

    def _frontier(self, state: RetrievalState, limit: Tensor) -> Tensor:
        """Return the best ``limit [B]`` nodes of each frontier, padded with -1."""
        num_nodes = self._resources.graph.num_nodes
        row, column = torch.nonzero(state.nodes >= 0, as_tuple=True)
        origin, neighbour = self._resources.graph.neighbours(state.nodes[row, column])
        key, position = torch.unique(row[origin] * num_nodes + neighbour, return_inverse=True)
        best = state.scores.new_full(key.shape, -torch.inf)
        best.scatter_reduce_(0, position, state.scores[row, column][origin], "amax")
        is_new = ~torch.isin(key, row * num_nodes + state.nodes[row, column])
        key, best = key[is_new], best[is_new]  # by row and node index
        key = key[best_of_rows(key // num_nodes, best, limit)]
        return pad_rows(key // num_nodes, key % num_nodes, len(state.nodes), fill=-1)


class UntilBudget(Step):
    """Repeat steps until every query has the budget or the corpus, or none adds a node (FastInsight, Algorithm 1)."""

    def __init__(self, resources: Resources, *, steps: Sequence[StepFactory]) -> None:
        self._resources = resources
        self._steps = resources.build(steps)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Repeat the steps."""
        while bool(self._resources.remaining(state).any()):
            before = state.num_retrieved
            for step in self._steps:
                state = step.run(state)
            if bool((state.num_retrieved <= before).all()):
                break
        return state
