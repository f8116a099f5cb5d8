"""Models that a checkpoint can name: ours, those that installed packages register, and those registered in Python.

A checkpoint holds a name and never says what is imported: a name that is not here is refused, so that a stranger's
checkpoint can name no code but what the user's environment or program has registered.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from typing import Any

from torch import nn

from graphrerank.extensions import describe, model_entries
from graphrerank.graphs import ModelInputs
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.models.granker_head import GRankerHead
from graphrerank.models.granker_layers import GRankerLayers
from graphrerank.models.pyg_reranker import PyGReranker
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter

MODELS: Mapping[str, type[nn.Module]] = {
    "complexity_adapter": ComplexityAdapter,
    "gatv2_reranker": GATv2Reranker,
    "granker_head": GRankerHead,
    "granker_layers": GRankerLayers,
    "pyg_reranker": PyGReranker,
}
_registered: dict[str, type[nn.Module]] = {}


def register_model(model_class: type[nn.Module]) -> str:
    """Let this process save and load checkpoints of a model of one's own.

    Args:
        model_class: Its ``forward`` takes plain tensors, which its ``inputs`` name, and returns scores ``[N]``; its
            constructor takes plain settings by name.

    Returns:
        The name that checkpoints have for it: that of its entry point, else its module and its own name.

    Raises:
        ValueError: If it is no module, or does not say what it reads.
    """
    if not isinstance(model_class, type) or not issubclass(model_class, nn.Module):
        raise ValueError(f"a model must be a class of torch.nn.Module, got {model_class!r}")
    if not hasattr(model_class, "inputs_of") and not isinstance(getattr(model_class, "inputs", None), ModelInputs):
        raise ValueError(
            f"{path_of(model_class)} must say what its `forward` takes: `inputs = ModelInputs((...))`, or a static "
            "method `inputs_of(**settings)`"
        )
    if model_class not in MODELS.values():
        package = model_class.__module__.partition(".")[0]
        own = {name: entry for name, entry in _entries().items() if entry.module.partition(".")[0] == package}
        entered = (name for name, entry in own.items() if entry.load() is model_class)
        _registered[next(entered, path_of(model_class))] = model_class
    return model_name(model_class)


def model_name(model_class: type[nn.Module]) -> str:
    """Return the name under which a manifest holds a model.

    Raises:
        ValueError: If the class is not registered.
    """
    for name, known in {**MODELS, **_registered}.items():
        if known is model_class:
            return name
    raise ValueError(f"a checkpoint can hold {sorted(MODELS)} and what register_model took, got {model_class!r}")


def find_model(name: object) -> type[nn.Module]:
    """Return the model of a checkpoint by its name.

    Raises:
        ValueError: If there is none of that name here, or its entry point cannot be loaded or names no model.
    """
    if not isinstance(name, str):
        raise ValueError(f"must be one of {sorted(MODELS)}, got {name!r}")
    if name in MODELS:
        return MODELS[name]
    if name in _registered:
        return _registered[name]
    entries = _entries()
    for own, entry in entries.items():
        if name in (own, entry.value.replace(":", ".")):
            return _load(entry)
    raise ValueError(
        f"must be one of {sorted({*MODELS, *entries})}, got {name[:200]!r}; if it is yours, install the package "
        "whose entry point registers it, or name its class: models=[PACKAGE.CLASS], or register_model(CLASS)"
    )


def read_inputs(model_class: Any, arguments: Mapping[str, Any]) -> ModelInputs:
    """Return what a model of a class, or of a function that builds one, reads, before it is built.

    Raises:
        TypeError: If the arguments are not the model's.
    """
    asks = getattr(model_class, "inputs_of", None)
    inputs: ModelInputs = model_class.inputs if asks is None else asks(**arguments)
    return inputs


def read_features(model: nn.Module, score_names: Sequence[str]) -> list[str]:
    """Name what a model reads of a candidate, in order: as it says itself, else the retriever's scores."""
    names = getattr(model, "feature_names", None)
    return list(score_names) if names is None else list(names(score_names))


def path_of(model_class: type) -> str:
    """Return the module of a class and its name in it."""
    return f"{model_class.__module__}.{model_class.__qualname__}"


def _entries() -> Mapping[str, EntryPoint]:
    entries = model_entries()
    for name in entries:
        if name in MODELS:
            raise ValueError(f"{describe(entries[name])} must have another name, which is none of {sorted(MODELS)}")
    return entries


def _load(entry: EntryPoint) -> type[nn.Module]:
    try:
        model_class = entry.load()
        register_model(model_class)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{describe(entry)} cannot be loaded: {error}") from error
    return model_class
