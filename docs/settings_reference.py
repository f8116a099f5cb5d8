"""Pages of the settings reference: the settings of each command, and every file of each group of ``conf``."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from graphrerank.cli.schema import SETTINGS, settings_class
from graphrerank.config.command_settings import help_lines

ROOT = Path(__file__).parent.parent
CONF = (ROOT / "conf", ROOT / "src" / "graphrerank_papers" / "conf")
COMMANDS = "commands"
GROUPS = {  # what a group chooses
    COMMANDS: "Settings of each command",
    "data": "Data set",
    "encoder": "Text encoder",
    "retriever": "Retriever of the candidates",
    "features": "Features that the model reads",
    "model": "Model",
    "loss": "Loss",
    "teacher": "Teacher of a distillation",
    "optimizer": "Optimiser",
    "scheduler": "Learning-rate schedule",
    "module": "Lightning module: optimiser and learning rate",
    "trainer": "`lightning.Trainer`",
    "engine": "Engine of `graphrerank prepare`, which writes the shards of a corpus folder",
    "callbacks": "Callbacks of the trainer",
    "logger": "Experiment trackers",
    "pair_encoder": "Cross-encoder",
    "pipeline": "Retrieval pipeline, such as a published system",
    "answers": "Reader that answers questions from what each system ranks",
    "extractor": "Extractor of entities and facts",
    "language_model": "Language model",
    "prompts": "Prompts of language models",
    "experiment": "Experiments: complete configurations of a command",
    "debug": "Quick runs to find errors",
    "paths": "Folders",
    "hparams_search": "Search for hyperparameters",
    "hydra/launcher": "Launcher of sweeps",
    "hydra/sweeper": "Sweeper, which chooses the settings of each run of a sweep",
}
INTERNAL = ("_partial_", "_convert_", "_recursive_", "defaults", "hydra")  # wiring, which nobody sets on a command line
# Groups whose files become part of other groups or of the whole configuration.
WITHOUT_PREFIX = (COMMANDS, "experiment", "debug", "hparams_search", "extractor", "language_model", "prompts")


@dataclass
class SettingsFile:
    """A file of ``conf``, prepared for its page.

    Attributes:
        path: Path within the folder of settings.
        notes: Sentences of the leading comment.
        commands: Example commands of the leading comment.
        target: Class or function that the file builds. None if the file builds nothing.
        choices: Files of other groups that the file chooses, such as ``data=bird_train``, with their descriptions.
        settings: Name, default and description of each setting.
    """

    path: Path
    notes: str = ""
    commands: str = ""
    target: str | None = None
    choices: list[tuple[str, str]] = field(default_factory=list)
    settings: list[tuple[str, str, str]] = field(default_factory=list)


def read_settings(path: Path, prefix: str = "") -> SettingsFile:
    """Read the settings of a file of ``conf`` with their comments.

    Args:
        path: YAML file. A comment is above its setting or at the end of the line.
        prefix: First part of the settings' names on the command line, such as ``retriever.``.

    Returns:
        The file's content.
    """
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    first = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    result = SettingsFile(path)
    _read_header([line.removeprefix("#").removeprefix(" ") for line in lines[:first] if "@package" not in line], result)
    if not isinstance(root, yaml.MappingNode):
        return result

    def comment(line: int) -> str:
        above: list[str] = []
        for number in range(line - 1, first - 1, -1):
            if not lines[number].lstrip().startswith("#"):
                break
            above.insert(0, lines[number].strip().removeprefix("#").strip())
        trailing = re.search(r"\s# (.*)$", lines[line])
        return " ".join([*above, *([trailing[1]] if trailing else [])])

    for key, node in root.value:
        if key.value == "defaults":
            result.choices = [*_choices(node, comment)]
        elif key.value == "_target_":
            result.target = node.value
    result.settings = [*_settings(root, prefix, text, comment)]
    return result


def _read_header(header: list[str], result: SettingsFile) -> None:
    """Divide the leading comment of a file into example commands and sentences."""
    notes, commands, continues = [], [], False
    for line in header:
        if continues or re.match(r"(python|graphrerank|torchrun) ", line):
            commands.append(line)
            continues = line.endswith("\\")
        else:
            notes.append(line)
    result.notes, result.commands = " ".join(notes), "\n".join(commands)


def _choices(node: Any, comment: Any) -> Iterator[tuple[str, str]]:
    for entry in node.value:
        if isinstance(entry, yaml.MappingNode):
            ((key, value),) = entry.value
            name = key.value.removeprefix("override ").removeprefix("/")
            if not name.startswith("hydra/job_logging") and not name.startswith("hydra/hydra_logging"):
                yield f"{name}={value.value}", comment(entry.start_mark.line)


@cache
def argument_descriptions(target: str) -> dict[str, str]:
    """Return the descriptions in the docstring of a class or function. Empty if it cannot be imported."""
    module, _, name = target.rpartition(".")
    try:
        symbol = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError):  # an optional package, a method or an interpolation
        return {}
    descriptions: dict[str, str] = {}
    for documented in (getattr(symbol, "__init__", None), symbol):
        sections = re.split(r"^(?:Args|Attributes):\n", inspect.getdoc(documented) or "", flags=re.MULTILINE)[1:]
        for name, description in re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", "".join(sections), re.MULTILINE):
            descriptions[name] = " ".join(description.split()).replace("``", "`")
    return descriptions


def _settings(node: Any, prefix: str, text: str, comment: Any) -> Iterator[tuple[str, str, str]]:
    """Yield the settings below a node; the entries of a list have their index in their name.

    A setting without a comment has the description of the argument in the class that the file builds.
    """
    if isinstance(node, yaml.MappingNode):
        entries = [(key.value, key, value) for key, value in node.value if key.value not in INTERNAL]
        target = next((value.value for key, value in node.value if key.value == "_target_"), "")
        arguments = argument_descriptions(target) if target else {}
    else:
        arguments = {}
        entries = [(str(index), value, value) for index, value in enumerate(node.value)]
    for name, key, value in entries:
        description = comment(key.start_mark.line) if isinstance(node, yaml.MappingNode) else ""
        description = description or arguments.get(name, "")
        is_list = isinstance(value, yaml.SequenceNode)
        has_parts = isinstance(value, yaml.MappingNode) or (
            is_list and any(isinstance(entry, yaml.MappingNode) for entry in value.value)
        )
        if has_parts and not value.flow_style and value.value:
            if description:
                yield prefix + name, "", description
            yield from _settings(value, f"{prefix}{name}.", text, comment)
        elif name == "_target_":
            if "." in prefix.rstrip(".") or description:
                yield prefix + name, value.value, description or "Class of this part."
        elif is_list and not value.flow_style:
            yield prefix + name, f"[{', '.join(entry.value for entry in value.value)}]", description
        else:
            yield prefix + name, text[value.start_mark.index : value.end_mark.index].strip(), description


def escape(text: str) -> str:
    """Escape Markdown in a comment, except for code between backticks."""
    parts = text.split("`")
    return "`".join(
        part if index % 2 else re.sub(r"([\\*_{}\[\]<>|$~])", r"\\\1", part) for index, part in enumerate(parts)
    )


def file_section(content: SettingsFile, name: str) -> list[str]:
    """Return the lines of a file's section: description, commands, class, choices and settings."""
    lines = [f"## {name}", "", escape(content.notes), ""]
    if content.commands:
        lines += ["```", content.commands, "```", ""]
    if content.target:
        lines += [f"Builds {{py:obj}}`{content.target}`.", ""]
    if content.choices:
        lines += ["Chooses these files of other groups:", ""]
        lines += [f"- `{choice}`" + (f": {escape(text)}" if text else "") for choice, text in content.choices]
        lines += [""]
    for is_described, settings in groupby(content.settings, key=lambda setting: bool(setting[2])):
        if is_described:
            lines += [line for setting in settings for line in _entry(*setting)]
        else:
            lines += ["```yaml", *(f"{name}: {value}" for name, value, _ in settings), "```", ""]
    return lines


