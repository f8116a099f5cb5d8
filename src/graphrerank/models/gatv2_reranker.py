"""GATv2 reranker of GraphER, in three feature modes.

- ``scores`` uses no embeddings, so one checkpoint works with any encoder and any corpus. Its output is
  ``t * GCS + delta``. Because ``delta`` is initially 0, training starts at GCS. The paper has no such residual.
- ``paper`` uses the GCS score, the query vector and the node vector, concatenated as in the paper.
- ``full`` uses the features of ``scores`` and projected query and node vectors, their product and their dot product,
  with the same residual. Both projections have the same initial weights, so that the dot product starts as a
  similarity.
- In ``scores`` mode, a list with a single score and no edges keeps its order, because there is no evidence to rerank
  it.
- Inputs and outputs are plain tensors. The module can be scripted, and it computes GCS and all normalisation itself.
- With ``num_pair_scores``, a separate linear layer processes the scores of a cross-encoder. It adds nothing if there
  are none. It can therefore be trained alone in a finished model without changing that model's scores for other lists.
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
from graphrerank.core.row_linear import RowLinear
from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.models.gatv2 import GATv2Block, GATv2Layer, PerNodeLayer, attention_edges
from graphrerank.models.score_features import PAIR_EVIDENCE, ScoreFeatures, pair_evidence
from graphrerank.utils.checks import UserError, check_choice, check_counts, check_share

#: Allowed values of ``features``.
FEATURE_MODES = ("scores", "paper", "full")


class PairHead(nn.Module):
    r"""Score the pairs of nodes that edges connect, and return the best score of each node's pairs.

    .. math:: p_i = \max_{j \to i} a^\top \mathrm{ReLU}(\Theta_s h_j + \Theta_t h_i + \Theta_e e_{ij})

    Attention averages over neighbours, whereas a multi-hop question needs a single matching partner. The initial output
    is 0, and a node without edges always scores 0.

    Source: this project.

    Args:
        channels: Width of the node features.
        edge_dim: Width of the edge attributes. 0 for no edge attributes.

    Example:
        >>> PairHead(8, 0)(torch.zeros(3, 8), torch.tensor([[0, 1], [1, 0]]), torch.zeros(2, 0)).shape
        torch.Size([3])
    """

    def __init__(self, channels: int, edge_dim: int) -> None:
        super().__init__()
        self.lin_source = RowLinear(channels, channels)
        self.lin_target = RowLinear(channels, channels)
        self.lin_edge = RowLinear(edge_dim, channels, bias=False) if edge_dim else None
        self.lin_out = RowLinear(channels, 1, bias=False)
        nn.init.zeros_(self.lin_out.weight)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Score every node.

        Args:
            x: Node features ``[N, channels]``.
            edge_index: Edges ``[2, E]`` in any order.
            edge_attr: Edge attributes ``[E, edge_dim]``.

        Returns:
            Scores ``[N]``.
        """
        source_hidden = self.lin_source(x).index_select(0, edge_index[0])
        target_hidden = self.lin_target(x).index_select(0, edge_index[1])
        hidden = source_hidden + target_hidden
        if self.lin_edge is not None:
            hidden = hidden + self.lin_edge(edge_attr)
        pair_scores = self.lin_out(F.relu(hidden)).squeeze(1)
        return scatter_max(pair_scores, edge_index[1], x.shape[0])


