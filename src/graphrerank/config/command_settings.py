"""Settings of commands as dataclasses: defaults for Hydra, help texts, and checks of names and types.

The settings of a command are a dataclass whose docstring describes each field under ``Attributes:``. The command's file
``conf/<command>.yaml`` includes the defaults of the dataclass as ``<command>_settings`` and adds Hydra groups.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from textwrap import wrap
from typing import Any, cast, get_type_hints

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from pydantic import PydanticSchemaGenerationError, TypeAdapter, ValidationError

from graphrerank.utils.checks import UserError, similar_name
from graphrerank.utils.docstrings import docstring_entries

SUFFIX = "_settings"  # suffix of the name of the defaults in Hydra's config store
HELP_WIDTH = 100  # maximum line length of descriptions in YAML files and in --help, in characters
REQUIRED = "???"  # Hydra's value of a required setting


def store_settings(command: str, settings_class: type[Any]) -> None:
    """Register the defaults of a dataclass with Hydra as ``<command>_settings``, for ``conf/<command>.yaml``.

    Args:
        command: Name of the command's file in ``conf``.
        settings_class: Dataclass of the settings.
    """
    ConfigStore.instance().store(f"{command}{SUFFIX}", default_settings(settings_class))


def default_settings(settings_class: type[Any]) -> dict[str, Any]:
    """Return the defaults of a dataclass as plain values.

    Args:
        settings_class: Dataclass. Its fields may be dataclasses, too.

    Returns:
        Default by field name; ``"???"`` for a required field. Nested dataclasses are returned as mappings, sequences as
        lists.
    """
    return {field.name: _plain_default(field) for field in fields(settings_class)}


def _plain_default(field: Any) -> Any:
    if field.default_factory is not MISSING:
        default = field.default_factory()
    elif field.default is MISSING:
        return REQUIRED
    else:
        default = field.default
    if is_dataclass(default) and not isinstance(default, type):
        return default_settings(type(default))
    return list(default) if isinstance(default, tuple) else default


def describe_settings(settings_class: type[Any]) -> dict[str, str]:
    """Return the description of each field of a dataclass, from the docstrings of the class and of its bases.

    Args:
        settings_class: Dataclass whose docstring has a section ``Attributes:``.

    Returns:
        Description by field name, without line breaks.
    """
    descriptions: dict[str, str] = {}
    field_names = [field.name for field in fields(settings_class)]
    for base in reversed(settings_class.__mro__):
        if is_dataclass(base):
            descriptions |= docstring_entries(base.__doc__, "Attributes")
    return {name: _plain_description(descriptions[name]) for name in field_names if name in descriptions}


def _plain_description(entry: str) -> str:
    """Return the description in an entry of a docstring, without line breaks and marks of code."""
    return " ".join(entry.partition(": ")[2].split()).replace("``", "")


def help_lines(settings_class: type[Any], overrides: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield the settings of a command as YAML, each below a comment with its description.

    Args:
        settings_class: Dataclass of the settings.
        overrides: Defaults that the command's file in ``conf`` overrides.
        indent: Indentation of each line.

    Yields:
        Lines of the help text.
    """
    descriptions = describe_settings(settings_class)
    hints = get_type_hints(settings_class)
    defaults = default_settings(settings_class)
    declared = vars(settings_class)["__annotations__"]
    for name in sorted(defaults, key=lambda name: name not in declared):  # inherited settings last
        mark = f"{indent}# "
        text = descriptions.get(name, "")
        yield from wrap(text, HELP_WIDTH, initial_indent=mark, subsequent_indent=mark, break_on_hyphens=False)
        if is_dataclass(hints[name]):
            yield f"{indent}{name}:"
            yield from help_lines(hints[name], overrides.get(name, {}), f"{indent}  ")
        else:
            yield f"{indent}{name}: {_yaml(overrides.get(name, defaults[name]))}"


def _yaml(setting: Any) -> str:
    """Return a setting as one line of YAML."""
    if isinstance(setting, list):
        return f"[{', '.join(map(_yaml, setting))}]"
    if isinstance(setting, dict):
        return f"{{{', '.join(f'{key}: {_yaml(entry)}' for key, entry in setting.items())}}}"
    if isinstance(setting, bool):
        return str(setting).lower()
    return "null" if setting is None else str(setting)