def _entry(setting: str, value: str, text: str) -> list[str]:
    """Return a setting as an entry of a definition list."""
    if "\n" in value and value.startswith(("|", ">")):
        body = value.splitlines()[1:]
        return [f"`{setting}`", f": {escape(text)}", "", "  ```text", *(f"  {line}" for line in body), "  ```", ""]
    shown = " ".join(value.split())
    default = f", default `` {shown} ``" if shown else ""
    if shown == "???":
        default = ", required"
    return [f"`{setting}`{default}", f": {escape(text)}", ""]


def command_section(path: Path) -> list[str]:
    """Return the section of a command: its examples, its groups, and the settings of its dataclass."""
    content = read_settings(path)
    content.target = None
    content.settings = [entry for entry in content.settings if not entry[0].startswith("job")]
    lines = file_section(content, path.stem)
    if path.stem in SETTINGS:
        lines += ["```yaml", *help_lines(settings_class(path.stem), {}), "```", ""]
    return lines


def files() -> dict[str, list[Path]]:
    """Return the files of each group, the library's before the papers'."""
    grouped: dict[str, list[Path]] = {}
    for conf in CONF:
        for path in sorted(conf.rglob("*.yaml")):
            folder = path.parent.relative_to(conf).as_posix().removesuffix("/shared")
            grouped.setdefault(COMMANDS if folder == "." else folder, []).append(path)
    return {group: grouped[group] for group in sorted(grouped, key=[*GROUPS, *sorted(grouped)].index)}


def pages() -> dict[str, str]:
    """Return the text of each group's page by the name of the page."""
    return {group.replace("/", "_"): page(group, paths) for group, paths in files().items()}


def page(group: str, paths: list[Path]) -> str:
    """Return the page of a group: how to choose a file, then a section for each file."""
    prefix = "" if group in WITHOUT_PREFIX else f"{group.replace('/', '.')}."
    lines = [f"# {group}", "", f"{GROUPS.get(group, 'Files of an installed package')}.", ""]
    if group == COMMANDS:
        return "\n".join([*lines, *(line for path in paths for line in command_section(path))])
    lines += [f"Choose a file with `{group}=NAME`.", ""]
    for path in paths:
        shared = path.parent.name == "shared"
        lines += file_section(read_settings(path, prefix), f"shared/{path.stem}" if shared else path.stem)
    return "\n".join(lines)


def overview() -> str:
    """Return the table of groups, and the navigation to their pages."""
    groups = files()
    lines = ["", "| group | contents | files |", "| --- | --- | --- |"]
    for group, paths in groups.items():
        names = ", ".join(f"`{path.stem}`" for path in paths if path.parent.name != "shared")
        lines.append(f"| [{group}](settings/{group.replace('/', '_')}.md) | {GROUPS.get(group, '')} | {names} |")
    toctree = [f"settings/{group.replace('/', '_')}" for group in groups]
    return "\n".join([*lines, "", "```{toctree}", ":hidden:", "", *toctree, "```", ""])
