"""Convert graphs from and to PyTorch Geometric, and apply its explainers to rerankers.

Install PyTorch Geometric with ``pip install graphrerank[train]``.
"""

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

# maps the parameters of this library's GATv2 layer to their names in GATv2Conv
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
    """Build a corpus graph from a PyTorch Geometric graph.

    From :class:`Data`, the function uses ``edge_index``, ``edge_weight`` and ``edge_type`` (numbers of
    :data:`~graphrerank.corpus.edge_types.EDGE_TYPES`). From :class:`HeteroData`, it uses the edges of all relations,
    whose edge types follow from the relations' names, and ``edge_weight`` if every relation has it. An edge ``j -> i``
    of ``edge_index`` makes ``j`` a neighbour of ``i``. Self-loops are ignored.

    Args:
        data: Graph of passages.
        texts: Text of each node. For :class:`HeteroData`, a mapping from each node type to the texts of its nodes.
        node_ids: Ids of the passages. If None, the positions of the nodes, for :class:`HeteroData` as
            ``type:position``.
        edge_meanings: Maps names of relations to edge types, as in
            :func:`~graphrerank.corpus.edge_types.edge_type_of`. If None, only the standard names are known.
        undirected: Whether to add every edge in the other direction too.

    Returns:
        The corpus graph.

    Raises:
        ValueError: If the number of texts differs from the number of nodes, or :meth:`CorpusGraph.from_edges` rejects
            the edges.
    """
    edge_type: Tensor | None = None
    if isinstance(data, HeteroData):
        if not isinstance(texts, Mapping) or sorted(texts) != sorted(data.node_types):
            raise UserError(f"`texts` must map each node type {sorted(data.node_types)} to the texts of its nodes")
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
    no_loop = edges[:, 0] != edges[:, 1]
    weight = data.get("edge_weight")
    return CorpusGraph.from_edges(
        list(node_ids or map(str, range(len(listed)))),
        listed,
        edges[no_loop],
        None if weight is None else weight[no_loop],
        edge_type=OTHER if edge_type is None else edge_type[no_loop],
        undirected=undirected,
    )


def _check_texts(name: str, texts: Sequence[str], num_nodes: int) -> None:
    if len(texts) != num_nodes:
        raise UserError(f"`{name}` must have one entry per node ({num_nodes}), got {len(texts)}")


def corpus_to_pyg(graph: CorpusGraph) -> Data:
    """Return a corpus graph as a PyTorch Geometric graph.

    Args:
        graph: Corpus graph.

    Returns:
        A graph with ``edge_index [2, E]``, ``edge_weight [E]``, ``edge_type [E]``, the passage vectors (if any) as
        ``x``, ``node_ids`` and ``texts``. Two nodes with edges of several types have one edge for each type.
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
    """Convert a batch of candidate graphs for models, loaders and explainers of PyTorch Geometric.

    Args:
        graphs: Candidate graphs, one per query.

    Returns:
        A ``Batch`` with one graph per query, whose edges are ordered by query. ``to_data_list()`` splits it. It has

        - ``x [N, F]``: the retriever's scores,
        - ``edge_index [2, E]``, ``edge_weight [E]``, and the weights as ``edge_attr [E, 1]``,
        - ``edge_type [E]``: numbers of :data:`~graphrerank.corpus.edge_types.EDGE_TYPES`, if types are known,
        - ``ptr [B + 1]`` and ``batch [N]``: the graph of each node,
        - ``y [N]``: relevance, if known,
        - ``nodes [N]``: indices of the passages in the corpus, if there is one,
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
        raise UserError("`graphs` must have at least one query, got none")
    by_node: dict[str, Tensor | None] = {"x": graphs.x, "y": graphs.relevance, "nodes": graphs.nodes}
    by_node["node_vectors"] = graphs.inputs.get("node_vectors")
    by_edge: dict[str, Tensor | None] = {"edge_weight": graphs.edge_attr, "edge_attr": graphs.edge_attr.unsqueeze(1)}
    by_edge["edge_type"] = graphs.edge_type
    components = []
    for number, (start, stop) in enumerate(pairwise(graphs.ptr.tolist())):
        edges = (graphs.edge_index[1] >= start) & (graphs.edge_index[1] < stop)
        component = Data(edge_index=graphs.edge_index[:, edges] - start, num_nodes=stop - start)
        for name, of_nodes in by_node.items():
            if of_nodes is not None:
                component[name] = of_nodes[start:stop]
        for name, of_edges in by_edge.items():
            if of_edges is not None:
                component[name] = of_edges[edges]
        if "query_vectors" in graphs.inputs:
            component["query_vectors"] = graphs.inputs["query_vectors"][number : number + 1]
        components.append(component)
    return Batch.from_data_list(components)


