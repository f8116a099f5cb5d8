"""Graphs from and to PyTorch Geometric, and rerankers under its explainers; ``pip install graphrerank[train]``."""

import copy
from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from graphrerank.core import CandidateGraphs
from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.edge_types import OTHER, edge_type_of
from graphrerank.installation.extras import importing
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.models.pyg_reranker import PyGReranker
from graphrerank.utils.checks import UserError

with importing("pyg", __name__):
    from torch_geometric.data import Batch, Data, HeteroData

# parameters of our GATv2 layer, and their names in GATv2Conv
_GATV2_NAMES = {
    "lin_source": "lin_l",
    "lin_target": "lin_r",
    "lin_edge": "lin_edge",
    "attention": "att",
    "bias": "bias",
}


def corpus_from_pyg(
    data: Data | HeteroData,
    texts: Sequence[str] | Mapping[str, Sequence[str]],
    node_ids: Sequence[str] | None = None,
    *,
    edge_meanings: Mapping[str, str] | None = None,
    undirected: bool = True,
) -> CorpusGraph:
    """Build a corpus graph.

    Of :class:`Data` are read ``edge_index``, ``edge_weight``, and ``edge_type`` if it holds numbers of
    :data:`~graphrerank.corpus.edge_types.EDGE_TYPES`; of :class:`HeteroData` the edges of all relations, each with the
    type that its name means, and ``edge_weight`` where all have one. Self-loops are left out.
    ``j -> i`` of ``edge_index [2, E]`` makes ``j`` a neighbour of ``i``, and if ``undirected`` the other way too. There
    is one text per node, of :class:`HeteroData` by type of node; ids are positions, of :class:`HeteroData`
    ``type:position``, where ``node_ids`` are not given. ``edge_meanings`` as of ``edge_type_of``.

    Raises:
        ValueError: If there is not one text per node, or as :meth:`CorpusGraph.from_edges`.
    """
    edge_type: Tensor | None = None
    if isinstance(data, HeteroData):
        if not isinstance(texts, Mapping) or sorted(texts) != sorted(data.node_types):
            raise UserError(f"`texts` must map each of {sorted(data.node_types)} to its texts")
        for name in data.node_types:
            _check_texts(f"texts[{name!r}]", texts[name], data[name].num_nodes)
        listed = [text for name in data.node_types for text in texts[name]]
        node_ids = node_ids or [f"{name}:{index}" for name in data.node_types for index in range(len(texts[name]))]
        meaning = torch.tensor([edge_type_of(name, edge_meanings) for _, name, _ in data.edge_types], dtype=torch.int64)
        data = data.to_homogeneous(add_node_type=False)
        edge_type = meaning[data.edge_type]
    else:
        listed = list(texts)
        _check_texts("texts", listed, data.num_nodes)
        edge_type = data.get("edge_type")
    edges = torch.zeros(0, 2, dtype=torch.int64) if data.edge_index is None else data.edge_index.flip(0).T.contiguous()
    kept = edges[:, 0] != edges[:, 1]
    weight = data.get("edge_weight")
    return CorpusGraph.from_edges(
        list(node_ids or map(str, range(len(listed)))),
        listed,
        edges[kept],
        None if weight is None else weight[kept],
        edge_type=OTHER if edge_type is None else edge_type[kept],
        undirected=undirected,
    )


def _check_texts(name: str, texts: Sequence[str], num_nodes: int) -> None:
    if len(texts) != num_nodes:
        raise UserError(f"`{name}` must have one entry per node ({num_nodes}), got {len(texts)}")


def corpus_to_pyg(graph: CorpusGraph) -> Data:
    """Return ``edge_index [2, E]``, ``edge_weight [E]`` and ``edge_type [E]``, the vectors as ``x``, ids and texts.

    Two nodes are joined by one edge for each type.
    """
    edges, weight, edge_type = graph.typed_edges()
    return Data(
        x=graph.embedding,
        edge_index=edges.flip(1).T.contiguous(),
        edge_weight=weight,
        edge_type=edge_type,
        num_nodes=graph.num_nodes,
        node_ids=list(graph.node_ids),
        texts=list(graph.all_texts),
    )


