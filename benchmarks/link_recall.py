"""Compare the links that ``graphrerank index`` finds with those that the formats' reference parsers find.

``python benchmarks/link_recall.py DOCS [--top content/en] [--sphinx DIR]`` prints how many links within the folder both
find, and which ones are missed or false. The reference for HTML is lxml. Markdown is rendered by markdown-it, or by
Python-Markdown if there is a ``mkdocs.yml``, and then read by lxml. The reference for Python's imports is ``ast``. With
``--sphinx``, the reference for RST and MyST is Sphinx. Targets are looked up in the file system and among the ids of
the pages, independently of the package.
"""

import argparse
import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from posixpath import dirname, join, normpath, splitext
from urllib.parse import unquote, urlsplit

from lxml import html
from markdown_it import MarkdownIt

from graphrerank.utils.checks import UserError
from graphrerank_documents.document import Document
from graphrerank_documents.links import resolve_links
from graphrerank_documents.passages import Passage
from graphrerank_documents.readers import reader_of, suffix_of
from graphrerank_documents.site import find_site

MAIN = "//main | //*[@role='main'] | //section[@id='main-content']"
MARKDOWN, HTML = (".md", ".mdx"), (".html", ".htm")
GENERATED = (
    "headerlink",
    "header",
    "toc-backref",
    "doc-anchor",
    "anchor",
    "src",
    "footnote-ref",
    "footnote-backref",
)  # of each heading, to itself or its code
FIRST = ("index", "_index", "README", "readme")
Found = tuple[str, str, str]  # source, target, anchor


class Reference:
    """Links that the reference parsers find."""

    def __init__(self, folder: Path, top: str, base: str) -> None:
        self.folder, self.top, self.base = folder, top, base
        self.files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
        self.is_mkdocs = (
            any(Path(name).name == "mkdocs.yml" for name in self.files) or (folder.parent / "mkdocs.yml").exists()
        )
        self.pages: dict[str, html.HtmlElement] = {}
        self.urls: dict[str, str] = {}
        for name in self.files:
            bare, suffix = splitext(name)
            if suffix in (".md", ".mdx", ".html") and name.startswith(top):
                stem = bare.rpartition("/")[2]
                self.urls.setdefault(normpath(dirname(bare) if stem in FIRST else bare).lower(), name)

    def page(self, name: str) -> html.HtmlElement:
        """Return the HTML tree of a page."""
        if name not in self.pages:
            text = self.files[name].read_text(encoding="utf-8", errors="replace")
            if not name.endswith((".html", ".htm")):
                text = re.sub(r"\A---\n.*?\n---\n", "", text, count=1, flags=re.DOTALL)
                text = self.rendered(text)
            self.pages[name] = html.fromstring(f"<html><body>{text}</body></html>" if text.strip() else "<html></html>")
        return self.pages[name]

    def rendered(self, text: str) -> str:
        """Render Markdown to HTML."""
        if self.is_mkdocs:
            import markdown

            extensions = [
                "attr_list",
                "tables",
                "fenced_code",
                "toc",
                "admonition",
                "md_in_html",
                "footnotes",
                "def_list",
            ]
            return markdown.markdown(text, extensions=extensions)
        return MarkdownIt("commonmark", {"html": True}).enable("table").render(text)

    def links(self) -> Iterator[Found]:
        """Yield the links of Markdown and HTML that lead to files of the folder."""
        for name in self.files:
            if not name.endswith((*MARKDOWN, *HTML)):
                continue
            page = self.page(name)
            parts = page.xpath(MAIN) if name.endswith("l") else []
            for element in (each for part in parts or [page] for each in part.iter("a")):
                if not set(element.get("class", "").split()).isdisjoint(GENERATED):
                    continue
                link = element.get("href", "")
                target = self.target(name, link)
                if target:
                    yield name, target, self.anchor(target, urlsplit(link).fragment)
            if name.endswith(".md"):
                shown = " ".join(page.xpath("//text()[not(ancestor::code) and not(ancestor::pre)]"))
                for wiki in re.findall(r"\[\[([^\[\]|#\n]+)", shown):
                    named = [each for each in self.files if f"/{each}".endswith(f"/{wiki.strip()}.md")]
                    if named:
                        near = [each for each in named if dirname(each) == dirname(name)]
                        yield name, min(near or named, key=lambda each: each.count("/")), ""

    def target(self, own: str, link: str) -> str:
        """Return the file that a link points to, or an empty string if it is not in the folder."""
        if self.base and link.startswith(self.base):
            link = "/" + link.removeprefix(self.base).lstrip("/")
        try:
            parts = urlsplit(link)
        except ValueError:
            return ""
        if parts.scheme or parts.netloc or not link:
            return ""
        path = unquote(parts.path)
        if not path:
            return own
        if path.startswith("/"):
            place = normpath(join(self.top, path.lstrip("/")))
        else:
            place = normpath(join(dirname(own), path))
            if not self.found(place) and own.endswith(MARKDOWN):
                address = own if splitext(own)[0].rpartition("/")[2] in FIRST else splitext(own)[0] + "/."
                place = normpath(join(dirname(address), path))
        return self.found(place)

    def found(self, place: str) -> str:
        """Return the file of a path or of a page address."""
        if place in self.files:
            return place if suffix_of(place) else ""
        place = place.lower().removesuffix(".html")
        return self.urls.get(place, self.urls.get(normpath(place.removesuffix("index")), ""))

    def anchor(self, target: str, anchor: str) -> str:
        """Return the anchor if the page has it, or an empty string for a link to the whole page."""
        if not anchor or not target.endswith((*MARKDOWN, *HTML)):
            return ""
        page, anchor = self.page(target), unquote(anchor)
        if anchor in {*page.xpath("//@id"), *page.xpath("//a/@name")}:
            return anchor
        headings = [" ".join(each.itertext()) for level in "123456" for each in page.iter(f"h{level}")]
        slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
        named = {name for heading in headings for name in re.findall(r"\{\s*:?\s*#([^\s}]+)", heading)}
        return anchor if target.endswith(MARKDOWN) and anchor in slugs | named else ""