class GATv2Reranker(Reranker):
    r"""Score the candidates of a batch of queries from their features and the edges among them.

    .. math:: s = t \cdot \mathrm{GCS} + \delta, \qquad \delta = \mathrm{MLP}(\mathrm{GATv2}(x, A))

    Source: GraphER, section 2.2 ("Graph attention network ranker"): GATv2 layers followed by two fully connected
    layers. *Differences from the paper:* a linear layer with a ReLU before them, residual connections, layer
    normalisation and dropout; GCS of scores that are scaled within the list; and the modes ``scores`` and ``full`` with
    the residual :math:`t \cdot \mathrm{GCS}`. In ``paper`` mode, the score is :math:`\delta` alone.

    Args:
        features: Features of a candidate: ``scores`` (scores of the retriever and of the graph), ``paper`` (GCS score
            and both vectors) or ``full`` (all of these).
        num_scores: Number of scores per candidate from the retriever. Column 0 is the score by which it ranks.
        embedding_dim: Width of query and node vectors. Only used by ``paper`` and ``full``.
        projection_channels: Width of the projected vectors. Only used by ``full``.
        hidden_channels: Width of the layers. Must be a multiple of ``heads``.
        num_layers: Number of GATv2 layers. The paper uses 5.
        heads: Number of attention heads per layer.
        dropout: Probability of dropping an activation in training, in [0, 1].
        residual: Whether each layer adds its input to its output.
        edge_features: Whether the edge weight is an edge attribute.
        num_edge_types: Number of edge types that attention and features distinguish. 0 to merge the types.
        num_words: Number of scores at the end that are ``WORD_FEATURES`` of :mod:`graphrerank.features.text_match`.
            Ignored by ``paper``.
        num_pair_scores: Number of scores before the words that are ``CROSS_ENCODER_FEATURES``. Ignored by ``paper``.
        pair_evidence: Whether edges and features measure which query words the two ends of an edge cover together.
        pair_head: Whether to add the score of each candidate's best pair (see :class:`PairHead`).
        message_passing: Whether to use the edges. If False, the model is the MLP ablation of the paper, with the same
            depth and features.
        restart_prob: Weight of a node's own score in each step of GCS, in (0, 1].

    Raises:
        UserError: If a size is not positive, ``features`` is unknown, or the sizes do not fit each other.

    Example:
        >>> model = GATv2Reranker(num_scores=2).eval()
        >>> scores, empty = torch.tensor([[0.9, 5.0], [0.5, 1.0], [0.1, 4.0]]), torch.zeros(0, 0)
        >>> edge_index, edge_weight, ptr = torch.tensor([[0, 2], [2, 0]]), torch.ones(2), torch.tensor([0, 3])
        >>> model(scores, empty, empty, edge_index, edge_weight, ptr)  # an untrained model returns GCS
        tensor([1.0000, 0.5000, 0.3333], grad_fn=<AddBackward0>)
    """

    pair_columns: Tensor  # columns of the score features that belong to the cross-encoder
    other_columns: Tensor  # all other columns

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
        self.inputs = self.inputs_of(features=features, num_edge_types=num_edge_types)
        self._add_inputs(num_pair_scores, projection_channels, hidden_channels)
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
        self._add_outputs(hidden_channels)

    def _add_inputs(self, num_pair_scores: int, projection_channels: int, hidden_channels: int) -> None:
        """Add the layers that read a candidate's features. The scores of a cross-encoder have a separate layer."""
        pair_columns, other_columns = self._split_columns(num_pair_scores)
        in_channels = {
            "scores": len(other_columns),
            "paper": 1 + 2 * self.embedding_dim,
            "full": len(other_columns) + 3 * projection_channels + 1,
        }[self.features]
        is_full = self.features == "full"
        self.project_query = RowLinear(self.embedding_dim, projection_channels) if is_full else nn.Identity()
        self.project_node = deepcopy(self.project_query)
        self.lin_in = RowLinear(in_channels, hidden_channels)
        self.lin_pairs = RowLinear(len(pair_columns), hidden_channels, bias=False) if pair_columns else None
        if self.lin_pairs is not None:
            nn.init.zeros_(self.lin_pairs.weight)
        self.register_buffer("pair_columns", torch.tensor(pair_columns, dtype=torch.int64), persistent=False)
        self.register_buffer("other_columns", torch.tensor(other_columns, dtype=torch.int64), persistent=False)

    def _split_columns(self, num_pair_scores: int) -> tuple[list[int], list[int]]:
        """Return the columns of the score features that belong to the cross-encoder, and all other columns."""
        if not 0 <= num_pair_scores < self.score_features.num_scores:
            raise UserError(
                f"`num_pair_scores` must be at least 0 and below the number of scores without words, "
                f"{self.score_features.num_scores}, got {num_pair_scores}"
            )
        pair_columns = [] if self.features == "paper" else self.score_features.columns_of_pairs(num_pair_scores)
        return pair_columns, sorted(set(range(self.score_features.num_columns)).difference(pair_columns))

    def _add_outputs(self, hidden_channels: int) -> None:
        """Add the last layers. With a residual, their output is initially 0, so the model starts at GCS."""
        self.norm = nn.LayerNorm(hidden_channels)
        self.lin_hidden = RowLinear(hidden_channels, hidden_channels)
        self.lin_out = RowLinear(hidden_channels, 1)
        self.gcs_weight = nn.Parameter(torch.tensor(1.0)) if self.features != "paper" else None
        if self.features != "paper":
            nn.init.zeros_(self.lin_out.weight)
            nn.init.zeros_(self.lin_out.bias)

    def build_layer(self, channels: int, heads: int, edge_dim: int, dropout: float) -> nn.Module:
        """Build one message-passing layer. A subclass with other layers overrides this method and :meth:`layer_edges`.

        Args:
            channels: Width of the input and of the output of the layer.
            heads: Number of attention heads, which divides ``channels``.
            edge_dim: Width of the edge attributes, 0 if there are none.
            dropout: Probability of dropping an attention weight in training.

        Returns:
            Module with the signature of :meth:`~graphrerank.models.gatv2.GATv2Layer.forward`.
        """
        return GATv2Layer(channels, channels // heads, heads=heads, edge_dim=edge_dim, dropout=dropout)

    def layer_edges(self, edge_index: Tensor, edge_attr: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
        """Prepare the edges once for all layers.

        Args:
            edge_index: Edges ``[2, E]`` in any order.
            edge_attr: Edge attributes ``[E, edge_dim]``.
            num_nodes: Number of nodes of the batch.

        Returns:
            ``edge_index``, ``edge_attr`` and ``rowptr`` for the layers. By default, those of
            :func:`~graphrerank.models.gatv2.attention_edges`.
        """
        return attention_edges(edge_index, edge_attr, num_nodes)

    @staticmethod
    def inputs_of(*, features: str = "scores", num_edge_types: int = 0, **_: Any) -> ModelInputs:
        """Return the inputs of a model with the given settings.

        Args:
            features: Feature mode.
            num_edge_types: Number of edge types that the model distinguishes.
        """
        inputs = SCORES if features == "scores" else VECTORS
        return inputs.with_edge_types() if num_edge_types else inputs

    def feature_names(self, score_names: Sequence[str]) -> list[str]:
        """Return the names of a candidate's features.

        Args:
            score_names: Names of the scores of the retriever.
        """
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
        """Score every candidate. Scores are only comparable within a query.

        Args:
            base_features: Scores of the retriever, ``[N, num_scores]``.
            query_vectors: Query vectors ``[B, embedding_dim]``. Ignored in ``scores`` mode, where any tensor can be
                passed.
            node_vectors: Node vectors ``[N, embedding_dim]``. Ignored in ``scores`` mode, where any tensor can be
                passed.
            edge_index: Edges ``[2, E]`` in any order.
            edge_weight: Weights of the edges, ``[E]``.
            ptr: Boundaries of the queries' candidates, ``[B + 1]``.
            edge_type: Edge types ``[E]``. Required if ``num_edge_types`` is not 0, otherwise ignored.

        Returns:
            Scores ``[N]``. Higher is more relevant.
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
        """Score every candidate as :meth:`forward` does, and return the two terms of the sum.

        Args:
            base_features: Scores of the retriever, ``[N, num_scores]``.
            query_vectors: Query vectors ``[B, embedding_dim]``. Ignored in ``scores`` mode.
            node_vectors: Node vectors ``[N, embedding_dim]``. Ignored in ``scores`` mode.
            edge_index: Edges ``[2, E]`` in any order.
            edge_weight: Weights of the edges, ``[E]``.
            ptr: Boundaries of the queries' candidates, ``[B + 1]``.
            edge_type: Edge types ``[E]``. Required if ``num_edge_types`` is not 0, otherwise ignored.

        Returns:
            GCS term ``[N]``, which is 0 in ``paper`` mode, and network term ``[N]``.
        """
        num_nodes = base_features.shape[0]
        num_scores = base_features.shape[1] - self.num_words
        scores = self.score_features(base_features, edge_index, edge_weight, ptr, edge_type)
        gcs = scores[:, num_scores]
        graph = graph_of_nodes(ptr, num_nodes)
        x = self._node_inputs(scores, gcs, query_vectors, node_vectors, graph)
        words = base_features[:, num_scores:]
        edge_attr = self._edge_attributes(words, edge_index, edge_weight, edge_type)
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
            evidence = _has_evidence(scores[:, 1:num_scores], edge_index, graph, ptr.numel() - 1)
            return torch.where(evidence, gcs_weight * gcs, gcs), torch.where(evidence, delta, 0.0)
        return gcs_weight * gcs, delta

    def _node_inputs(
        self, scores: Tensor, gcs: Tensor, query_vectors: Tensor, node_vectors: Tensor, graph: Tensor
    ) -> Tensor:
        """Return the input ``[N, hidden_channels]`` of the first message-passing layer.

        Args:
            scores: Score features ``[N, num_columns]``.
            gcs: GCS scores ``[N]``.
            query_vectors: Query vectors ``[B, embedding_dim]``. Ignored in ``scores`` mode.
            node_vectors: Node vectors ``[N, embedding_dim]``. Ignored in ``scores`` mode.
            graph: Row of each node's query, ``[N]``.
        """
        other_scores = scores
        if self.lin_pairs is not None:
            other_scores = scores.index_select(1, self.other_columns)
        if self.features == "paper":
            x = torch.cat([gcs.unsqueeze(1), query_vectors.index_select(0, graph), node_vectors], dim=1)
        elif self.features == "full":
            query = self.project_query(query_vectors).index_select(0, graph)
            node = self.project_node(node_vectors)
            product = query * node
            x = torch.cat([other_scores, query, node, product, product.sum(1, keepdim=True)], dim=1)
        else:
            x = other_scores
        x = self.lin_in(x)
        if self.lin_pairs is not None:
            x = x + self.lin_pairs(scores.index_select(1, self.pair_columns))
        return F.relu(x)

    def _edge_attributes(
        self, words: Tensor, edge_index: Tensor, edge_weight: Tensor, edge_type: Tensor | None
    ) -> Tensor:
        """Return the attributes ``[E, edge_dim]`` of the edges: weight, type and evidence of word pairs.

        Args:
            words: Word features of the nodes, ``[N, num_words]``.
            edge_index: Edges ``[2, E]`` in any order.
            edge_weight: Weights of the edges, ``[E]``.
            edge_type: Edge types ``[E]``. Required if ``num_edge_types`` is not 0, otherwise ignored.
        """
        edge_attr = edge_weight.unsqueeze(1) if self.edge_features else edge_weight.new_zeros([edge_weight.numel(), 0])
        if self.num_edge_types > 0:
            assert edge_type is not None
            types = torch.arange(self.num_edge_types, device=edge_type.device)
            edge_attr = torch.cat([edge_attr, (edge_type.unsqueeze(1) == types).to(edge_attr.dtype)], dim=1)
        if self.pair_evidence:
            edge_attr = torch.cat([edge_attr, pair_evidence(words, edge_index)], dim=1)
        return edge_attr


def _has_evidence(other_scores: Tensor, edge_index: Tensor, graph: Tensor, num_graphs: int) -> Tensor:
    """Return for each node whether its graph has an edge, or further scores that differ between candidates.

    ``other_scores [N, C]`` are scaled within the graph, so they are 0 where they are constant.
    """
    total = scatter_sum(other_scores.sum(1), graph, num_graphs)
    total = total.index_add(0, graph[edge_index[1]], torch.ones_like(edge_index[1], dtype=total.dtype))
    return (total > 0)[graph]
