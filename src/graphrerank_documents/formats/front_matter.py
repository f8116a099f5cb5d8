"""Parse front matter, the metadata in YAML, TOML or JSON at the start of a page."""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from posixpath import dirname, join, normpath
from typing import Any, NamedTuple

from graphrerank_documents.document import MAX_NAME, MAX_TARGET, PAGE, Link, UnreadableError
from graphrerank_documents.untrusted_yaml import yaml_nodes

#: Reasons in the report for front matter that is damaged.
DAMAGED_YAML = "damaged front matter (not valid YAML), only its simple properties are read"
DAMAGED_TOML = "damaged front matter (not valid TOML), read as text"

_YAML = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*$", re.MULTILINE | re.DOTALL)
_TOML = re.compile(r"\+\+\+[ \t]*\n(.*?)^\+\+\+[ \t]*$", re.MULTILINE | re.DOTALL)
_KEY = re.compile(r"^([A-Za-z_][\w-]*)[ \t]*:[ \t]*(.*)$", re.MULTILINE)
_TOML_KEY = re.compile(r"^[ \t]*[\w-]{1,100}[ \t]*=", re.MULTILINE)
_MAX_CHARS = 20_000  # maximum length of front matter; longer metadata is treated as text
_ALIASES = ("aliases", "alias", "redirect_from", "permalink", "url")
_REDIRECTS = ("redirect_to", "redirect")  # properties with the target of a page that redirects
_NAMES = ("aliases", "alias")  # properties whose values are names of the page
_WIKI = re.compile(r"!?\[\[([^\[\]\n]{1,2000})\]\]")
_DATA = re.compile(r"[\d\s.,+-]*\Z|.*\.(?:png|jpe?g|gif|svg|webp|bmp|avif|mp[34]|webm)\b", re.IGNORECASE)  # no page
_MAX_LEVELS = 4  # maximum depth of nested lists in a property


@dataclass(frozen=True)
class FrontMatter:
    """Metadata of a page.

    Attributes:
        title: Title, or empty.
        description: Description, or empty.
        aliases: Alternative names: wiki names, and paths of the site that start with ``/``.
        links: Wiki links in the values of the properties, except in aliases.
        redirect: URL or path of the page to which this one redirects, or empty.
        text: Properties as lines of the form ``name: value``, for a page without text.
        length: Number of characters of the front matter at the start of the file. 0 if there is none.
        damage: Description of what is wrong with it, for the report. Empty if it is valid.
    """

    title: str = ""
    description: str = ""
    aliases: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    redirect: str = ""
    text: str = ""
    length: int = 0
    damage: str = ""


def front_matter(text: str, name: str) -> FrontMatter:
    """Return the metadata at the start of a page.

    Args:
        text: Text of the file.
        name: Path of the file, relative to the source. Relative aliases are resolved against its folder.

    Returns:
        Metadata. Empty if the page has no front matter.
    """
    properties = _properties(text[:_MAX_CHARS])
    texts = properties.texts
    targets = (target.strip() for key in _REDIRECTS for target in texts.get(key, ())[:1])
    not_in_text = (*_ALIASES, "title")
    rows = [f"{key}: {', '.join(map(_shown, values))}" for key, values in texts.items() if key not in not_in_text]
    return FrontMatter(
        title=_first_text(texts, "title")[:MAX_NAME],
        description=_first_text(texts, "description"),
        aliases=_aliases(texts, dirname(name)),
        links=_property_links(text[: properties.length]),
        redirect=next((target for target in targets if "/" in target or "." in target), ""),
        text="\n".join(rows),
        length=properties.length,
        damage=properties.damage,
    )


def _first_text(texts: Mapping[str, tuple[str, ...]], key: str) -> str:
    """Return the first string of a property as one line, or an empty string."""
    return " ".join(texts[key][0].split()) if key in texts else ""


