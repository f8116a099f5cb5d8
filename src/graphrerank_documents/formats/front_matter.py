"""Parse front matter, the metadata in YAML, TOML or JSON at the start of a page."""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from posixpath import dirname, join, normpath
from typing import Any

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
    said, length, damage = _said(text[:_MAX_CHARS])
    folder, slug = dirname(name), said.get("slug", ("",))[0]
    names = [_shown(page) for key in _NAMES for page in said.get(key, ())]
    names += [part for page in names if "," in page for part in map(str.strip, page.split(","))]
    pages = [*names, *(page for key in _ALIASES if key not in _NAMES for page in said.get(key, ()))]
    pages += [f"/{join(folder, slug)}" if slug[0] != "/" else slug] if slug else []
    if (own := said.get("id", ("",))[0]) and not re.search(r"[\s:]", own):  # path of a page of Docusaurus
        pages.append(f"/{join(folder, own)}")
    near = [page for page in pages if "/" in page and page[0] != "/"]  # paths relative to the page, not wiki names
    pages += [f"/{normpath(join(folder, page))}" for page in near]
    aliases = tuple(dict.fromkeys(page for page in pages if 0 < len(page) <= MAX_TARGET))
    title, description = (" ".join(said.get(key, ("",))[0].split()) for key in ("title", "description"))
    rows = (f"{key}: {', '.join(map(_shown, texts))}" for key, texts in said.items() if key not in (*_ALIASES, "title"))
    links = _property_links(text[:length])
    targets = (each.strip() for key in _REDIRECTS for each in said.get(key, ())[:1])
    redirect = next((target for target in targets if "/" in target or "." in target), "")
    return FrontMatter(title[:MAX_NAME], description, aliases, links, redirect, "\n".join(rows), length, damage)


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


def _said(head: str) -> tuple[Mapping[str, tuple[str, ...]], int, str]:
    """Return the strings in the front matter by key, its length, and what is wrong with it."""
    values: object = {}
    length, damage = 0, ""
    try:
        if found := _YAML.match(head):
            values, damage = _yaml(found[1])
            length = found.end()
        elif found := _TOML.match(head):
            damage = DAMAGED_TOML if _TOML_KEY.search(found[1]) else ""
            values, length, damage = tomllib.loads(found[1]), found.end(), ""
        elif head.startswith("{"):
            values, length = json.JSONDecoder().raw_decode(head)
    except (ValueError, RecursionError):
        pass
    if not isinstance(values, dict):
        return {}, 0, ""
    listed = ((str(key).lower(), value if isinstance(value, list) else [value]) for key, value in values.items())
    texts_of = {key: texts for key, value in listed if (texts := tuple(e for e in value if isinstance(e, str)))}
    return texts_of, length, damage


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
