"""Declaration of the tensors that a model needs from a batch of candidate graphs."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ModelInputs:
    """Tensors that a model's ``forward`` takes, by their name in :class:`~graphrerank.core.CandidateGraphs`.

    Attributes:
        names: Names of the arguments of ``forward``, in order.
        unread: Names of arguments that ``forward`` takes but ignores. Any ``[0, 0]`` tensor can be passed.
        last_layers: Number of last layers of the cross-encoder that the model replaces, if it uses the states of tokens
            before these layers. 0 if it does not.

    Example:
        >>> ModelInputs(("base_features", "node_vectors"), unread=("node_vectors",)).reads_vectors
        False
    """

    names: tuple[str, ...]
    unread: tuple[str, ...] = ()
    last_layers: int = 0

    def reads(self, name: str) -> bool:
        """Return whether the model uses a tensor.

        Args:
            name: Name of the tensor.
        """
        return name in self.names and name not in self.unread

    @property
    def reads_vectors(self) -> bool:
        """Whether the model uses query and node vectors."""
        return self.reads("node_vectors")

    @property
    def reads_edge_types(self) -> bool:
        """Whether the model distinguishes edge types. Otherwise the edges between two nodes are merged."""
        return self.reads("edge_type")

    def with_edge_types(self) -> "ModelInputs":
        """Return the inputs of the same model with edge types."""
        return replace(self, names=(*self.names, "edge_type"))

    @property
    def reads_pairs(self) -> bool:
        """Whether the model uses cross-encoder vectors or states of (query, passage) pairs, and no other features."""
        return self.reads("pair_vectors") or self.reads("token_states")


VECTORS = ModelInputs(("base_features", "query_vectors", "node_vectors", "edge_index", "edge_weight", "ptr"))
SCORES = ModelInputs(VECTORS.names, unread=("query_vectors", "node_vectors"))
PAIRS = ModelInputs(("pair_vectors", "edge_index", "degree"))
#: Inputs of a model that scores queries instead of candidates.
QUERIES = ModelInputs(("features",))


def token_states(last_layers: int) -> ModelInputs:
    """Return the inputs of a model that contains the last layers of a cross-encoder.

    Args:
        last_layers: Number of these layers.
    """
    return ModelInputs(("token_states", "token_ptr", "edge_index", "degree"), last_layers=last_layers)