def _aliases(texts: Mapping[str, tuple[str, ...]], folder: str) -> tuple[str, ...]:
    """Return the other names and paths of a page in a folder."""
    names = [_shown(page) for key in _NAMES for page in texts.get(key, ())]
    names += [name.strip() for page in names if "," in page for name in page.split(",")]
    pages = [*names, *(page for key in _ALIASES if key not in _NAMES for page in texts.get(key, ()))]
    if slug := texts.get("slug", ("",))[0]:
        pages.append(slug if slug.startswith("/") else f"/{join(folder, slug)}")
    page_id = texts.get("id", ("",))[0]
    if page_id and not re.search(r"[\s:]", page_id):  # path of a page of Docusaurus
        pages.append(f"/{join(folder, page_id)}")
    relative = [page for page in pages if "/" in page and not page.startswith("/")]  # the others are wiki names
    pages += [f"/{normpath(join(folder, page))}" for page in relative]
    return tuple(dict.fromkeys(page for page in pages if 0 < len(page) <= MAX_TARGET))


def _property_links(head: str) -> tuple[Link, ...]:
    """Return the wiki links in the values of front matter, quoted or, in YAML, unquoted."""
    links, is_alias = [], False
    is_yaml = head.startswith("-")
    for number, line in enumerate(head.split("\n"), 1):
        if key := _KEY.match(line):
            is_alias = key[1].lower() in _NAMES
        for found in () if is_alias or "[[" not in line else _WIKI.finditer(line):
            target = re.split(r"\\?\|", found[1])[0].strip()
            is_value = is_yaml or line.count('"', 0, found.start()) % 2 == 1  # TOML and JSON have lists of lists
            if is_value and target and not _DATA.match(target):
                links.append(Link(target, number, PAGE))
    return tuple(links)


def _shown(value: str) -> str:
    """Return the value of a property with the text of its wiki links."""
    return _WIKI.sub(lambda found: found[1].rpartition("|")[2].strip(), value)


def file_title(name: str) -> str:
    """Return a title for a page without one: the name of the file, or of its folder for an index page.

    Args:
        name: Path of the file.
    """
    path = PurePosixPath(name)
    return path.parent.name if path.stem.lower() in ("index", "_index", "readme") and path.parent.name else path.stem


class _Properties(NamedTuple):
    """Strings in the front matter.

    Attributes:
        texts: Strings by key.
        length: Length of the front matter in characters.
        damage: What is wrong with the front matter, or empty.
    """

    texts: Mapping[str, tuple[str, ...]]
    length: int
    damage: str


def _properties(head: str) -> _Properties:
    """Return the strings in the front matter at the start of a page."""
    values: object = {}
    length = 0
    damage = ""
    try:
        if yaml := _YAML.match(head):
            values, damage = _yaml(yaml[1])
            length = yaml.end()
        elif toml := _TOML.match(head):
            damage = DAMAGED_TOML if _TOML_KEY.search(toml[1]) else ""  # unless it can be parsed
            values = tomllib.loads(toml[1])
            length = toml.end()
            damage = ""
        elif head.startswith("{"):
            values, length = json.JSONDecoder().raw_decode(head)
    except (ValueError, RecursionError):
        pass
    if not isinstance(values, dict):
        return _Properties({}, 0, "")
    texts = {}
    for key, value in values.items():
        entries = value if isinstance(value, list) else [value]
        if strings := tuple(entry for entry in entries if isinstance(entry, str)):
            texts[str(key).lower()] = strings
    return _Properties(texts, length, damage)


def _yaml(text: str) -> tuple[object, str]:
    """Return the strings in a YAML mapping, and what is wrong with it. The result is None if it is not a mapping.

    The nodes are read without constructing objects, because aliases in YAML can expand to objects of any size.
    """
    try:
        node = yaml_nodes(text, "front matter")
    except (UnreadableError, RecursionError):
        values = {key: value.strip("\"' \t") for key, value in _KEY.findall(text)}
        return (values, DAMAGED_YAML) if values else (None, "")
    if not getattr(node, "tag", "").endswith(":map"):
        return (None if node else {}), ""
    items = ((key.value, value) for key, value in node.value if isinstance(key.value, str))
    return {key: _strings(value) if isinstance(value.value, list) else value.value for key, value in items}, ""


def _strings(node: Any, depth: int = 0) -> list[object]:
    """Return the strings in a list of YAML. A list in a list is an unquoted wiki link, such as ``[[Pump]]``."""
    strings: list[object] = []
    for each in node.value:
        nested = getattr(each, "value", None)
        if isinstance(nested, str):
            strings.append(nested)
        elif depth < _MAX_LEVELS and isinstance(nested, list) and len(nested) == 1:
            strings += _strings(each, depth + 1)
    return strings