def candidates_to_pyg(graphs: CandidateGraphs) -> Batch:
    """Convert a batch of candidate graphs to PyTorch Geometric, for models, loaders and explainers of that library.

    Args:
        graphs: Candidate graphs, one per query.

    Returns:
        A ``Batch`` of one graph per query, whose edges are ordered by query. ``to_data_list()`` splits it. It has

        - ``x [N, F]``: the retriever's scores,
        - ``edge_index [2, E]``, ``edge_weight [E]``, and the weights as ``edge_attr [E, 1]``,
        - ``edge_type [E]``: numbers of :data:`~graphrerank.corpus.edge_types.EDGE_TYPES`, if types are known,
        - ``ptr [B + 1]`` and ``batch [N]``: the graph of each node,
        - ``y [N]``: relevance, if it is known,
        - ``nodes [N]``: numbers of the passages in the corpus, if there is one,
        - ``query_vectors [B, d]`` and ``node_vectors [N, d]``, if the batch has them.

    Raises:
        UserError: If ``graphs`` has no query.

    Example:
        >>> graphs = CandidateGraphs(
        ...     torch.rand(5, 2), torch.tensor([[1, 4], [0, 3]]), torch.ones(2), torch.tensor([0, 3, 5])
        ... )
        >>> batch = candidates_to_pyg(graphs)
        >>> batch.num_graphs, batch.ptr.tolist(), batch.to_data_list()[1].edge_index.tolist()
        (2, [0, 3, 5], [[1], [0]])
    """
    if graphs.num_graphs == 0:
        raise UserError("`graphs` must have a query, got none")
    by_node: dict[str, Tensor | None] = {"x": graphs.x, "y": graphs.relevance, "nodes": graphs.nodes}
    by_node["node_vectors"] = graphs.inputs.get("node_vectors")
    by_edge: dict[str, Tensor | None] = {"edge_weight": graphs.edge_attr, "edge_attr": graphs.edge_attr.unsqueeze(1)}
    by_edge["edge_type"] = graphs.edge_type
    parts = []
    for number, (start, stop) in enumerate(pairwise(graphs.ptr.tolist())):
        edges = (graphs.edge_index[1] >= start) & (graphs.edge_index[1] < stop)
        part = Data(edge_index=graphs.edge_index[:, edges] - start, num_nodes=stop - start)
        for name, of_nodes in by_node.items():
            if of_nodes is not None:
                part[name] = of_nodes[start:stop]
        for name, of_edges in by_edge.items():
            if of_edges is not None:
                part[name] = of_edges[edges]
        if "query_vectors" in graphs.inputs:
            part["query_vectors"] = graphs.inputs["query_vectors"][number : number + 1]
        parts.append(part)
    return Batch.from_data_list(parts)


