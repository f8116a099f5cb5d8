"""Base classes of trained models: of all models in checkpoints, and of those that score candidates."""

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
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
    #: Ignored by TorchScript, which would otherwise store it in exported models.
    __jit_ignored_attributes__: ClassVar[list[str]] = ["constructor_arguments"]
    manifest_class: ClassVar[type[Any] | None] = None
    trained_by: ClassVar[str | None] = None

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if "__init__" in vars(cls):
            cls.__init__ = _recording(cls.__init__)  # type: ignore[method-assign]

    def constructor_settings(self) -> dict[str, Any]:
        """Return the arguments with which the model was built, by name. Defaults that were not passed are missing."""
        return dict(vars(self).get("constructor_arguments", {}))

    @classmethod
    def inputs_of(cls, **settings: Any) -> ModelInputs:
        """Return the inputs of a model with the given settings. Defaults to ``inputs`` of the class.

        Args:
            settings: Arguments of the constructor by name.
        """
        return cls.inputs


def _recording(constructor: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor that stores its arguments as ``constructor_arguments``, unless a subclass has done so."""
    signature = inspect.signature(constructor)
    spread = [name for name, parameter in signature.parameters.items() if parameter.kind is parameter.VAR_KEYWORD]

    @wraps(constructor)
    def construct(self: CheckpointModel, *args: Any, **kwargs: Any) -> None:
        if "constructor_arguments" not in vars(self):
            with suppress(TypeError):  # the constructor itself raises it, with a better message
                _model, *bound = signature.bind(self, *args, **kwargs).arguments.items()
                arguments = dict(bound)
                for name in spread:
                    arguments |= arguments.pop(name, {})
                vars(self)["constructor_arguments"] = arguments
        constructor(self, *args, **kwargs)

    return construct


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
