"""Base classes of trained models: of all models in checkpoints, and of those that score candidates."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn

from graphrerank.core.model_inputs import ModelInputs


class CheckpointModel(nn.Module):
    """Base of models in checkpoints.

    A subclass implements ``forward``, which takes the plain tensors that ``inputs`` declares. The constructor takes
    plain settings by name, which are stored in the manifest of a checkpoint.

    Attributes:
        inputs: Inputs of ``forward``. A class attribute. If the inputs depend on settings, override :meth:`inputs_of`
            and set the attribute in the constructor.
        manifest_class: Class of the model's manifests, a subclass of ``graphrerank.models.manifest.Manifest``. If None,
            the manifest of a reranker is used.
        trained_by: Argument of ``graphrerank train`` that trains the model, such as ``experiment=NAME``. If None,
            ``fit`` trains it.
    """

    if TYPE_CHECKING:  # TorchScript would compile the type of an annotated attribute
        inputs: ModelInputs
    manifest_class: ClassVar[type[Any] | None] = None
    trained_by: ClassVar[str | None] = None

    @classmethod
    def inputs_of(cls, **settings: Any) -> ModelInputs:
        """Return the inputs of a model with the given settings. Defaults to ``inputs`` of the class.

        Args:
            settings: Arguments of the constructor by name.
        """
        return cls.inputs


class Reranker(CheckpointModel):
    """Base of models that score the candidates of queries.

    ``forward`` takes tensors of :class:`~graphrerank.core.CandidateGraphs` that ``inputs`` names:
    ``base_features [N, F]``, ``query_vectors [B, d]``, ``node_vectors [N, d]``, ``edge_index [2, E]``,
    ``edge_weight [E]``, ``edge_type [E]`` and ``ptr [B + 1]``. It returns scores ``[N]``. If the constructor has
    arguments ``num_scores`` and ``embedding_dim``, they are filled from the data.

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
        """Return the names of a candidate's features, in order. Defaults to the scores of the retriever.

        Args:
            score_names: Names of the scores of the retriever.
        """
        return list(score_names)