class ExplainedModel(nn.Module):
    """Wrap a reranker as ``torch_geometric.explain.Explainer`` expects it: ``model(x, edge_index, ...)``.

    An explainer masks the messages along edges and the retriever's scores (``x``). Features that are computed from the
    edges before the first layer, such as GCS, are not affected by the mask of an edge. To measure the full effect of an
    edge, use :class:`graphrerank.rerank.explanation.Explainer`, which scores again without that edge.

    Args:
        model: Reranker with layers of PyTorch Geometric. For a checkpoint of ``gatv2_reranker``, such as ``base``, use
            ``with_pyg_layers(reranker.checkpoint)``. The model is set to evaluation mode.

    Raises:
        UserError: If ``model`` has no PyTorch Geometric layers, because explainers mask only their messages.

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
        >>> explanation = explainer(batch.x, batch.edge_index, edge_weight=batch.edge_weight, ptr=batch.ptr, index=0)
        >>> explanation.edge_mask.shape, explanation.node_mask.shape
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
        """Score every candidate. The arguments are the fields of the result of :func:`candidates_to_pyg`.

        Args:
            x: Scores of the retriever ``[N, F]``.
            edge_index: Edges ``[2, E]``.
            edge_weight: Weights of the edges ``[E]``.
            ptr: Offset of each graph's first node, followed by the number of nodes, ``[B + 1]``.
            edge_type: Types of the edges ``[E]``. Only needed by models with ``num_edge_types``.
            query_vectors: Vectors of the queries ``[B, d]``. Not needed by models with ``features=scores``.
            node_vectors: Vectors of the candidates ``[N, d]``. Not needed by models with ``features=scores``.

        Returns:
            Scores ``[N, 1]``.

        Raises:
            UserError: If the model needs edge types or vectors and they are None.
        """
        reads = self.model.inputs
        if reads.reads_edge_types and edge_type is None:
            raise UserError("`edge_type` must be a tensor for a model that uses edge types, got None")
        if reads.reads_vectors and (query_vectors is None or node_vectors is None):
            raise UserError(
                "`query_vectors` and `node_vectors` must be tensors for a model that uses vectors, got None"
            )
        none = x.new_zeros(0, 0)
        queries, nodes = (none if vectors is None else vectors for vectors in (query_vectors, node_vectors))
        scores: Tensor = self.model(x, queries, nodes, edge_index, edge_weight, ptr, edge_type)
        return scores.unsqueeze(1)


def with_pyg_layers(checkpoint: Checkpoint) -> PyGReranker:
    """Return the model of a checkpoint with layers of PyTorch Geometric, for explainers of that library.

    Args:
        checkpoint: A ``gatv2_reranker``, such as the shipped ``base``, or a ``pyg_reranker``.

    Returns:
        A model in evaluation mode with the same weights and scores, whose GATv2 layers are ``GATv2Conv``.

    Raises:
        UserError: If the checkpoint has another model, or one without message passing.

    Example:
        >>> from graphrerank.models.checkpoint import load_primary
        >>> type(with_pyg_layers(load_primary("base")).blocks[0].layer.conv).__name__
        'GATv2Conv'
    """
    entry = checkpoint.manifest.model
    if isinstance(checkpoint.model, PyGReranker):
        return copy.deepcopy(checkpoint.model)
    if not isinstance(checkpoint.model, GATv2Reranker) or entry.arguments.get("message_passing") is False:
        raise UserError(
            f"{checkpoint.path}: the model must be a gatv2_reranker with message passing or a pyg_reranker, got "
            f"{entry.name}"
        )
    model = PyGReranker(conv="GATv2Conv", **entry.arguments)
    state = {}
    for name, weight in checkpoint.model.state_dict().items():
        before, mark, after = name.partition(".layer.")
        first, dot, rest = after.partition(".")
        state[f"{before}.layer.conv.{_GATV2_NAMES[first]}{dot}{rest}" if mark else name] = weight
    model.load_state_dict(state)
    return model.eval()
