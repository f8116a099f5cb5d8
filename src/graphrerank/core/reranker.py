"""Bases of trained networks: of every model that a checkpoint holds, and of those that score candidates."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn

from graphrerank.core.model_inputs import ModelInputs


class CheckpointModel(nn.Module):
    """Base of a network that checkpoints hold.

    Override ``forward``, which takes the plain tensors that ``inputs`` names. The constructor takes plain settings by
    name, which a checkpoint's manifest holds.

    Attributes:
        inputs: The tensors that ``forward`` takes. A class attribute; if they depend on settings, override
            :meth:`inputs_of` and set the attribute in the constructor.
        manifest_class: Kind of the model's manifests, a subclass of ``graphrerank.models.manifest.Manifest``. If None,
            manifests are those of a reranker.
        trained_by: Argument of ``train.py`` that trains the model, such as ``experiment=NAME``. If None, ``fit`` does.
    """

    if TYPE_CHECKING:  # TorchScript would compile the type of an annotated attribute
        inputs: ModelInputs
    manifest_class: ClassVar[type[Any] | None] = None
    trained_by: ClassVar[str | None] = None

    @classmethod
    def inputs_of(cls, **settings: Any) -> ModelInputs:
        """Return the inputs of a model before it is built. By default they are the class's ``inputs``.

        Args:
            settings: Arguments of the constructor by name.
        """
        return cls.inputs


class Reranker(CheckpointModel):
    """Base of a network that scores the candidates of queries.

    ``forward`` takes tensors of :class:`~graphrerank.core.CandidateGraphs` by the names in ``inputs``:
    ``base_features [N, F]``, ``query_vectors [B, d]``, ``node_vectors [N, d]``, ``edge_index [2, E]``,
    ``edge_weight [E]``, ``edge_type [E]`` and ``ptr [B + 1]``. It returns scores ``[N]``. Arguments ``num_scores`` and
    ``embedding_dim`` of the constructor, if it has them, are filled from the data.

    Example:
        >>> class Linear(Reranker):
        ...     inputs = ModelInputs(("base_features",))
        ...
        ...     def __init__(self, *, num_scores: int) -> None:
        ...         super().__init__()
        ...         self.score = nn.Linear(num_scores, 1)
        ...
        ...     def forward(self, base_features):
        ...         return self.score(base_features).squeeze(1)
        >>> Linear.inputs_of(num_scores=2).names, Linear(num_scores=2).feature_names(["base_score", "bm25_score"])
        (('base_features',), ['base_score', 'bm25_score'])
    """

    def feature_names(self, score_names: Sequence[str]) -> list[str]:
        """Name the model's features of a candidate, in order. By default they are the retriever's scores.

        Args:
            score_names: Names of the scores that the retriever gives.
        """
        return list(score_names)