class ExplainedModel(nn.Module):
    """Give a reranker the form that ``torch_geometric.explain.Explainer`` expects: ``model(x, edge_index, ...)``.

    An explainer masks the messages of the layers along edges, and scores of the retriever (``x``). Features that are
    computed from the edges before the layers, such as GCS, do not change with an edge's mask. For the whole effect of
    an edge see :class:`graphrerank.rerank.explanation.Explainer`, which scores again without it.

    Args:
        model: A reranker with layers of PyTorch Geometric. For a checkpoint of ``gatv2_reranker``, such as ``base``,
            it is ``with_pyg_layers(reranker.checkpoint)``. It is set to evaluation mode.

    Raises:
        UserError: If ``model`` is another one. Explainers mask the messages of PyTorch Geometric only.

    Example:
        >>> from torch_geometric.explain import Explainer, GNNExplainer
        >>> graphs = CandidateGraphs(
        ...     torch.rand(4, 3), torch.tensor([[1, 3], [0, 2]]), torch.ones(2), torch.tensor([0, 4])
        ... )
        >>> batch = candidates_to_pyg(graphs)
        >>> explainer = Explainer(
        ...     ExplainedModel(PyGReranker(conv="SAGEConv")),
        ...     GNNExplainer(epochs=2),
        ...     explanation_type="model",
        ...     node_mask_type="attributes",
        ...     edge_mask_type="object",
        ...     model_config={"mode": "regression", "task_level": "node", "return_type": "raw"},
        ... )
        >>> found = explainer(batch.x, batch.edge_index, edge_weight=batch.edge_weight, ptr=batch.ptr, index=0)
        >>> found.edge_mask.shape, found.node_mask.shape
        (torch.Size([2]), torch.Size([4, 3]))
    """

    def __init__(self, model: PyGReranker) -> None:
        super().__init__()
        if not isinstance(model, PyGReranker):
            raise UserError(
                "`model` must be a PyGReranker, such as with_pyg_layers(reranker.checkpoint), got "
                f"{type(model).__name__}"
            )
        self.model = model.eval()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor,
        ptr: Tensor,
        edge_type: Tensor | None = None,
        query_vectors: Tensor | None = None,
        node_vectors: Tensor | None = None,
    ) -> Tensor:
        """Score every candidate; the arguments are those of :func:`candidates_to_pyg`.

        Args:
            x: Scores of the retriever ``[N, F]``.
            edge_index: Edges ``[2, E]``.
            edge_weight: Weights of the edges ``[E]``.
            ptr: First node of each graph, and the number of nodes, ``[B + 1]``.
            edge_type: Types of the edges ``[E]``. Only needed by models with ``num_edge_types``.
            query_vectors: Vectors of the queries ``[B, d]``. Only needed without ``features=scores``.
            node_vectors: Vectors of the candidates ``[N, d]``. Only needed without ``features=scores``.

        Returns:
            Scores ``[N, 1]``.

        Raises:
            UserError: If the model reads types or vectors that are not given.
        """
        reads = self.model.inputs
        if reads.reads_edge_types and edge_type is None:
            raise UserError("`edge_type` must be given to a model that reads types of edges, got None")
        if reads.reads_vectors and (query_vectors is None or node_vectors is None):
            raise UserError("`query_vectors` and `node_vectors` must be given to a model that reads them, got None")
        none = x.new_zeros(0, 0)
        queries, nodes = (none if vectors is None else vectors for vectors in (query_vectors, node_vectors))
        scores: Tensor = self.model(x, queries, nodes, edge_index, edge_weight, ptr, edge_type)
        return scores.unsqueeze(1)


def with_pyg_layers(checkpoint: Checkpoint) -> PyGReranker:
    """Return the model of a checkpoint with layers of PyTorch Geometric, for its explainers.

    Args:
        checkpoint: A ``gatv2_reranker``, such as the shipped ``base``, or a ``pyg_reranker``.

    Returns:
        A model in evaluation mode with the same weights and scores. GATv2 layers are ``GATv2Conv``.

    Raises:
        UserError: If the checkpoint holds another model, or one without layers of messages.

    Example:
        >>> from graphrerank.models.checkpoint import load_primary
        >>> type(with_pyg_layers(load_primary("base")).blocks[0].layer.conv).__name__
        'GATv2Conv'
    """
    entry = checkpoint.manifest.model
    if isinstance(checkpoint.model, PyGReranker):
        return copy.deepcopy(checkpoint.model)
    if not isinstance(checkpoint.model, GATv2Reranker) or entry.arguments.get("message_passing") is False:
        raise UserError(f"{checkpoint.path}: needed a gatv2_reranker with layers of messages, found a {entry.name}")
    model = PyGReranker(conv="GATv2Conv", **entry.arguments)
    state = {}
    for name, weight in checkpoint.model.state_dict().items():
        before, mark, after = name.partition(".layer.")
        first, dot, rest = after.partition(".")
        state[f"{before}.layer.conv.{_GATV2_NAMES[first]}{dot}{rest}" if mark else name] = weight
    model.load_state_dict(state)
    return model.eval()