def check_command_settings(cfg: DictConfig, settings_class: type[Any], prefix: str = "") -> None:
    """Check the types of the settings of a command against its dataclass.

    Args:
        cfg: Composed settings. Keys that are not fields of the dataclass, such as groups, are ignored.
        settings_class: Dataclass of the settings.
        prefix: Prefix of the keys in messages.

    Raises:
        ValueError: If a setting has a wrong type, or a nested setting does not exist.
    """
    hints = get_type_hints(settings_class)
    for field in fields(settings_class):
        key, hint = f"{prefix}{field.name}", hints[field.name]
        is_unset = field.name not in cfg or OmegaConf.is_missing(cfg, field.name)
        if is_unset or OmegaConf.is_interpolation(cfg, field.name):  # the interpolated setting is checked elsewhere
            continue
        setting = cfg[field.name]
        if is_dataclass(hint) and OmegaConf.is_dict(setting):
            existing = [entry.name for entry in fields(hint)]
            check_known(list(map(str, setting)), existing, f"{key}.")
            check_command_settings(setting, cast(type[Any], hint), f"{key}.")
        else:
            check_type(setting, hint, key)


def check_known(keys: list[str], known: list[str], prefix: str = "") -> None:
    """Raise an error if a setting does not exist.

    Args:
        keys: Names of settings to check.
        known: Names of all existing settings.
        prefix: Prefix of the names in messages.

    Raises:
        ValueError: If a name is unknown. The message suggests a similar name.
    """
    for key in sorted(set(keys) - set(known)):
        raise UserError(f"unknown setting {prefix + key!r}; the settings are {sorted(known)}{suggestion(key, known)}")


def suggestion(key: str, known: list[str]) -> str:
    """Return a suggestion for a misspelt setting, to append to an error message.

    Args:
        key: Name of a setting that does not exist.
        known: Names of all existing settings.

    Returns:
        ``", did you mean ...?"``, or an empty string if no name is similar.

    Example:
        >>> suggestion("checkpont", ["checkpoint", "seed"])
        ', did you mean checkpoint?'
    """
    similar = similar_name(key, known)
    return "" if similar is None else f", did you mean {similar}?"


def check_type(setting: Any, needed: Any, key: str) -> None:
    """Check the type of a setting without conversion. A number is accepted where a string is required.

    Args:
        setting: Value of the setting.
        needed: Required type, as an annotation. Types without a pydantic schema are not checked.
        key: Name of the setting, for the message.

    Raises:
        ValueError: If the setting has a wrong type.
    """
    if OmegaConf.is_config(setting):
        setting = OmegaConf.to_container(setting, resolve=True)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(needed)
    except PydanticSchemaGenerationError:
        return
    try:
        adapter.validate_python(setting, strict=True)
    except ValidationError as error:
        if isinstance(setting, int | float) and not isinstance(setting, bool) and _accepts(adapter, str(setting)):
            return  # the name of a folder or a commit can be a number
        first = error.errors()[0]
        message = "input should be a valid list" if first["type"] == "sequence_str" else first["msg"].lower()
        raise UserError(f"`{key}`: {message}, got {first['input']!r}") from None


def _accepts(adapter: TypeAdapter[Any], setting: object) -> bool:
    try:
        adapter.validate_python(setting, strict=True)
    except ValidationError:
        return False
    return True


def group_names(content: Mapping[str, Any]) -> list[str]:
    """Return the groups in the defaults list of a file of ``conf``.

    Args:
        content: Content of the file.

    Returns:
        Names of the groups, in the order of the list.
    """
    names = [str(name) for entry in content["defaults"] if isinstance(entry, dict) for name in entry]
    return [name for name in names if not name.startswith("override ")]


def setting_names(settings_class: type[Any], prefix: str = "") -> list[str]:
    """Return the dotted names of the settings of a dataclass.

    Args:
        settings_class: Dataclass of the settings.
        prefix: Prefix of each name.

    Returns:
        Names, including those of nested settings.
    """
    names, hints = [], get_type_hints(settings_class)
    for field in fields(settings_class):
        names.append(f"{prefix}{field.name}")
        if is_dataclass(hints[field.name]):
            names += setting_names(hints[field.name], f"{prefix}{field.name}.")
    return names
