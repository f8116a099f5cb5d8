"""Checks of a command's composed configuration: its file of ``conf`` says which settings there are, and their types."""

import re
from functools import cache
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict
from pydantic import PydanticSchemaGenerationError, TypeAdapter, ValidationError

from graphrerank.config.compose import register_settings
from graphrerank.installation.conf_folder import CHOICES, conf_folder, listed_choices
from graphrerank.installation.plugins import settings_folders
from graphrerank.utils.checks import UserError

OPTIONAL: dict[str, Any] = {  # types of settings that are null by default, where an error would come late
    "counterfactuals": list[str] | None,
    "formats": list[str] | None,
    "num_queries": int | None,
    "operator.gcs.restart_prob": float | None,
    "operator.ppr.restart_prob": float | None,
    "tested": list[str] | None,
    "train_only": list[str] | None,
}
SHARED = "shared"  # parts that files of conf/pipeline refer to


@cache
def register() -> None:
    """Make the folders of extensions and the help known to Hydra, before ``@hydra.main`` composes."""
    OmegaConf.register_new_resolver("graphrerank_help", _help, replace=True)
    register_settings()


def _help(name: str) -> str:
    """Return Hydra's template of ``--help``: a command's file of settings with its comments, and the groups."""
    folders = [conf_folder(), *settings_folders()]
    text = (folders[0] / f"{name}.yaml").read_text(encoding="utf-8").split("\nhydra:\n")[0]
    shown = [line for line in text.splitlines() if "- override " not in line and "_schema" not in line]
    choices = {
        group: sorted(path.stem for folder in folders for path in (folder / group).glob("*.yaml"))
        for group in re.findall(r"^  - (\w+):", "\n".join(shown), flags=re.MULTILINE)
    }
    for group in CHOICES.keys() & choices.keys():
        choices[group] = sorted([*choices[group], *listed_choices(group)])
    listed = [f"  {group}: {', '.join(names)}" for group, names in choices.items()]
    advice = "GROUP=CHOICE takes another file of conf/GROUP; --cfg job --package GROUP shows its settings:"
    return "\n".join([*shown, "", advice, *listed, "", "--hydra-help: Hydra's flags"]).replace("$", "$$")


def check_settings(cfg: DictConfig, name: str) -> None:
    """Refuse settings that ``conf/<name>.yaml`` does not have, or of another type; groups without a choice become null.

    Settings below a group of ``conf`` are checked by the class that they build.
    """
    usual = OmegaConf.to_container(OmegaConf.load(conf_folder() / f"{name}.yaml"))
    assert isinstance(usual, dict)
    named = [str(key) for entry in usual["defaults"] if isinstance(entry, dict) for key in entry]
    groups = [key for key in named if not key.startswith("override ")]
    own = {key: setting for key, setting in usual.items() if key not in ("defaults", "hydra")}
    known = sorted({*map(str, own), *groups, SHARED})
    if unknown := sorted(str(key) for key in cfg if key not in known):
        raise UserError(f"unknown setting {unknown[0]!r}; the settings are {known}")
    with open_dict(cfg):
        for group in groups:
            cfg.setdefault(group, None)
    for key, setting in own.items():
        _check_as(cfg, str(key), setting, str(key))


def _check_as(node: DictConfig, key: str, usual: Any, path: str) -> None:
    """Check that a setting has the type of its default; those below a class to build are checked elsewhere."""
    is_built = isinstance(usual, dict) and "_target_" in usual
    if OmegaConf.is_missing(node, key) or OmegaConf.is_interpolation(node, key) or usual == "???" or is_built:
        return
    if path in OPTIONAL:
        check_type(node[key], OPTIONAL[path], path)
    elif isinstance(usual, dict) and usual and OmegaConf.is_dict(node[key]):
        for name, setting in usual.items():
            if name in node[key]:
                _check_as(node[key], str(name), setting, f"{path}.{name}")
    elif isinstance(usual, bool | int | float | list | dict) or (isinstance(usual, str) and "${" not in usual):
        wider: Any = {float: float | int, dict: dict | None, str: str | None}.get(type(usual), type(usual))
        check_type(node[key], wider, path)


def check_type(setting: Any, needed: Any, key: str) -> None:
    """Refuse a setting of another type; the error names its ``key``. Types of built parts are not checked."""
    if OmegaConf.is_config(setting):
        setting = OmegaConf.to_container(setting, resolve=True)
    try:
        TypeAdapter(needed).validate_python(setting, strict=True)
    except PydanticSchemaGenerationError:
        return
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"`{key}`: {first['msg'].lower()}, got {first['input']!r}") from None
