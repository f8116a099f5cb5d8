"""Links of documents to edges between passages, with an account of those that lead nowhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphrerank.data.documents.document import Document
from graphrerank.data.documents.passages import Passage


@dataclass(frozen=True)
class Site:
    """Where the folder's pages stand on their site, as its configuration says (`baseurl`, `site_url`, `baseURL`)."""

    bases: tuple[str, ...] = ()  # addresses or paths that precede those of the folder: "https://docs.example.org/en/"


@dataclass(frozen=True)
class LinkAccount:
    """What became of the links between documents; links of code and to other sites are counted apart."""

    within: int  # of kinds path, page, document and label that point into the folder
    resolved: int
    to_section: int  # of those that are resolved
    dead: Sequence[tuple[str, int, str]] = ()  # document, line and target of those that lead nowhere
    foreign: int = 0  # to other sites
    code: Mapping[str, int] = field(default_factory=dict)  # edges between code, by type: import, call, inherits, tests


def resolve_links(
    documents: Sequence[Document], passages: Sequence[Passage], site: Site | None = None
) -> tuple[list[tuple[str, str, str]], LinkAccount]:
    """Return the edges (source, target and type, each once, in order) and the account.

    ``documents`` may come without their sections' blocks.
    """
    raise NotImplementedError
