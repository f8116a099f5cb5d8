"""Optimisers as exchangeable parts: parameter groups by name, construction from a factory, and Muon with AdamW."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from graphrerank.utils.checks import UserError, check_not_negative, similar_name

#: Callable that receives parameter groups and returns an optimiser: a class of ``torch.optim``, a ``functools.partial``
#: of it, or a function.
OptimizerFactory = Callable[..., torch.optim.Optimizer]
#: Learning rate, or ``{"learning_rate": ..., "weight_decay": ...}``, by prefix of parameter names.
ParameterGroups = Mapping[str, float | Mapping[str, float]]

GROUP_SETTINGS = ("learning_rate", "weight_decay")


class ParameterCounts(NamedTuple):
    """Number of parameters of a module.

    Attributes:
        all: Number of all parameters.
        trained: Number of parameters that are trained.
    """

    all: int
    trained: int


def count_parameters(module: nn.Module) -> ParameterCounts:
    """Count the parameters of a module.

    Args:
        module: Any module.

    Returns:
        Number of all parameters, and of those that are trained.

    Example:
        >>> count_parameters(nn.Linear(2, 3))
        ParameterCounts(all=9, trained=9)
    """
    parameters = list(module.parameters())
    return ParameterCounts(
        sum(parameter.numel() for parameter in parameters),
        sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
    )


def accepted_arguments(factory: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments that a callable accepts.

    Args:
        factory: Class, function or ``functools.partial``.
        arguments: Candidate arguments by name.

    Returns:
        The arguments whose names are parameters of ``factory``; all arguments if it accepts any keyword.

    Example:
        >>> accepted_arguments(lambda optimizer, total_steps: None, {"total_steps": 10, "warmup_steps": 1})
        {'total_steps': 10}
    """
    parameters = inspect.signature(factory).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return dict(arguments)
    return {name: argument for name, argument in arguments.items() if name in parameters}


def build_optimizer(
    factory: OptimizerFactory,
    model: nn.Module,
    *,
    learning_rate: float,
    weight_decay: float,
    parameter_groups: ParameterGroups | None = None,
    further: Mapping[str, nn.Module] | None = None,
) -> torch.optim.Optimizer:
    """Build an optimiser over all parameters of a model.

    Args:
        factory: Callable that receives the parameter groups. If it is a ``functools.partial`` with ``lr`` or
            ``weight_decay``, these replace ``learning_rate`` and ``weight_decay``. Keywords that are None are ignored.
        model: Model to optimise.
        learning_rate: Peak learning rate of parameters without a group of their own.
        weight_decay: Weight decay of weight matrices. Biases, norms and scalars are not decayed.
        parameter_groups: Learning rate, or mapping with ``learning_rate`` and ``weight_decay``, by prefix of parameter
            names; see :func:`group_parameters`. If None, all parameters share the settings above.
        further: Further modules to optimise, such as a loss with parameters, by the prefix of their names. If None,
            only the model is optimised.

    Returns:
        The optimiser. Its first two groups are the weight matrices and the other parameters without a prefix.

    Raises:
        ValueError: If a prefix or a setting of ``parameter_groups`` is invalid.

    Example:
        >>> sgd = build_optimizer(torch.optim.SGD, nn.Linear(2, 1), learning_rate=0.1, weight_decay=0.01)
        >>> [(group["lr"], group["weight_decay"]) for group in sgd.param_groups]
        [(0.1, 0.01), (0.1, 0.0)]
    """
    if isinstance(factory, partial):
        keywords = {name: argument for name, argument in factory.keywords.items() if argument is not None}
        learning_rate = keywords.pop("lr", learning_rate)
        weight_decay = keywords.pop("weight_decay", weight_decay)
        factory = partial(factory.func, *factory.args, **keywords)
    groups = group_parameters(model, weight_decay=weight_decay, parameter_groups=parameter_groups, further=further)
    return factory(groups, **accepted_arguments(factory, {"lr": learning_rate}))