def imports(folder: Path) -> Iterator[Found]:
    """Yield the imports between Python files of the folder, resolved like Python."""
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*.py")}

    def file(place: str) -> str:
        return next((name for name in (f"{place}.py", f"{place}/__init__.py") if name in files), "")

    for name in sorted(files):
        try:
            tree = ast.parse((folder / name).read_bytes())
        except (SyntaxError, ValueError):
            continue
        above = [str(folder) for folder in PurePosixPath(name).parents if f"{folder}/__init__.py" not in files]
        tops = [place for folder in above for place in (folder, join(folder, "src"))]
        for node in ast.walk(tree):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                base = node.module or ""
                modules = [f"{base}.{alias.name}".strip(".") for alias in node.names]
            if isinstance(node, ast.ImportFrom) and node.level:
                package = name
                for _ in range(node.level):
                    package = dirname(package)
                tops = [package]
            for path in (module.replace(".", "/") for module in modules):
                paths = (path, dirname(path)) if isinstance(node, ast.ImportFrom) else (path,)
                found = next((f for each in paths for top in tops if (f := file(normpath(join(top, each))))), "")
                if found and found != name:
                    yield name, found, ""


def sphinx_links(folder: Path, out: Path, base: str) -> Iterator[Found]:
    """Yield the references that Sphinx resolves in the standard domain, and the entries of tables of contents."""
    from docutils import nodes
    from sphinx import addnodes
    from sphinx.application import Sphinx

    settings = {"extensions": ["myst_parser"], "myst_heading_anchors": 6, "master_doc": "index", "html_theme": "basic"}
    app = Sphinx(str(folder), None, str(out), str(out / "trees"), "html", settings, status=None, warning=None)
    app.builder.read()
    names = {app.builder.get_target_uri(each): app.env.doc2path(each, base=False) for each in app.env.found_docs}
    for own in sorted(app.env.found_docs):
        source = str(app.env.doc2path(own, base=False))
        yield from (
            (source, str(app.env.doc2path(each, base=False)), "") for each in app.env.toctree_includes.get(own, ())
        )
        tree = app.env.get_doctree(own)
        topics = [node for node in tree.findall(nodes.topic) if "contents" in node["classes"]]
        for node in [*tree.findall(addnodes.toctree), *topics]:
            node.parent.remove(node)
        for node in [*tree.findall(addnodes.pending_xref)]:
            if node.get("refdomain") not in ("std", "doc", "", None):
                node.parent.remove(node)
        app.env.apply_post_transforms(tree, own)
        for node in tree.findall(nodes.reference):
            address, _, anchor = node.get("refuri", "").partition("#")
            place = normpath(join(dirname(app.builder.get_target_uri(own)), address))
            place = address.removeprefix(base) if base and address.startswith(base) else place
            place = "index.html" if place in ("", ".") else place
            if node.get("refid") or place in names:
                target = source if node.get("refid") else str(names[place])
                yield source, target, node.get("refid") or anchor


