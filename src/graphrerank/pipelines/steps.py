"""Steps of pipelines that search, rank and expand. There is one class per operator."""

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
    """Return a factory of graph scorers that loads another checkpoint.

    Args:
        factory: Class of a scorer, or a ``functools.partial`` of a class.
        checkpoint: Name or path of the checkpoint. If None, the factory is returned unchanged.

    Returns:
        Factory with the checkpoint. A factory of a class that is not derived from
        :class:`~graphrerank.core.loads_checkpoint.LoadsCheckpoint` is returned unchanged.
    """
    scorer_class = factory.func if isinstance(factory, partial) else factory
    loads_one = isinstance(scorer_class, type) and issubclass(scorer_class, LoadsCheckpoint)
    return partial(factory, checkpoint=checkpoint) if loads_one and checkpoint is not None else factory


class VectorSearch(Step):
    """Retrieve the top nodes of a retriever's ranking. The ranking up to the budget becomes the ``pool``.

    Source: FastInsight, Definition 2 and Algorithm 1, line 1.

    Args:
        resources: Resources of the pipeline.
        top_k: Number of nodes to retrieve, at most the budget. If None, the budget.
        retriever: Factory of the retriever. If None, the retriever of the pipeline.

    Raises:
        UserError: If ``top_k`` is not positive.
    """

    def __init__(
        self, resources: Resources, *, top_k: int | None = None, retriever: RetrieverFactory | None = None
    ) -> None:
        check_counts(top_k=top_k)
        self.top_k = min(top_k or resources.budget, resources.budget)
        self._resources = resources
        self._retriever = (retriever or resources.retriever)(resources.graph, top_k=resources.budget)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Replace the retrieved nodes by the ranking of the retriever.

        Args:
            state: State after the previous step.

        Returns:
            State after this step. A step that retrieves returns at most ``budget`` nodes per query.
        """
        with self._resources.clock("retrieve"):
            ranking = self._retriever.retrieve(state.queries).to(state.nodes.device)
            width = min(self.top_k, self._resources.graph.num_nodes)
            retrieved = state.with_ranking(ranking.nodes[:, :width], ranking.scores[:, :width])
            if ranking.features is not None:
                names = tuple(self._retriever.feature_names)
                retrieved = replace(retrieved, features=ranking.features[:, :width], feature_names=names)
            return retrieved.with_pool(ranking.nodes)


class Rerank(Step):
    """Rank the retrieved nodes by the logits of the cross-encoder. Each pair is encoded once.

    Source: FastInsight, Definition 4 (model-based search) and Example 3.

    Args:
        resources: Resources of the pipeline, with a cross-encoder.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._encoder = resources.cross_encoder

    def run(self, state: RetrievalState) -> RetrievalState:
        """Encode new pairs, and rank all retrieved nodes.

        Args:
            state: State after the previous step.

        Returns:
            State after this step. A step that retrieves returns at most ``budget`` nodes per query.
        """
        state = self._resources.encode_pairs(state)
        with self._resources.clock("rerank"):
            return state.scored(self._encoder.head(state.vectors[state.nodes >= 0]))


