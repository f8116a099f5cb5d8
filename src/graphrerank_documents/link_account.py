"""Count the links of documents: resolved, broken and external ones."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from graphrerank.utils.safe_loading import shown_name
from graphrerank_documents.document import SYMBOL, TAG, Link
from graphrerank_documents.passages import Passage
from graphrerank_documents.redirects import REDIRECT

#: Document number and section number. The section is None if a link points to the document as a whole.
Place = tuple[int, int | None]
#: Maximum number of broken links that the summary lists.
SHOWN = 3
_PLURALS = {"reply": "replies", "property": "properties", "inherits": "bases", "tests": "tests"}


class LinkTargets(NamedTuple):
    """Targets of an internal link.

    Attributes:
        places: Target documents and sections. Empty if the link is broken.
        missing: Note for the report if the target document exists but the section does not. Otherwise empty.
        is_redirected: Whether the link leads to the target through a redirect.
    """

    places: tuple[Place, ...] = ()
    missing: str = ""
    is_redirected: bool = False


class BrokenLink(NamedTuple):
    """Link or import whose target does not exist.

    Attributes:
        document: Name of the document that contains the link.
        line: Line of the link, 1-based, or 0 if the format has no lines.
        target: Target as written, followed by a note if only the section is missing.
    """

    document: str
    line: int
    target: str


@dataclass(frozen=True)
class TypeCount:
    """Number of internal links of one type.

    Attributes:
        within: Number of links that refer to the folder.
        resolved: Number of these whose target exists.
    """

    within: int
    resolved: int


@dataclass(frozen=True)
class LinkAccount:
    """Number of resolved, broken and external links.

    Attributes:
        within: Number of internal links of the kinds path, page, document and label. Links to the section or document
            that contains them are not counted.
        resolved: Number of internal links whose target exists.
        to_section: Number of resolved links that point to a section rather than to a whole document.
        redirected: Number of resolved links to pages that redirect, which lead to the target of the redirect.
        dead: Broken links. If only the section is missing, the link is broken but there is still an edge to the
            document.
        foreign: Number of links to other sites and to files outside the folder.
        code: Number of edges between code symbols by type: import, call, inherits or tests.
        by_type: Number of internal links of other types than ``link``, such as import, call, property and include. An
            import refers to the folder if its root is a package of the folder. Calls, bases and tests of unknown names
            may refer to installed packages, so that they count only if they are resolved.
        dead_imports: Imports that refer to the folder but whose target does not exist.
    """

    within: int
    resolved: int
    to_section: int
    dead: Sequence[BrokenLink] = ()
    foreign: int = 0
    code: Mapping[str, int] = field(default_factory=dict)
    by_type: Mapping[str, TypeCount] = field(default_factory=dict)
    dead_imports: Sequence[BrokenLink] = ()
    redirected: int = 0

    def __str__(self) -> str:
        """Summarise the number of links, the first broken links and the number of code edges."""
        links = "link" if self.within == 1 else "links"
        redirected = f", {self.redirected:,} through a redirect" if self.redirected else ""
        summary = f"{self.within:,} {links} within the folder: {self.resolved:,} resolved"
        summary += f" ({self.to_section:,} to a section{redirected})"
        if self.dead:
            summary += f", {len(self.dead):,} broken: {_first_broken(self.dead)}"
        rows = [summary]
        if self.by_type:
            counts = (
                f"{_PLURALS.get(name, f'{name}s')}: {count.resolved:,} of {count.within:,}"
                for name, count in sorted(self.by_type.items(), key=lambda item: (item[0] != "import", item[0]))
            )
            first, *others = counts
            rows.append("; ".join([f"{first} within the folder resolved", *others]))
        if self.dead_imports:
            rows[-1] += f"; {len(self.dead_imports):,} imports broken: {_first_broken(self.dead_imports)}"
        edges = ", ".join(f"{count:,} {name}" for name, count in sorted(self.code.items()))
        return "\n".join([*rows, f"code edges: {edges}"] if edges else rows)


def _first_broken(dead: Sequence[BrokenLink]) -> str:
    """Return the first broken links for a message."""
    rows = []
    for link in dead[:SHOWN]:
        line = f":{link.line}" if link.line > 0 else ""
        rows.append(f"{shown_name(link.document)}{line} -> {shown_name(link.target)}")
    if len(dead) > SHOWN:
        rows.append("...")
    return ", ".join(rows)


@dataclass
class LinkTally:
    """Running counts of links, from which the report is made.

    Attributes:
        within: Number of internal links.
        to_section: Number of resolved links that point to a section.
        foreign: Number of external links.
        redirected: Number of resolved links that lead to their target through a redirect.
        dead: Broken links.
        dead_imports: Broken imports.
        code: Number of edges between code symbols by type.
        within_by_type: Number of internal links of other types than ``link``.
        resolved_by_type: Number of these that are resolved.
    """

    within: int = 0
    to_section: int = 0
    foreign: int = 0
    redirected: int = 0
    dead: list[BrokenLink] = field(default_factory=list)
    dead_imports: list[BrokenLink] = field(default_factory=list)
    code: Counter[str] = field(default_factory=Counter)
    within_by_type: Counter[str] = field(default_factory=Counter)
    resolved_by_type: Counter[str] = field(default_factory=Counter)

    def add_link(
        self, passage: Passage, link: Link, targets: LinkTargets | None, number: int, *, is_within: bool
    ) -> None:
        """Count a link of a passage.

        Args:
            passage: Passage that contains the link.
            link: Link to count.
            targets: Targets of the link, or None for an external link.
            number: Number of the document that contains the passage.
            is_within: Whether the link has a target in the folder, or should have one.
        """
        if link.kind == TAG and (targets is None or not targets.places):
            return
        if targets is None:
            self.foreign += 1
            return
        own_places = {(number, None), (number, passage.section)}
        is_to_itself = bool(targets.places) and own_places.issuperset(targets.places)
        if link.kind != SYMBOL and (targets.missing or not is_to_itself):
            self.within += 1
            self.to_section += not targets.missing and any(section is not None for _, section in targets.places)
            self.redirected += targets.is_redirected and not targets.missing
            self._add_broken(passage.document, link, targets)
        if link.edge != "link" and is_within:
            self._add_type(link.edge, targets)
            if link.edge == "import" and not targets.places:
                self.dead_imports.append(BrokenLink(passage.document, link.line, link.target))

    def add_redirect(self, name: str, redirect: Link, targets: LinkTargets | None) -> None:
        """Count the redirect of a page.

        Args:
            name: Name of the page.
            redirect: Redirect of the page.
            targets: Targets of the redirect, or None if it leads to another site.
        """
        if targets is None:
            self.foreign += 1
            return
        self.within += 1
        self._add_type(REDIRECT, targets)
        self._add_broken(name, redirect, targets)

    def _add_broken(self, name: str, link: Link, targets: LinkTargets) -> None:
        if not targets.places or targets.missing:
            self.dead.append(BrokenLink(name, link.line, link.target + targets.missing))

    def _add_type(self, edge: str, targets: LinkTargets) -> None:
        self.within_by_type[edge] += 1
        self.resolved_by_type[edge] += bool(targets.places)

    def account(self) -> LinkAccount:
        """Return the report on the links that have been counted."""
        counts = self.within_by_type.items()
        return LinkAccount(
            within=self.within,
            resolved=self.within - len(self.dead),
            to_section=self.to_section,
            dead=self.dead,
            foreign=self.foreign,
            code={name: count for name, count in self.code.items() if count},
            by_type={name: TypeCount(count, self.resolved_by_type[name]) for name, count in counts},
            dead_imports=tuple(self.dead_imports),
            redirected=self.redirected,
        )