def ours(folder: Path, kinds: tuple[str, ...]) -> tuple[dict[Found, None], dict[str, Document], str]:
    """Return our links (source, target and index of the target's section), the documents, and the report."""
    files = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    documents: list[Document] = []
    for name in filter(suffix_of, files):
        try:
            documents += reader_of(name)((folder / name).read_bytes(), name)
        except (UserError, ImportError, ModuleNotFoundError):
            continue
    passages = []
    for document in documents:
        for number, section in enumerate(document.sections):
            links = [link for block in section.blocks for link in block.links]
            passages.append(Passage(f"{document.name}\t{number}", "", "", document.name, 0, "", number))
            passages += [
                Passage(f"{document.name}\t{number}\t{i}", "", "", document.name, 0, "", number, 0, (link,))
                for i, link in enumerate(links)
            ]
    edges, account = resolve_links(documents, passages, find_site(folder), files)
    found = {}
    for source, target, edge in edges:
        if edge in kinds:
            found[source.split("\t")[0], *target.split("\t")[:2]] = None
    return found, {document.name: document for document in documents}, str(account)


def main() -> None:
    """Print the counts and examples of differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of documents")
    parser.add_argument("--top", default="", help="folder of the site's pages, from which absolute links start")
    parser.add_argument("--base", default="", help="address of the site")
    parser.add_argument(
        "--sphinx", type=Path, help="read RST and MyST with Sphinx, which writes its files to this folder"
    )
    parser.add_argument("--code", action="store_true", help="compare the imports of Python instead of the links")
    parser.add_argument("--show", type=int, default=10, help="number of links to print per list (default: %(default)s)")
    options = parser.parse_args()
    folder = options.folder
    if options.sphinx:
        listed = sphinx_links(folder, options.sphinx, options.base)
    else:
        listed = imports(folder) if options.code else Reference(folder, options.top, options.base).links()
    expected = dict.fromkeys(listed)
    found, documents, account = ours(folder, ("import",) if options.code else ("link",))
    print(account)
    by_pages: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for source, target, section in found:
        by_pages[source, target].append(section)
    pages = {(source, target) for source, target, _ in expected}
    if options.code:  # A name that a module re-exports is linked to its definition.
        pages |= {(source, end) for source, target in pages for end in _reached(target, pages)}
        found_ends = {source: {end for start, end in by_pages if start == source} for source, _ in by_pages}
    missed, elsewhere = [], []
    for source, target, anchor in expected:
        sections = by_pages.get((source, target))
        if sections is None and options.code and found_ends.get(source, set()) & _reached(target, pages):
            continue
        if sections is None:
            missed.append((source, target, anchor))
        elif anchor and not any(_has(documents[target], int(section), anchor) for section in sections):
            elsewhere.append((source, target, anchor))
    false = [pair for pair in by_pages if pair not in pages and pair[0] != pair[1]]
    share = 1 - (len(missed) + len(elsewhere)) / max(1, len(expected))
    print(f"{len(expected):,} different links: {share:.2%} found", end="; ")
    print(f"{len(missed):,} missed, {len(elsewhere):,} to another section")
    print(f"{len(false):,} of {len(by_pages):,} pairs of files are linked by us alone")
    for title, rows in (("missed", missed), ("to another section", elsewhere), ("ours alone", false)):
        for row in rows[: options.show]:
            print(f"{title}: {' -> '.join(filter(None, row))}")


def _reached(module: str, pages: set[tuple[str, str]]) -> set[str]:
    """Return the modules that the ``__init__`` file of a package imports from, directly or through other modules."""
    near = {end for start, end in pages if start == module and start.endswith("__init__.py")}
    return near | {end for start, end in pages if start in near}


def _has(document: Document, section: int, anchor: str) -> bool:
    names = [name.casefold() for name in document.sections[section].anchors]
    return anchor.casefold() in names


if __name__ == "__main__":
    main()
