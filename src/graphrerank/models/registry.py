"""Registry of the models that a checkpoint can name: built-in, from installed packages, or registered in Python.

A checkpoint contains the name of a model, never a class to import. An unknown name is rejected. An untrusted checkpoint
can therefore only run code that the user's environment or program has registered.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from typing import Any

from torch import nn

from graphrerank.core import ModelInputs
from graphrerank.core.adapters import model_features, model_interface
from graphrerank.installation.plugins import GROUP, describe_entry_point, model_entries
from graphrerank.utils.checks import UserError

#: Built-in models, imported when they are first used.
BUILT_IN = {
    name: EntryPoint(name, f"graphrerank.models.{path}", GROUP)
    for name, path in {
        "gatv2_reranker": "gatv2_reranker:GATv2Reranker",
        "granker_head": "granker:GRankerHead",
        "granker_layers": "granker_layers:GRankerLayers",
        "pyg_reranker": "pyg_reranker:PyGReranker",
    }.items()
}
NO_INPUTS = (
    "must declare the inputs of its `forward`, with `inputs = ModelInputs((...))` or a static method "
    "`inputs_of(**settings)`"
)
_registered: dict[str, type[nn.Module]] = {}


def register_model(model_class: type[nn.Module]) -> str:
    """Register a model class, so that this process can save and load its checkpoints.

    Args:
        model_class: Subclass of ``torch.nn.Module``. Its constructor takes plain settings by name. Its ``forward``
            takes the plain tensors that its ``inputs`` declare and returns scores ``[N]``. It may have a
            ``manifest_class``.

    Returns:
        Name of the model in checkpoints.

    Raises:
        UserError: If the class is not a module or does not declare its inputs.

    Example:
        >>> class Linear(nn.Module):
        ...     inputs = ModelInputs(("base_features",))
        >>> register_model(Linear).rpartition(".")[2]
        'Linear'
    """
    if not isinstance(model_class, type) or not issubclass(model_class, nn.Module):
        raise UserError(f"`model_class` must be a subclass of torch.nn.Module, got {model_class!r}")
    path = f"{model_class.__module__}.{model_class.__qualname__}"
    if model_interface(model_class).inputs_of is None:
        raise UserError(f"{path} {NO_INPUTS}")
    name = _entry_name(model_class) or path
    _registered[name] = model_class
    return name


def model_name(model_class: type[nn.Module]) -> str:
    """Return the name of a model class in manifests.

    Args:
        model_class: Class of the model.

    Raises:
        UserError: If the class is not registered.
    """
    registered = (name for name, known in _registered.items() if known is model_class)
    name = next(registered, None) or _entry_name(model_class)
    if name is None:
        raise UserError(
            f"the model must be one of {sorted(_entries())} or registered with register_model, got {model_class!r}"
        )
    return name


def find_model(name: object) -> type[nn.Module]:
    """Return the model class of a checkpoint.

    Args:
        name: Name of the model in the checkpoint's manifest.

    Raises:
        UserError: If no model has this name, or if it cannot be imported.
    """
    entries = _entries()
    if isinstance(name, str):
        if name in _registered:
            return _registered[name]
        for key, entry in entries.items():
            if name in (key, entry.value.replace(":", ".")):
                return _load(entry)
    raise UserError(
        f"must be one of {sorted(entries)}, got {str(name)[:200]!r}. To use your own model, install the package whose "
        "entry point registers it, set models=[PACKAGE.CLASS], or call register_model(CLASS)"
    )


def read_inputs(model_class: Any, arguments: Mapping[str, Any]) -> ModelInputs:
    """Return the inputs of a model before it is built.

    Args:
        model_class: Class of the model, or a function that builds it.
        arguments: Arguments of its constructor by name.

    Raises:
        UserError: If the class does not declare its inputs.
    """
    inputs_of = model_interface(model_class).inputs_of
    if inputs_of is None:
        raise UserError(f"{model_class} {NO_INPUTS}")
    return inputs_of(**arguments)


def read_features(model: nn.Module, score_names: Sequence[str]) -> list[str]:
    """Return the names of a candidate's features, in order: those of ``feature_names``, or by default the scores.

    Args:
        model: Class or instance of the model.
        score_names: Names of the scores of the retriever.
    """
    return model_features(model, score_names)


def _entries() -> Mapping[str, EntryPoint]:
    """Return the built-in models and those of installed packages."""
    entries = model_entries()
    for name in entries:
        if name in BUILT_IN:
            raise UserError(
                f"{describe_entry_point(entries[name])} must not have the name of a built-in model, {sorted(BUILT_IN)}"
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
