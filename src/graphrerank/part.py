"""One part: its settings as ``conf`` writes them, and the object that they describe."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from graphrerank.conf_folder import register_choices
from graphrerank.extensions import settings_folders
from graphrerank.passwords import without_passwords
from graphrerank.untrusted import check_hub_model

MACHINE_KEYS = ("device", "datasets", "cache")  # settings that name a device or a folder of this machine
CONF_ONLY = ("package", "folder", "sha256")  # what is imported, which conf alone may say
PATH_SIGNS = re.compile(r"^[.~]|[/\\\0]")  # of texts that name a file or an address
FREE_TEXTS = ("prompt", "query_prompt", "id", "splits", "corpus_where", "descriptions", "user", "system", "abstention")

Settings = Mapping[str, Any]  # of a group of conf: plain settings, and the classes to build as `_target_`


@dataclass(frozen=True)
class Part:
    """A part as a manifest names it, and its settings, from which it is built; or the object that the caller brings."""

    settings: DictConfig | None = None  # resolved, with ``_target_``
    choice: str | None = None  # the file of ``conf/<group>``, if the settings are those of one
    given: Any = None

    @property
    def name(self) -> str:
        """The name in notes and manifests: the file of ``conf``, else the class."""
        return self.choice or type(self.given).__name__

    @property
    def arguments(self) -> dict[str, Any]:
        """Settings without Hydra's keys, as a manifest holds them."""
        return {} if self.settings is None else plain_arguments(self.settings)

    def build(self, *args: Any, **arguments: Any) -> Any:
        """Build the object, or return the given one."""
        return self.given if self.settings is None else build(self.settings, *args, **arguments)


def register_settings() -> None:
    """Make known to Hydra where settings lie: folders of extensions, and choices of which one file holds several."""
    OmegaConf.register_new_resolver(
        "graphrerank_extensions", lambda: [f"file://{folder}" for folder in settings_folders()], replace=True
    )
    register_choices()


def build(settings: Settings, *args: Any, **arguments: Any) -> Any:
    """Build what settings describe; an error of its class comes as it is."""
    try:
        return instantiate(settings, *args, **arguments)
    except InstantiationException as error:
        if isinstance(error.__cause__, ValueError | ImportError | OSError):
            raise error.__cause__ from None
        raise


def plain_arguments(settings: Settings) -> dict[str, Any]:
    """Return resolved settings without Hydra's keys (``_target_`` and the like) and passwords, nested ones too."""
    content = OmegaConf.to_container(settings, resolve=True) if OmegaConf.is_config(settings) else dict(settings)
    arguments: dict[str, Any] = shown(without_keys(content, (), private=True))
    return arguments


def portable_arguments(settings: Settings) -> dict[str, Any]:
    """Return :func:`plain_arguments` without those of this machine."""
    arguments: dict[str, Any] = without_keys(plain_arguments(settings), MACHINE_KEYS)
    return arguments


def dotted_settings(settings: Settings, before: str = "") -> Iterator[tuple[str, Any]]:
    """List nested settings by their whole keys."""
    for key, setting in settings.items():
        if isinstance(setting, Mapping) and "_target_" not in setting:
            yield from dotted_settings(setting, f"{before}{key}.")
        else:
            yield f"{before}{key}", setting


def check_plain(key: str, settings: Any, usual: Any) -> None:
    """Refuse settings in a file that name a package, a folder, an address, or a model that is not the hub's.

    The path of a data set passes: it is read as data, and as nothing else. So does what ``conf`` has in their place,
    the ``usual``; None where it has nothing.
    """
    if settings == (OmegaConf.to_container(usual) if OmegaConf.is_config(usual) else usual):
        return
    name = key.rpartition(".")[2]
    if name in CONF_ONLY:
        raise ValueError(f"`{key}` of a file must be what conf says, {usual!r}, got {str(settings)[:200]!r}")
    if name in FREE_TEXTS:
        return
    if isinstance(settings, Mapping):
        for part, entry in settings.items():
            check_plain(f"{key}.{part}", entry, usual.get(part) if OmegaConf.is_dict(usual) else None)
    elif isinstance(settings, list):
        for entry in settings:
            check_plain(key, entry, None)
    elif isinstance(settings, str) and name == "model":
        check_hub_model(**{key: settings})
    elif isinstance(settings, str) and PATH_SIGNS.search(settings) and (name != "path" or "://" in settings):
        raise ValueError(f"`{key}` of a file names {settings[:200]!r}; if you trust it, name it yourself: {key}=...")


def shown(content: Any) -> Any:
    """Hide passwords at any depth."""
    if isinstance(content, Mapping):
        return {key: shown(entry) for key, entry in content.items()}
    if isinstance(content, list):
        return [shown(entry) for entry in content]
    return without_passwords(content) if isinstance(content, str) else content


def without_keys(content: Any, keys: Sequence[str], *, private: bool = False) -> Any:
    """Leave out keys at any depth, and with ``private`` those that Hydra acts on."""
    if isinstance(content, Mapping):
        return {
            key: without_keys(entry, keys, private=private)
            for key, entry in content.items()
            if key not in keys and not (private and str(key).startswith("_"))
        }
    return [without_keys(entry, keys, private=private) for entry in content] if isinstance(content, list) else content
