"""The GATv2 reranker of GraphER, in three feature modes.

Notable about it:

- ``scores`` reads no embedding: one checkpoint serves any encoder and any corpus. Its output is ``t * GCS + delta``
  with delta zero at the start, so training begins at GCS (ours; the paper has no such residual).
- ``paper`` reads GCS score, query vector and node vector, concatenated, as the paper does.
- ``full`` reads what ``scores`` reads, and projected query and node vectors with their product and dot product. Same
  residual. Both projections start equal, so that the dot product starts as a similarity.
- A list with nothing but one score and no edge keeps its order in ``scores``: there is nothing to rerank by.
- Plain tensors in and out: the module scripts, and does GCS and all normalisation inside itself.
- With ``num_pair_scores`` a separate linear layer reads a cross-encoder's scores, and adds nothing if there are none:
  trained alone, behind finished weights, it leaves scores without them unchanged, to the last bit.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphrerank.core import Reranker
from graphrerank.core.graph_algebra import graph_of_nodes, scatter_max, scatter_sum
from graphrerank.core.model_inputs import SCORES, VECTORS, ModelInputs
from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.models.gatv2 import GATv2Block, GATv2Layer, PerNodeLayer, attention_edges
from graphrerank.models.score_features import PAIR_EVIDENCE, ScoreFeatures, pair_evidence
from graphrerank.utils.checks import UserError, check_choice, check_counts, check_share

FEATURE_MODES = ("scores", "paper", "full")


class PairHead(nn.Module):
    r"""Score the pairs that edges join, and give each node the best of its pairs.

    .. math:: p_i = \max_{j \to i} a^\top \mathrm{ReLU}(\Theta_s h_j + \Theta_t h_i + \Theta_e e_{ij})

    Ours: attention averages over neighbours, while a question of two steps needs one partner, whatever the others are.
    Zero at the start, and for a node without an edge.
    """

    def __init__(self, channels: int, edge_dim: int) -> None:
        super().__init__()
        self.lin_source = nn.Linear(channels, channels)
        self.lin_target = nn.Linear(channels, channels)
        self.lin_edge = nn.Linear(edge_dim, channels, bias=False) if edge_dim else None
        self.lin_out = nn.Linear(channels, 1, bias=False)
        nn.init.zeros_(self.lin_out.weight)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Score every node of ``x [N, channels]``, with ``edge_attr [E, edge_dim]``: ``[N]``."""
        of_source = self.lin_source(x).index_select(0, edge_index[0])
        of_target = self.lin_target(x).index_select(0, edge_index[1])
        hidden = of_source + of_target
        if self.lin_edge is not None:
            hidden = hidden + self.lin_edge(edge_attr)
        pairs = self.lin_out(F.relu(hidden)).squeeze(1)
        return scatter_max(pairs, edge_index[1], x.shape[0])