class GRanker(Step):
    """Rank the retrieved nodes by the head of the cross-encoder, applied to vectors that are smoothed over edges.

    The vectors are smoothed by :func:`~graphrerank.operators.granker.smooth_vectors`. If the pipeline has a trained
    head, it replaces the head of the cross-encoder and performs its own smoothing.

    Source: FastInsight, Algorithm 2. *Differences from the paper:* each pair is encoded only once.

    Args:
        resources: Resources of the pipeline, with a cross-encoder.
        smoothing: Weight of the neighbours' vectors, in [0, 1]. With 0 the ranking is that of :class:`Rerank`.

    Raises:
        UserError: If ``smoothing`` is outside [0, 1], or if there is no cross-encoder.
    """

    def __init__(self, resources: Resources, *, smoothing: float = 0.2) -> None:
        check_share(smoothing=smoothing)
        self.smoothing = smoothing
        self._resources = resources
        self._encoder = resources.cross_encoder
        self._degree = resources.graph.num_neighbours

    def run(self, state: RetrievalState) -> RetrievalState:
        """Encode new pairs, smooth the vectors, and rank all retrieved nodes.

        Args:
            state: State after the previous step.

        Returns:
            State after this step. A step that retrieves returns at most ``budget`` nodes per query.
        """
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
    """Rank the result of a vector search with a graph reranker. The vector search must be the previous step.

    A passage that is superseded by another passage is ranked below it (:mod:`~graphrerank.corpus.relations`). The
    superseding passage is added if it was not retrieved.

    Source: GraphER, section 2; FastInsight, Definition 5 (graph model-based search).

    Args:
        resources: Resources of the pipeline.
        scorer: Factory of the model, such as :class:`~graphrerank.rerank.checkpoint_scorer.CheckpointScorer`.
    """

    def __init__(self, resources: Resources, *, scorer: GraphScorerFactory) -> None:
        self._resources = resources
        self._factory = with_checkpoint(scorer, resources.checkpoint)
        self.scorer: GraphScorer = as_graph_scorer(self._factory(resources.graph, text_encoder=resources.text_encoder))

    def factory_over(self, factory: StepFactory) -> StepFactory:
        """Return a factory of this step for another corpus, which shares the model if the scorer supports it.

        Args:
            factory: Factory that built this step.
        """
        return partial(GraphRerank, scorer=self.scorer.factory_over(self._factory))

    def run(self, state: RetrievalState) -> RetrievalState:
        """Build the candidate graphs, score them, and rank all nodes.

        Args:
            state: State after the previous step.

        Returns:
            State after this step. A step that retrieves returns at most ``budget`` nodes per query.
        """
        with self._resources.clock("graph"):
            graphs = self.candidate_graphs(state)
        with self._resources.clock("rerank"):
            scored, passages = state.scored(self.scorer.score(graphs)), self._resources.graph.passages
            if (absent := absent_replacements(passages, scored.nodes)).shape[1]:
                scored = scored.add(absent, from_graph=scored.from_graph)
            scored = scored.ranked_by(lift_replacements(passages, scored.nodes, scored.scores))
            return scored.top(self._resources.budget)

    def candidate_graphs(self, state: RetrievalState) -> CandidateGraphs:
        """Build the input of the model from the result of a vector search.

        Args:
            state: State after a vector search.

        Returns:
            One graph per query, with the nodes in the order of the state.

        Raises:
            UserError: If the state has no features.
        """
        if state.features is None:
            raise UserError(
                "`steps` must contain a vector search with features immediately before a graph reranker, got nodes "
                "without features"
            )
        ranking = Ranking(state.nodes, state.scores, state.features)
        return self.scorer.candidate_graphs(state.queries, ranking, state.feature_names)


