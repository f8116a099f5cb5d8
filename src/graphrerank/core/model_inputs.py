"""The tensors that a model reads of a batch of candidate graphs, as each model declares them."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ModelInputs:
    """The tensors that a model's ``forward`` takes, by name; :class:`~graphrerank.core.CandidateGraphs` has them."""

    names: tuple[str, ...]  # the arguments, in order
    unread: tuple[str, ...] = ()  # those of them that the model does not read: any `[0, 0]` tensor will do

    def reads(self, name: str) -> bool:
        """Return whether the model reads a tensor."""
        return name in self.names and name not in self.unread

    @property
    def reads_vectors(self) -> bool:
        """Whether the model reads query and node vectors."""
        return self.reads("node_vectors")

    @property
    def reads_edge_types(self) -> bool:
        """Whether edges keep their type for the model; else those between two nodes are merged."""
        return self.reads("edge_type")

    def with_edge_types(self) -> "ModelInputs":
        """Return the inputs of the same model that reads types of edges, too."""
        return replace(self, names=(*self.names, "edge_type"))

    @property
    def reads_pairs(self) -> bool:
        """Whether the model reads a cross-encoder's vectors of (query, node) pairs, and nothing else of a node."""
        return self.reads("pair_vectors")


VECTORS = ModelInputs(("base_features", "query_vectors", "node_vectors", "edge_index", "edge_weight", "ptr"))
SCORES = ModelInputs(VECTORS.names, unread=("query_vectors", "node_vectors"))
PAIRS = ModelInputs(("pair_vectors", "edge_index", "degree"))
QUERIES = ModelInputs(("features",))  # of a model that scores queries
