"""Models that a checkpoint can name: built-in ones, those of installed packages, and those registered in Python.

A checkpoint holds a name and never says what to import. A name that is not here is refused, so that an untrusted
checkpoint only runs code that the user's environment or program has registered.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from typing import Any

from torch import nn

from graphrerank.core import ModelInputs
from graphrerank.core.adapters import model_features, model_interface
from graphrerank.installation.plugins import GROUP, describe_entry_point, model_entries
from graphrerank.utils.checks import UserError

BUILT_IN = {  # imported when first used
    name: EntryPoint(name, f"graphrerank.models.{path}", GROUP)
    for name, path in {
        "gatv2_reranker": "gatv2_reranker:GATv2Reranker",
        "granker_head": "granker:GRankerHead",
        "pyg_reranker": "pyg_reranker:PyGReranker",
    }.items()
}
NO_INPUTS = (
    "must say what its `forward` takes: `inputs = ModelInputs((...))`, or a static method `inputs_of(**settings)`"
)
_registered: dict[str, type[nn.Module]] = {}


def register_model(model_class: type[nn.Module]) -> str:
    """Let this process save and load checkpoints of a model class; return the name that they have for it.

    Its ``forward`` takes plain tensors, which its ``inputs`` name, and returns scores ``[N]``; its constructor takes
    plain settings by name. It may name the kind of its manifests as ``manifest_class``.
    """
    if not isinstance(model_class, type) or not issubclass(model_class, nn.Module):
        raise UserError(f"a model must be a class of torch.nn.Module, got {model_class!r}")
    path = f"{model_class.__module__}.{model_class.__qualname__}"
    if model_interface(model_class).inputs_of is None:
        raise UserError(f"{path} {NO_INPUTS}")
    name = _entry_name(model_class) or path
    _registered[name] = model_class
    return name


def model_name(model_class: type[nn.Module]) -> str:
    """Return the name under which a manifest holds a model; a ValueError if the class is not registered."""
    registered = (name for name, known in _registered.items() if known is model_class)
    name = next(registered, None) or _entry_name(model_class)
    if name is None:
        raise UserError(f"a model must be one of {sorted(_entries())}, or of register_model, got {model_class!r}")
    return name


def find_model(name: object) -> type[nn.Module]:
    """Return the model of a checkpoint by its name; a ValueError if there is none, or it cannot be loaded."""
    entries = _entries()
    if isinstance(name, str):
        if name in _registered:
            return _registered[name]
        for key, entry in entries.items():
            if name in (key, entry.value.replace(":", ".")):
                return _load(entry)
    raise UserError(
        f"must be one of {sorted(entries)}, got {str(name)[:200]!r}; if it is yours, install the package whose entry "
        "point registers it, or name its class: models=[PACKAGE.CLASS], or register_model(CLASS)"
    )


def read_inputs(model_class: Any, arguments: Mapping[str, Any]) -> ModelInputs:
    """Return the inputs of a model before it is built, by its class or a function that builds it."""
    inputs_of = model_interface(model_class).inputs_of
    if inputs_of is None:
        raise UserError(f"{model_class} {NO_INPUTS}")
    return inputs_of(**arguments)


def read_features(model: nn.Module, score_names: Sequence[str]) -> list[str]:
    """Name a model's features of a candidate, in order: its ``feature_names``, else the retriever's scores."""
    return model_features(model, score_names)


def _entries() -> Mapping[str, EntryPoint]:
    """Return built-in models and those of installed packages."""
    entries = model_entries()
    for name in entries:
        if name in BUILT_IN:
            raise UserError(
                f"{describe_entry_point(entries[name])} must have another name, which is none of {sorted(BUILT_IN)}"
            )
    return {**BUILT_IN, **entries}


def _entry_name(model_class: type[nn.Module]) -> str | None:
    package = model_class.__module__.partition(".")[0]
    for name, entry in _entries().items():
        is_near = entry.attr == model_class.__qualname__ and entry.module.partition(".")[0] == package
        if is_near and entry.load() is model_class:
            return name
    return None


def _load(entry: EntryPoint) -> type[nn.Module]:
    try:
        model_class: type[nn.Module] = entry.load()
        register_model(model_class)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"{describe_entry_point(entry)} cannot be loaded: {error}") from error
    return model_class