class PageRank(Step):
    """Rank the corpus by personalized PageRank that restarts at the retrieved nodes.

    Source: search over passages of HippoRAG 2, without nodes for phrases and facts, as adapted to corpus graphs by
    FastInsight, section 4.1.1. *Differences from the paper:* HippoRAG 2 restarts at all passages, weighted by scores
    that are scaled to [0, 1]. Here only the retrieved nodes are seeds, weighted by their scores minus the lowest score.

    Args:
        resources: Resources of the pipeline.
        restart_prob: Probability of returning to the seeds at each step, in (0, 1].
    """

    def __init__(self, resources: Resources, *, restart_prob: float = 0.5) -> None:
        self._resources = resources
        self._operator = CorpusPPR(resources.graph, restart_prob=restart_prob)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Replace the retrieved nodes by the best nodes of the corpus.

        Args:
            state: State after the previous step.

        Returns:
            State after this step. A step that retrieves returns at most ``budget`` nodes per query.
        """
        with self._resources.clock("graph"):
            lowest = state.scores.masked_fill(state.nodes < 0, torch.inf).amin(1, keepdim=True)
            seeds = Ranking(state.nodes, state.scores - lowest.clamp(max=torch.finfo(lowest.dtype).max))
            ranking = self._operator.expand(seeds, top_k=self._resources.budget)
            return state.with_ranking(ranking.nodes, ranking.scores)


class STeX(Step):
    """Add the next batch of nodes by semantic-topological expansion (STeX) along the edges of the graph.

    The neighbours are ranked by :func:`~graphrerank.operators.stex.semantic_topological_expansion`.

    Source: FastInsight, Algorithm 1, lines 4 to 6, and Algorithm 3. *Differences from the paper:* Algorithm 1 does not
    terminate if the retrieved nodes have no further neighbours. Here the batch is then taken from the rest of the
    vector search.

    Args:
        resources: Resources of the pipeline. The graph must have vectors.
        batch: Maximum number of nodes to add per query.
        structure_weight: Weight of the structural score of a neighbour. Must not be negative.

    Raises:
        UserError: If a number is invalid, or if the graph has no vectors.
    """

    def __init__(self, resources: Resources, *, batch: int = 10, structure_weight: float = 1.0) -> None:
        check_counts(batch=batch)
        check_not_negative(structure_weight=structure_weight)
        _ = resources.graph.encoded
        self.batch = batch
        self.structure_weight = structure_weight
        self._resources = resources

    def run(self, state: RetrievalState) -> RetrievalState:
        """Add up to ``batch`` nodes.

        Args:
            state: State after the previous step.

        Returns:
            State after this step. A step that retrieves returns at most ``budget`` nodes per query.
        """
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

    The frontier consists of all neighbours of retrieved nodes that are not yet retrieved. It is ranked by the best
    score among a node's retrieved neighbours, and ties are broken by node index. If one source is exhausted, the batch
    is taken from the other source.

    Source: MacAvaney et al., *Adaptive Re-Ranking with a Corpus Graph*, 2022, Algorithm 1; FastInsight, section 4.1.1
    (budget 100, batch 10). *Differences from the paper:* the rest of the vector search is not appended to the scored
    nodes.

    Args:
        resources: Resources of the pipeline.
        batch: Maximum number of nodes to add per query.

    Raises:
        UserError: If ``batch`` is not positive.
    """

    def __init__(self, resources: Resources, *, batch: int = 10) -> None:
        check_counts(batch=batch)
        self.batch = batch
        self._resources = resources

    def run(self, state: RetrievalState) -> RetrievalState:
        """Add up to ``batch`` nodes. All retrieved nodes must be scored.

        Args:
            state: State after the previous step.

        Returns:
            State after this step. A step that retrieves returns at most ``budget`` nodes per query.
        """
        with self._resources.clock("graph"):
            limit = self._resources.remaining(state).clamp(max=self.batch)
            frontier, pool = self._frontier(state, limit), state.next_in_pool(limit)
            is_graph_turn = ~state.from_graph | ~(pool >= 0).any(1)
            from_graph = is_graph_turn & (frontier >= 0).any(1)
            nodes = [frontier.masked_fill(~from_graph[:, None], -1), pool.masked_fill(from_graph[:, None], -1)]
            return state.add(torch.cat(nodes, dim=1), from_graph=from_graph)

    def _frontier(self, state: RetrievalState, limit: Tensor) -> Tensor:
        """Return the best nodes of each frontier, at most ``limit`` (``[B]``) per query, with padding -1."""
        num_nodes = self._resources.graph.num_nodes
        row, column = torch.nonzero(state.nodes >= 0, as_tuple=True)
        origin, neighbour = self._resources.graph.neighbours(state.nodes[row, column])
        key, position = torch.unique(row[origin] * num_nodes + neighbour, return_inverse=True)
        best = state.scores.new_full(key.shape, -torch.inf)
        best.scatter_reduce_(0, position, state.scores[row, column][origin], "amax")
        is_new = ~torch.isin(key, row * num_nodes + state.nodes[row, column])
        key, best = key[is_new], best[is_new]  # sorted by row and then by node index
        key = key[best_of_rows(key // num_nodes, best, limit)]
        return pad_rows(key // num_nodes, key % num_nodes, len(state.nodes), fill=-1)


class UntilBudget(Step):
    """Repeat steps until the budget of every query is used up, or until no step adds a node.

    Source: FastInsight, Algorithm 1.

    Args:
        resources: Resources of the pipeline.
        steps: Factories of the steps to repeat.
    """

    def __init__(self, resources: Resources, *, steps: Sequence[StepFactory]) -> None:
        self._resources = resources
        self._steps = resources.build(steps)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Repeat the steps.

        Args:
            state: State after the previous step.

        Returns:
            State after this step. A step that retrieves returns at most ``budget`` nodes per query.
        """
        while bool(self._resources.remaining(state).any()):
            before = state.num_retrieved
            for step in self._steps:
                state = step.run(state)
            if bool((state.num_retrieved <= before).all()):
                break
        return state
