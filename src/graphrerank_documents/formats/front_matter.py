"""Parse front matter, the metadata in YAML, TOML or JSON at the start of a page."""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from posixpath import dirname, join, normpath

from graphrerank.installation.extras import optional
from graphrerank_documents.document import MAX_NAME, MAX_TARGET

_YAML = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*$", re.MULTILINE | re.DOTALL)
_TOML = re.compile(r"\+\+\+[ \t]*\n(.*?)^\+\+\+[ \t]*$", re.MULTILINE | re.DOTALL)
_KEY = re.compile(r"^([A-Za-z_][\w-]*)[ \t]*:[ \t]*(.*)$", re.MULTILINE)
_MAX_CHARS = 20_000  # maximum length of front matter; longer metadata is treated as text
_ALIASES = ("aliases", "alias", "redirect_from", "permalink", "url")


@dataclass(frozen=True)
class FrontMatter:
    """Metadata of a page.

    Attributes:
        title: Title, or empty.
        description: Description, or empty.
        aliases: Alternative names: wiki names, and paths of the site that start with ``/``.
        length: Number of characters of the front matter at the start of the file. 0 if there is none.
    """

    title: str = ""
    description: str = ""
    aliases: tuple[str, ...] = ()
    length: int = 0


def front_matter(text: str, name: str) -> FrontMatter:
    """Return the metadata at the start of a page.

    Args:
        text: Text of the file.
        name: Path of the file, relative to the source. Relative aliases are resolved against its folder.

    Returns:
        Metadata. Empty if the page has no front matter.
    """
    said, length = _said(text[:_MAX_CHARS])
    folder, slug = dirname(name), said.get("slug", ("",))[0]
    pages = [page for key in _ALIASES for page in said.get(key, ())]
    pages += [f"/{join(folder, slug)}" if slug[0] != "/" else slug] if slug else []
    near = [page for page in pages if "/" in page and page[0] != "/"]  # paths relative to the page, not wiki names
    pages += [f"/{normpath(join(folder, page))}" for page in near]
    aliases = tuple(dict.fromkeys(page for page in pages if 0 < len(page) <= MAX_TARGET))
    title, description = (" ".join(said.get(key, ("",))[0].split()) for key in ("title", "description"))
    return FrontMatter(title[:MAX_NAME], description, aliases, length)


def file_title(name: str) -> str:
    """Return a title for a page without one: the name of the file, or of its folder for an index page.

    Args:
        name: Path of the file.
    """
    path = PurePosixPath(name)
    return path.parent.name if path.stem.lower() in ("index", "_index", "readme") and path.parent.name else path.stem


def _said(head: str) -> tuple[Mapping[str, tuple[str, ...]], int]:
    """Return the strings in the front matter by key, and its length."""
    values: object = {}
    length = 0
    try:
        if found := _YAML.match(head):
            values, length = _yaml(found[1]), found.end()
        elif found := _TOML.match(head):
            values, length = tomllib.loads(found[1]), found.end()
        elif head.startswith("{"):
            values, length = json.JSONDecoder().raw_decode(head)
    except (ValueError, RecursionError):
        pass
    if not isinstance(values, dict):
        return {}, 0
    listed = ((str(key).lower(), value if isinstance(value, list) else [value]) for key, value in values.items())
    return {key: texts for key, value in listed if (texts := tuple(e for e in value if isinstance(e, str)))}, length


def _yaml(text: str) -> object:
    """Return the strings in a YAML mapping, or None if it is not a mapping.

    The nodes are read without constructing objects, because aliases in YAML can expand to objects of any size.
    """
    yaml = optional("yaml", "front matter")
    try:
        node = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError):
        return {key: value.strip("\"' \t") for key, value in _KEY.findall(text)} or None
    if not isinstance(node, yaml.MappingNode):
        return None if node else {}
    items = ((key.value, value.value) for key, value in node.value if isinstance(key, yaml.ScalarNode))
    return {key: [getattr(e, "value", e) for e in v] if isinstance(v, list) else v for key, v in items}
