"""What other installed packages add to this one, by entry points; ``docs/extending.md`` has an example of each.

An entry of the group ``graphrerank.extensions`` that names a module is a folder of settings, which joins ``conf``; one
that names a class is a model, which checkpoints call by the entry's name. ``graphrerank.services`` has functions that
serve models that are no rerankers, ``graphrerank.builders`` those that write public data sets as folders,
``graphrerank.commands`` modules of commands.
"""

from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from graphrerank._moved import moved_names
from graphrerank.utils.checks import UserError

__getattr__ = moved_names(__name__)

GROUP = "graphrerank.extensions"
BUILDERS = "graphrerank.builders"
SERVICES = "graphrerank.services"
COMMAND_GROUP = "graphrerank.commands"


@cache
def extension_entries() -> tuple[EntryPoint, ...]:
    """Return the entry points of all installed packages, by name; the same one once."""
    found = {(entry.name, entry.value): entry for entry in entry_points(group=GROUP)}
    return tuple(found[key] for key in sorted(found))


def model_entries() -> Mapping[str, EntryPoint]:
    """Return the entry points that name a class, by name, without importing them; two of one name are an error."""
    models: dict[str, EntryPoint] = {}
    for entry in extension_entries():
        if not entry.attr:
            continue
        if entry.name in models:
            both = f"{describe_entry_point(models[entry.name])} and {describe_entry_point(entry)}"
            raise UserError(f"entry points of {GROUP} must have different names, got {both}")
        models[entry.name] = entry
    return models


def find_builder(name: str) -> Callable[..., dict[str, Any]]:
    """Import the builder of a data set.

    It is called as ``builder(locations, out, downloads=folder, downloader=download, **options)``: it reads the files at
    ``locations`` (paths, archives, URLs), writes the data set folder ``out``, and returns its card, an object for JSON
    with ``counts``, ``dropped`` and ``hash``.
    """
    entries = {entry.name: entry for entry in entry_points(group=BUILDERS)}
    if name not in entries:
        raise UserError(f"`build` must be one of {sorted(entries)}, got {name!r}")
    builder: Callable[..., dict[str, Any]] = entries[name].load()
    return builder


def command_entries() -> dict[str, EntryPoint]:
    """Return the entry points of commands, by the name of the command, without importing them."""
    return {entry.name: entry for entry in sorted(entry_points(group=COMMAND_GROUP), key=lambda entry: entry.name)}


def plugin_command_help(entry: EntryPoint) -> tuple[str, str]:
    """Return the arguments and the summary of a command, as ``graphrerank --help`` shows them.

    Args:
        entry: Entry point that names a module with ``USAGE``, ``SUMMARY`` and ``main(arguments) -> int``. The module
            must be cheap to import.

    Returns:
        The module's ``USAGE`` and ``SUMMARY``.

    Raises:
        ValueError: If the module cannot be imported or lacks one of the two.
    """
    try:
        module = entry.load()
        return str(module.USAGE), str(module.SUMMARY)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"{describe_entry_point(entry)} must name a module with USAGE, SUMMARY and main: {error}"
        ) from error


def load_service(model: str) -> Callable[..., Any]:
    """Import the function that serves the artifacts of a model, by the model's name."""
    entry = next((entry for entry in entry_points(group=SERVICES) if entry.name == model), None)
    if entry is None:
        raise UserError(f"only rerankers can be served, and models with an entry point of {SERVICES}; got a {model}")
    try:
        serve: Callable[..., Any] = entry.load()
    except (ImportError, AttributeError) as error:
        raise UserError(f"{describe_entry_point(entry)} cannot be loaded: {error}") from error
    return serve


def settings_folders() -> list[Path]:
    """Return the folders of settings, in the order of their entry points' names."""
    folders = []
    for entry in extension_entries():
        if entry.attr:
            continue
        try:
            spec = find_spec(entry.value)
        except ImportError as error:
            raise UserError(f"{describe_entry_point(entry)}: cannot be imported: {error}") from error
        if spec is None or not spec.submodule_search_locations:
            raise UserError(f"{describe_entry_point(entry)}: needed a folder of settings in a package, found none")
        folders.append(Path(next(iter(spec.submodule_search_locations))))
    return folders


def check_settings_folders(conf: Path) -> None:
    """Require that no two folders of settings have a file of one name, of which only one would be read."""
    owners: dict[Path, Path] = {}
    for folder in (conf, *settings_folders()):
        for path in sorted(folder.rglob("*.yaml")):
            name = path.relative_to(folder)
            if name in owners:
                raise UserError(f"{path}: there is a {name} in {owners[name]} already; give it another name")
            owners[name] = folder


def extension_versions() -> dict[str, str]:
    """Return the versions of the packages with entry points, by name."""
    return {entry.dist.name: entry.dist.version for entry in extension_entries() if entry.dist is not None}


def describe_entry_point(entry: EntryPoint) -> str:
    """Name an entry point and its package, for messages."""
    package = "" if entry.dist is None else f" of {entry.dist.name}"
    return f"the entry point {entry.name} = {entry.value!r}{package}"
