"""Plugins: settings, models, services, data set builders and commands that other packages add through entry points.

Each kind of plugin has a group of entry points; ``docs/extending.md`` has an example of each.

- ``graphrerank.extensions``: An entry that names a module adds the module's folder of settings to ``conf``. An entry
  that names a class adds a model, which checkpoints refer to by the name of the entry.
- ``graphrerank.services``: Functions that serve models that are not rerankers.
- ``graphrerank.builders``: Functions that write public data sets as data set folders.
- ``graphrerank.commands``: Modules that implement commands.
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
    """Return the extension entry points of all installed packages without duplicates, sorted by name."""
    found = {(entry.name, entry.value): entry for entry in entry_points(group=GROUP)}
    return tuple(found[key] for key in sorted(found))


def model_entries() -> Mapping[str, EntryPoint]:
    """Return the extension entry points that name a class, without importing them.

    Returns:
        Entry points by name.

    Raises:
        ValueError: If two entry points have the same name.
    """
    models: dict[str, EntryPoint] = {}
    for entry in extension_entries():
        if not entry.attr:
            continue
        if entry.name in models:
            both = f"{describe_entry_point(models[entry.name])} and {describe_entry_point(entry)}"
            raise UserError(f"entry points of {GROUP} must have unique names, got {both}")
        models[entry.name] = entry
    return models


def find_builder(name: str) -> Callable[..., dict[str, Any]]:
    """Import the builder of a data set.

    A builder is called as ``builder(locations, out, downloads=folder, downloader=download, **options)``. It reads the
    files at ``locations`` (paths, archives or URLs), writes the data set folder ``out``, and returns the data card, a
    JSON-serialisable dictionary with ``counts``, ``dropped`` and ``hash``.

    Args:
        name: Name of the builder's entry point.

    Returns:
        The builder.

    Raises:
        ValueError: If there is no builder with this name.
    """
    entries = {entry.name: entry for entry in entry_points(group=BUILDERS)}
    if name not in entries:
        raise UserError(f"`build` must be one of {sorted(entries)}, got {name!r}")
    builder: Callable[..., dict[str, Any]] = entries[name].load()
    return builder


def command_entries() -> dict[str, EntryPoint]:
    """Return the entry points of plugin commands by command name, without importing them."""
    return {entry.name: entry for entry in sorted(entry_points(group=COMMAND_GROUP), key=lambda entry: entry.name)}


def plugin_command_help(entry: EntryPoint) -> tuple[str, str]:
    """Return the usage and the summary of a plugin command for ``graphrerank --help``.

    Args:
        entry: Entry point that names a module with ``USAGE``, ``SUMMARY`` and ``main(arguments) -> int``. The module
            should import quickly.

    Returns:
        Usage and summary of the command.

    Raises:
        ValueError: If the module cannot be imported, or ``USAGE`` or ``SUMMARY`` is missing.
    """
    try:
        module = entry.load()
        return str(module.USAGE), str(module.SUMMARY)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"{describe_entry_point(entry)} must name a module with USAGE, SUMMARY and main: {error}"
        ) from error


def load_service(model: str) -> Callable[..., Any]:
    """Import the function that serves the artifacts of a model that is not a reranker.

    Args:
        model: Name of the model.

    Returns:
        The function.

    Raises:
        ValueError: If no plugin serves the model, or the function cannot be imported.
    """
    entry = next((entry for entry in entry_points(group=SERVICES) if entry.name == model), None)
    if entry is None:
        raise UserError(
            f"the artifact must contain a reranker or a model with an entry point of {SERVICES}, got a {model}"
        )
    try:
        serve: Callable[..., Any] = entry.load()
    except (ImportError, AttributeError) as error:
        raise UserError(f"{describe_entry_point(entry)} cannot be loaded: {error}") from error
    return serve


def settings_folders() -> list[Path]:
    """Return the settings folders of all plugins, sorted by the names of their entry points.

    Returns:
        Folders that extend ``conf``.

    Raises:
        ValueError: If an entry point does not name a package that can be imported.
    """
    folders = []
    for entry in extension_entries():
        if entry.attr:
            continue
        try:
            spec = find_spec(entry.value)
        except ImportError as error:
            raise UserError(f"{describe_entry_point(entry)} cannot be imported: {error}") from error
        if spec is None or not spec.submodule_search_locations:
            raise UserError(f"{describe_entry_point(entry)} must name a folder of settings in a package")
        folders.append(Path(next(iter(spec.submodule_search_locations))))
    return folders


def check_settings_folders(conf: Path) -> None:
    """Check that no settings file exists in two folders, because Hydra would silently ignore one of them.

    Args:
        conf: Settings folder of this project. The folders of all plugins are compared with it and with each other.

    Raises:
        ValueError: If two folders contain a file with the same relative path.
    """
    owners: dict[Path, Path] = {}
    for folder in (conf, *settings_folders()):
        for path in sorted(folder.rglob("*.yaml")):
            name = path.relative_to(folder)
            if name in owners:
                raise UserError(f"{path}: {name} already exists in {owners[name]}. Rename one of the files")
            owners[name] = folder


def extension_versions() -> dict[str, str]:
    """Return the versions of the packages with extension entry points, by package name."""
    return {entry.dist.name: entry.dist.version for entry in extension_entries() if entry.dist is not None}


def describe_entry_point(entry: EntryPoint) -> str:
    """Return the name of an entry point and of its package, for messages.

    Args:
        entry: Entry point.
    """
    package = "" if entry.dist is None else f" of {entry.dist.name}"
    return f"the entry point {entry.name} = {entry.value!r}{package}"