def group_parameters(
    model: nn.Module,
    *,
    weight_decay: float,
    parameter_groups: ParameterGroups | None = None,
    further: Mapping[str, nn.Module] | None = None,
) -> list[dict[str, Any]]:
    """Divide the parameters of a model into groups for an optimiser.

    A prefix selects the parameter of this name and all parameters below it: ``lin_in`` selects ``lin_in.weight``, but
    not ``lin_input.weight``. If several prefixes match, the longest one is used.

    Args:
        model: Model to optimise.
        weight_decay: Weight decay of weight matrices.
        parameter_groups: Learning rate, or mapping with ``learning_rate`` and ``weight_decay``, by prefix. A learning
            rate of 0 freezes the parameters.
        further: Further modules to optimise by the prefix of their names. If None, there are none.

    Returns:
        Groups of ``torch.optim``: the weight matrices and the other parameters without a prefix, then those of each
        prefix that are not empty. Groups of a prefix with a learning rate have the key ``lr``.

    Raises:
        ValueError: If no parameter has a prefix, or a setting is unknown or negative. The message lists the names.
    """
    settings = {prefix: _group_settings(prefix, setting) for prefix, setting in (parameter_groups or {}).items()}
    by_prefix: dict[str, list[Tensor]] = {prefix: [] for prefix in ("", *settings)}
    named = [*model.named_parameters()]
    for module_name, module in (further or {}).items():
        named += module.named_parameters(prefix=module_name)
    for name, parameter in named:
        matching = [prefix for prefix in settings if name == prefix or name.startswith(f"{prefix}.")]
        by_prefix[max(matching, key=len, default="")].append(parameter)
    groups = []
    for prefix, parameters in by_prefix.items():
        if prefix and not parameters:
            raise UserError(_unknown_prefix(prefix, model, settings))
        setting = settings.get(prefix, {})
        rate = {"lr": setting["learning_rate"]} if "learning_rate" in setting else {}
        matrices, others = [p for p in parameters if p.dim() > 1], [p for p in parameters if p.dim() <= 1]
        decays = ((matrices, setting.get("weight_decay", weight_decay)), (others, 0.0))
        groups += [
            {"params": members, "weight_decay": decay, **rate} for members, decay in decays if members or not prefix
        ]
    return groups


def _group_settings(prefix: str, setting: float | Mapping[str, float]) -> Mapping[str, float]:
    """Return the settings of a prefix as a mapping, after checking their names and ranges."""
    settings = setting if isinstance(setting, Mapping) else {"learning_rate": setting}
    for name, number in settings.items():
        if name not in GROUP_SETTINGS or isinstance(number, bool) or not isinstance(number, int | float):
            raise UserError(
                f"`parameter_groups.{prefix}` must be a learning rate, or numbers by the names "
                f"{' and '.join(GROUP_SETTINGS)}, got {name}: {number!r}"
            )
        check_not_negative(**{f"parameter_groups.{prefix}.{name}": number})
    return settings


def _unknown_prefix(prefix: str, model: nn.Module, prefixes: Iterable[str]) -> str:
    names = [name for name, _ in model.named_parameters()]
    if any(name == prefix or name.startswith(f"{prefix}.") for name in names):
        longer = [other for other in prefixes if other.startswith(f"{prefix}.")]
        return f"`parameter_groups.{prefix}` has no parameters, because {longer} cover all parameters with this prefix"
    parts = sorted({name.split(".")[0] for name in names})
    similar = similar_name(prefix, [*parts, *names])
    advice = f"The model has {parts}" if similar is None else f"Did you mean {similar!r}?"
    return f"`parameter_groups` must contain prefixes of the model's parameter names, got {prefix!r}. {advice}"