class GATv2Reranker(Reranker):
    """Score the candidates of a batch of queries from their features and the edges among them.

    Source: GraphER, section 2.2 ("Graph attention network ranker"): GATv2 layers, then two fully connected layers.
    Where we differ: a linear layer with a ReLU before them, residual connections, layer normalisation and dropout; GCS
    of scores scaled within the list; the modes ``scores`` and ``full``.

    Args:
        features: What the model reads of a candidate: ``scores`` (scores of the retriever and of the graph), ``paper``
            (the GCS score and both vectors) or ``full`` (both).
        num_scores: Number of scores per candidate from the retriever. Column 0 is the score that it ranks by.
        embedding_dim: Width of query and node vectors. Only used by ``paper`` and ``full``.
        projection_channels: Width of the projected vectors in ``full``.
        hidden_channels: Width of the layers; a multiple of ``heads``.
        num_layers: Number of GATv2 layers. The paper has 5.
        heads: Number of attention heads per layer.
        dropout: Probability of dropping an activation in training, in [0, 1).
        residual: Whether each layer adds its input to its output.
        edge_features: Whether attention reads the weight of an edge.
        num_edge_types: Number of edge types that attention and features read; 0 if types are merged.
        num_words: How many of the last scores are ``WORD_FEATURES`` of :mod:`graphrerank.features.text_match`. Not used
            by ``paper``.
        num_pair_scores: How many scores before the words are a cross-encoder's (``CROSS_ENCODER_FEATURES``). Not used
            by ``paper``.
        pair_evidence: Whether edges and features measure which of the query's words both ends of an edge cover.
        pair_head: Whether the score of each candidate's best pair is added.
        message_passing: If False, the paper's MLP ablation: the same depth and features without edges.
        restart_prob: Share of a node's own score in each step of GCS, in [0, 1].

    Raises:
        ValueError: If a size is not positive, ``features`` is unknown, or sizes do not fit each other.
    """

    def __init__(
        self,
        *,
        features: str = "scores",
        num_scores: int = 3,
        embedding_dim: int = 384,
        projection_channels: int = 64,
        hidden_channels: int = 64,
        num_layers: int = 3,
        heads: int = 4,
        dropout: float = 0.1,
        residual: bool = True,
        edge_features: bool = False,
        num_edge_types: int = 0,
        num_words: int = 0,
        num_pair_scores: int = 0,
        pair_evidence: bool = True,
        pair_head: bool = False,
        message_passing: bool = True,
        restart_prob: float = 0.5,
    ) -> None:
        super().__init__()
        check_choice(FEATURE_MODES, features=features)
        check_counts(num_scores=num_scores, num_layers=num_layers, heads=heads, hidden_channels=hidden_channels)
        check_counts(embedding_dim=embedding_dim, projection_channels=projection_channels)
        check_share(dropout=dropout)
        if hidden_channels % heads:
            raise UserError(f"`hidden_channels` must be a multiple of `heads` ({heads}), got {hidden_channels}")
        if num_edge_types not in (0, len(EDGE_TYPES)):
            raise UserError(f"`num_edge_types` must be 0 or {len(EDGE_TYPES)}, got {num_edge_types}")
        self.features = features
        self.embedding_dim = embedding_dim
        self.edge_features = edge_features
        self.num_edge_types = num_edge_types
        self.num_words = num_words
        self.score_features = ScoreFeatures(
            num_scores=num_scores,
            num_words=num_words,
            pairs=pair_evidence,
            restart_prob=restart_prob,
            num_edge_types=0 if features == "paper" else num_edge_types,
        )
        self.pair_evidence = self.score_features.pairs
        if not 0 <= num_pair_scores < self.score_features.num_scores:
            raise UserError(
                f"`num_pair_scores` must lie in [0, {self.score_features.num_scores}), the scores that are no words, "
                f"got {num_pair_scores}"
            )
        of_pairs = [] if features == "paper" else self.score_features.columns_of_pairs(num_pair_scores)
        num_columns = self.score_features.num_columns - len(of_pairs)
        in_channels = {
            "scores": num_columns,
            "paper": 1 + 2 * embedding_dim,
            "full": num_columns + 3 * projection_channels + 1,
        }[features]
        self.inputs = self.inputs_of(features=features, num_edge_types=num_edge_types)
        self.project_query = nn.Linear(embedding_dim, projection_channels) if features == "full" else nn.Identity()
        self.project_node = deepcopy(self.project_query)
        self.lin_in = nn.Linear(in_channels, hidden_channels)
        self.lin_pairs = nn.Linear(len(of_pairs), hidden_channels, bias=False) if of_pairs else None
        others = sorted(set(range(self.score_features.num_columns)).difference(of_pairs))
        self.register_buffer("of_pairs", torch.tensor(of_pairs, dtype=torch.int64), persistent=False)
        self.register_buffer("of_others", torch.tensor(others, dtype=torch.int64), persistent=False)
        edge_dim = int(edge_features) + num_edge_types + (len(PAIR_EVIDENCE) if self.pair_evidence else 0)
        self.blocks = nn.ModuleList(
            GATv2Block(
                hidden_channels,
                self.build_layer(hidden_channels, heads, edge_dim, dropout)
                if message_passing
                else PerNodeLayer(hidden_channels),
                dropout,
                residual=residual,
            )
            for _ in range(num_layers)
        )
        self.pair_head = PairHead(hidden_channels, edge_dim) if pair_head and message_passing else None
        self.norm = nn.LayerNorm(hidden_channels)
        self.lin_hidden = nn.Linear(hidden_channels, hidden_channels)
        self.lin_out = nn.Linear(hidden_channels, 1)
        self.gcs_weight = nn.Parameter(torch.tensor(1.0)) if features != "paper" else None
        if features != "paper":
            nn.init.zeros_(self.lin_out.weight)
            nn.init.zeros_(self.lin_out.bias)
        if self.lin_pairs is not None:
            nn.init.zeros_(self.lin_pairs.weight)

    def build_layer(self, channels: int, heads: int, edge_dim: int, dropout: float) -> nn.Module:
        """Build one layer of messages; a subclass with other layers overrides this and :meth:`layer_edges`.

        Args:
            channels: Width of the layer's input and output.
            heads: Number of attention heads; ``channels`` is a multiple of it.
            edge_dim: Width of the edge attributes, 0 if there are none.
            dropout: Probability of dropping an attention weight in training.

        Returns:
            A module with the signature of :meth:`~graphrerank.models.gatv2.GATv2Layer.forward`.
        """
        return GATv2Layer(channels, channels // heads, heads=heads, edge_dim=edge_dim, dropout=dropout)

    def layer_edges(self, edge_index: Tensor, edge_attr: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
        """Prepare the edges once for all layers.

        Args:
            edge_index: Edges ``[2, E]`` in any order.
            edge_attr: Edge attributes ``[E, edge_dim]``.
            num_nodes: Number of nodes of the batch.

        Returns:
            ``edge_index``, ``edge_attr`` and ``rowptr`` for the layers, here those of
            :func:`~graphrerank.models.gatv2.attention_edges`.
        """
        return attention_edges(edge_index, edge_attr, num_nodes)

    @staticmethod
    def inputs_of(*, features: str = "scores", num_edge_types: int = 0, **_: Any) -> ModelInputs:
        """Return the inputs of a model with these arguments."""
        inputs = SCORES if features == "scores" else VECTORS
        return inputs.with_edge_types() if num_edge_types else inputs

    def feature_names(self, score_names: Sequence[str]) -> list[str]:
        """Name the features of a candidate, in order, given the names of the retriever's scores."""
        if self.features == "paper":
            return ["gcs", "query_vector", "node_vector"]
        names = self.score_features.names(score_names)
        return names if self.features == "scores" else [*names, "query_vector", "node_vector", "product", "dot_product"]

    def forward(
        self,
        base_features: Tensor,
        query_vectors: Tensor,
        node_vectors: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor,
        ptr: Tensor,
        edge_type: Tensor | None = None,
    ) -> Tensor:
        """Score every candidate: ``[N]``; higher is more relevant, comparable within a query only.

        ``base_features`` ``[N, num_scores]`` are the retriever's scores; ``query_vectors [B, embedding_dim]`` and
        ``node_vectors [N, embedding_dim]`` may be any ``[0, 0]`` tensors in ``scores`` mode. Edges ``[2, E]``, in any
        order, have weights and types ``[E]``, which are not read without ``num_edge_types``.
        """
        gcs_scores, learned = self.score_parts(
            base_features, query_vectors, node_vectors, edge_index, edge_weight, ptr, edge_type
        )
        return gcs_scores + learned

    def score_parts(
        self,
        base_features: Tensor,
        query_vectors: Tensor,
        node_vectors: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor,
        ptr: Tensor,
        edge_type: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Score as :meth:`forward`, in two parts: ``[N]`` GCS's, 0 in ``paper`` mode, and ``[N]`` the network's."""
        num_nodes = base_features.shape[0]
        scores = self.score_features(base_features, edge_index, edge_weight, ptr, edge_type)
        num_scores = base_features.shape[1] - self.num_words
        gcs = scores[:, num_scores]
        graph = graph_of_nodes(ptr, num_nodes)
        evidence = _has_evidence(scores[:, 1:num_scores], edge_index, graph, ptr.numel() - 1)
        pairs = scores
        if self.lin_pairs is not None:
            pairs, scores = scores.index_select(1, self.of_pairs), scores.index_select(1, self.of_others)
        if self.features == "paper":
            x = torch.cat([gcs.unsqueeze(1), query_vectors.index_select(0, graph), node_vectors], dim=1)
        elif self.features == "full":
            query = self.project_query(query_vectors).index_select(0, graph)
            node = self.project_node(node_vectors)
            product = query * node
            x = torch.cat([scores, query, node, product, product.sum(1, keepdim=True)], dim=1)
        else:
            x = scores
        x = self.lin_in(x)
        if self.lin_pairs is not None:
            x = x + self.lin_pairs(pairs)
        x = F.relu(x)
        edge_attr = edge_weight.unsqueeze(1) if self.edge_features else edge_weight.new_zeros([edge_weight.numel(), 0])
        if self.num_edge_types > 0:
            assert edge_type is not None
            types = torch.arange(self.num_edge_types, device=edge_type.device)
            edge_attr = torch.cat([edge_attr, (edge_type.unsqueeze(1) == types).to(edge_attr.dtype)], dim=1)
        if self.pair_evidence:
            words = base_features[:, num_scores:]
            edge_attr = torch.cat([edge_attr, pair_evidence(words, edge_index)], dim=1)
        layer_index, layer_attr, rowptr = self.layer_edges(edge_index, edge_attr, num_nodes)
        for block in self.blocks:
            x = block(x, layer_index, layer_attr, rowptr)
        x = self.norm(x)
        delta = self.lin_out(F.relu(self.lin_hidden(x))).squeeze(1)
        if self.pair_head is not None:
            delta = delta + self.pair_head(x, edge_index, edge_attr)
        gcs_weight = self.gcs_weight
        if gcs_weight is None:
            return torch.zeros_like(delta), delta
        if self.features == "scores":
            return torch.where(evidence, gcs_weight * gcs, gcs), torch.where(evidence, delta, 0.0)
        return gcs_weight * gcs, delta


def _has_evidence(other_scores: Tensor, edge_index: Tensor, graph: Tensor, num_graphs: int) -> Tensor:
    """Return for each node whether its graph has an edge, or further scores that differ between candidates.

    ``other_scores [N, C]`` are scaled within the graph: all 0 where constant.
    """
    total = scatter_sum(other_scores.sum(1), graph, num_graphs)
    total = total.index_add(0, graph[edge_index[1]], torch.ones_like(edge_index[1], dtype=total.dtype))
    return (total > 0)[graph]
