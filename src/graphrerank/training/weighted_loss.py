"""Weighted sum of losses, which can be names, functions and modules."""

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn

from graphrerank.utils.checks import UserError, check_positive

if TYPE_CHECKING:
    from graphrerank.config.components import ComponentFactory

TEACHER_SCORES = "teacher_scores"  # argument of a loss that receives the scores of the teacher


class WeightedTerm(NamedTuple):
    """Term of a weighted sum of losses.

    Attributes:
        name: Name of the loss.
        weight: Positive weight of the loss.
        loss: Function or module that computes the loss.
        reads_teacher: Whether the loss has an argument ``teacher_scores``.
    """

    name: str
    weight: float
    loss: Callable[..., Tensor]
    reads_teacher: bool


class WeightedLoss(nn.Module):
    r"""Compute a weighted sum of losses.

    .. math:: \ell = \sum_m w_m \ell_m

    Each loss is a mean over its own queries: judgements give the loss of the queries with a relevant candidate, and the
    teacher that of the queries it has scored. The parameters of a loss that is an ``nn.Module``, such as a learned
    temperature, are trained with those of the model.

    Args:
        losses: Weight of each loss. A key is a name of ``conf/loss`` (including those of plugins), the import path of a
            function or class such as ``"my_package.my_loss"``, or the function or module itself. Instead of a weight, a
            name can have a mapping with the key ``weight`` (1 by default) and settings of the loss, such as
            ``{"weight": 0.5, "temperature": 2.0}``. Settings with a ``_target_`` define the loss themselves, and the
            key is only its name.
        parts: Factory that builds losses by name. If None, a factory with the defaults is used.

    Attributes:
        terms: Losses with their weights.

    Raises:
        ValueError: If there is no loss, a name is unknown, or a weight is not positive.

    Example:
        >>> import torch
        >>> loss = WeightedLoss({"listwise": 1.0, "kl": {"weight": 0.5, "temperature": 2.0}})
        >>> [(term.name, term.weight, term.reads_teacher) for term in loss.terms]
        [('listwise', 1.0, False), ('kl', 0.5, True)]
        >>> scores, mask = torch.tensor([[1.0, 1.0]]), torch.ones(1, 2, dtype=torch.bool)
        >>> loss(scores, torch.tensor([[1.0, 0.0]]), mask, teacher_scores=torch.tensor([[3.0, 3.0]]))  # log 2 + 0
        tensor(0.6931)
    """

    def __init__(
        self, losses: Mapping[str | Callable[..., Tensor], Any], *, parts: "ComponentFactory | None" = None
    ) -> None:
        super().__init__()
        if not isinstance(losses, Mapping) or not losses:
            raise UserError(f"`losses` must map losses to weights, such as {{listwise: 1, kl: 0.5}}, got {losses!r}")
        from graphrerank.config.components import (
            ComponentFactory,
        )  # it loads Hydra, which training itself does not need

        parts = parts or ComponentFactory()
        self.terms = [_term(parts, loss, setting) for loss, setting in losses.items()]
        self.trained = nn.ModuleList(term.loss for term in self.terms if isinstance(term.loss, nn.Module))

    @property
    def reads_teacher(self) -> bool:
        """Whether a term needs the scores of a teacher."""
        return any(term.reads_teacher for term in self.terms)

    def forward(self, scores: Tensor, relevance: Tensor, mask: Tensor, teacher_scores: Tensor | None = None) -> Tensor:
        """Compute the weighted sum.

        Args:
            scores: Scores ``[num_queries, num_candidates]``.
            relevance: Relevance gains of the same shape.
            mask: Boolean mask of the real candidates, of the same shape.
            teacher_scores: Scores of the teacher, of the same shape. Only used by distillation losses.

        Returns:
            Scalar loss.
        """
        total = scores.new_zeros(())
        for term in self.terms:
            further = {TEACHER_SCORES: teacher_scores} if term.reads_teacher else {}
            total = total + term.weight * term.loss(scores, relevance, mask, **further)
        return total


def reads_teacher(loss: Callable[..., Tensor]) -> bool:
    """Return whether a loss needs the scores of a teacher.

    Args:
        loss: Function or module. It needs them if it has an argument named ``teacher_scores``. A
            :class:`WeightedLoss` needs them if one of its terms does.

    Returns:
        Whether the loss must be called with ``teacher_scores``.

    Example:
        >>> from graphrerank.losses import kl_divergence, ranknet
        >>> reads_teacher(kl_divergence), reads_teacher(ranknet)
        (True, False)
    """
    if isinstance(loss, WeightedLoss):
        return loss.reads_teacher
    try:
        return TEACHER_SCORES in inspect.signature(loss.forward if isinstance(loss, nn.Module) else loss).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return False


def _term(parts: "ComponentFactory", loss: Any, setting: Any) -> WeightedTerm:
    """Build a term from a name, a function or a module, and its weight or settings."""
    settings = dict(setting) if isinstance(setting, Mapping) else {"weight": setting}
    weight = settings.pop("weight", 1.0)
    check_positive(**{f"weight of {_name(loss)}": weight})
    if isinstance(loss, str):
        built = _build(parts, loss, settings)
    elif settings:
        raise UserError(f"settings of the loss {_name(loss)} require its name, got an object and {sorted(settings)}")
    else:
        built = loss
    if not callable(built):
        raise UserError(f"`losses` must contain names, functions and modules, got {built!r}")
    return WeightedTerm(_name(loss), float(weight), built, reads_teacher(built))


def _build(parts: "ComponentFactory", name: str, settings: Mapping[str, Any]) -> Any:
    from hydra.utils import get_object

    from graphrerank.config.components import build_component

    if "_target_" in settings:
        return build_component(settings)
    if "." not in name:
        return parts.component("loss", name, **settings).build()
    try:
        target = get_object(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"`losses` must name an existing function or class, got {name!r}: {error}") from error
    partial = {} if isinstance(target, type) else {"_partial_": True}
    return build_component({"_target_": name, **partial, **settings})


def _name(loss: Any) -> str:
    if isinstance(loss, str):
        return loss
    function = getattr(loss, "func", loss)  # a functools.partial has no name
    return str(getattr(function, "__name__", type(loss).__name__))