class MuonAdamW(torch.optim.Optimizer):
    """Optimise weight matrices with Muon and all other parameters with AdamW.

    Muon (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024) orthogonalises the momentum of
    a matrix. It is defined for matrices only, so biases, norms, attention vectors and matrices with a single row or
    column use AdamW. Both parts share the learning rate, which is scaled for the matrices as suggested in Liu et al.,
    "Muon is Scalable for LLM Training", 2025, so that a learning rate for AdamW can be used unchanged.

    Args:
        params: Parameters, or parameter groups with optional ``lr`` and ``weight_decay``.
        lr: Learning rate.
        weight_decay: Weight decay.
        momentum: Momentum of Muon, in [0, 1).
        nesterov: Whether Muon uses Nesterov momentum.
        ns_steps: Number of Newton-Schulz iterations of Muon.
        betas: Decay rates of AdamW's running means of the gradient and of its square.

    Example:
        >>> optimizer = MuonAdamW(nn.Linear(3, 2).parameters(), lr=1e-3)
        >>> [group["momentum"] if "momentum" in group else group["betas"] for group in optimizer.param_groups]
        [0.95, (0.9, 0.999)]
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        weight_decay: float = 0.01,
        *,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_steps: int = 5,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        groups = [group if isinstance(group, dict) else {"params": [group]} for group in params]
        if groups and not isinstance(params, list | tuple):  # an iterator of parameters: one group
            groups = [{"params": [parameter for group in groups for parameter in group["params"]]}]
        matrices = [group | {"params": [p for p in group["params"] if _is_matrix(p)]} for group in groups]
        others = [group | {"params": [p for p in group["params"] if not _is_matrix(p)]} for group in groups]
        self._muon: torch.optim.Optimizer | None = None
        self._adamw: torch.optim.Optimizer | None = None
        super().__init__(
            [group for group in (*matrices, *others) if group["params"]], {"lr": lr, "weight_decay": weight_decay}
        )
        num_matrices = sum(bool(group["params"]) for group in matrices)
        muon, adamw = self.param_groups[:num_matrices], self.param_groups[num_matrices:]
        if muon:
            self._muon = torch.optim.Muon(
                muon, lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov, ns_steps=ns_steps,
                adjust_lr_fn="match_rms_adamw",
            )  # fmt: skip
        if adamw:
            self._adamw = torch.optim.AdamW(adamw, lr=lr, weight_decay=weight_decay, betas=(betas[0], betas[1]))
        self._share_state()

    def _share_state(self) -> None:
        """Let both optimisers use the groups and the state of this one, which schedules and checkpoints refer to."""
        parts = [part for part in (self._muon, self._adamw) if part is not None]
        num_groups = 0
        for part in parts:
            size = len(part.param_groups)
            part.param_groups = self.param_groups[num_groups : num_groups + size]
            part.state = self.state
            num_groups += size

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of both parts.

        Args:
            state_dict: State that ``state_dict`` returned.
        """
        super().load_state_dict(state_dict)
        self._share_state()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters.

        Args:
            closure: Function that computes the loss and the gradients. If None, the gradients are already computed.

        Returns:
            Loss of the closure, or None.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in (self._muon, self._adamw):
            if part is not None:
                part.step()
        return loss


def _is_matrix(parameter: Tensor) -> bool:
    """Return whether Muon applies: a matrix with several rows and columns."""
    return parameter.dim() == 2 and min(parameter.shape) > 1


def component_entry(factory: Callable[..., Any]) -> dict[str, Any]:
    """Describe a factory for a manifest.

    Args:
        factory: Class, function, or ``functools.partial`` of one.

    Returns:
        Qualified ``name`` and plain ``arguments``. Arguments that JSON cannot express are described by their ``repr``.

    Example:
        >>> component_entry(partial(torch.optim.SGD, momentum=0.9))
        {'name': 'torch.optim.sgd.SGD', 'arguments': {'momentum': 0.9}}
    """
    function, keywords = (factory.func, factory.keywords) if isinstance(factory, partial) else (factory, {})
    name = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    return {"name": name, "arguments": {key: _plain(argument) for key, argument in keywords.items()}}


def _plain(argument: Any) -> Any:
    if isinstance(argument, list | tuple):
        return [_plain(each) for each in argument]
    if isinstance(argument, Mapping):
        return {str(key): _plain(each) for key, each in argument.items()}
    return argument if isinstance(argument, str | int | float | bool | None) else repr(argument)
