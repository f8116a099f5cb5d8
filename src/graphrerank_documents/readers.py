"""Supported file formats by suffix, and their readers."""

from importlib import import_module
from pathlib import PurePosixPath
from typing import Protocol

from graphrerank_documents.document import Document

_CODE = "py pyi js jsx mjs cjs ts tsx mts cts go java rs c h cc cpp cxx hh hpp hxx"
_PLAIN = """css scss less lua pl pm r scala sh bash zsh fish ps1 bat sql swift toml yaml yml ini cfg
conf proto dart ex exs erl hrl hs jl nix zig clj cljs ml mli fs fsx vb groovy gradle tf hcl graphql prisma cmake sol
glsl f90 f95 el lisp scm rkt nim cr d pas tcl cu typ log"""  # code and logs as plain text
_SUFFIXES = {  # suffixes for each reader, a function of a module in `formats`
    "markdown.read_markdown": "md markdown mdx mkd qmd rmd",
    "restructured_text.read_rst": "rst rest",
    "asciidoc.read_asciidoc": "adoc asciidoc asc",
    "html.read_html": "html htm xhtml",
    "org.read_org": "org",
    "latex.read_latex": "tex ltx",
    "xml.read_xml": "xml dita dbk docbook topic",
    "mediawiki.read_wikitext": "wiki mediawiki wikitext",
    "notebook.read_notebook": "ipynb",
    "canvas.read_canvas": "canvas",
    "office.read_docx": "docx",
    "office.read_pptx": "pptx",
    "office.read_xlsx": "xlsx",
    "office.read_epub": "epub",
    "opendocument.read_odt": "odt ott",
    "rtf.read_rtf": "rtf",
    "zip_archive.read_zip": "zip",
    "pdf.read_pdf": "pdf",
    "records.read_json_documents": "json",
    "records.read_jsonl_documents": "jsonl ndjson",
    "records.read_table_documents": "csv tsv",
    "records.read_parquet_documents": "parquet",
    "code.read_code": _CODE,
    "mail.read_mbox": "mbox",
    "mail.read_eml": "eml",
    "plain_code.read_plain_code": "kt kts cs php rb",
    "text.read_plain_text": f"txt text {_PLAIN}",
    "components.read_component": "vue svelte astro",
    "bibtex.read_bibtex": "bib",
}
#: Reader of files whose names, rather than their suffixes, determine the format.
NAMED_FILES = dict.fromkeys(
    (
        *("go.mod", "go.work", "Makefile", "GNUmakefile", "Dockerfile", "Containerfile", "Justfile", "justfile"),
        *("README", "INSTALL", "CHANGES", "CHANGELOG", "NEWS", "TODO", "HACKING", "CONTRIBUTING", "AUTHORS"),
    ),
    "text.read_plain_text",
)
READERS = {f".{suffix}": name for name, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}


class Reader(Protocol):
    """Function that parses the files of a format, such as :func:`~graphrerank_documents.formats.org.read_org`."""

    def __call__(self, content: bytes, name: str, /) -> list[Document]:
        """Parse the content of a file.

        Args:
            content: Bytes of the file.
            name: Path of the file, relative to the source.

        Returns:
            Documents of the file. Most formats have one document with a section per heading.

        Raises:
            UnreadableError: If ``content`` is binary, has an unknown encoding, or does not have the format of the file.
        """
        ...


def suffix_of(name: str) -> str:
    """Return the suffix of a path in lower case if its format is supported.

    Args:
        name: Path of a file.

    Returns:
        Suffix with its dot: ``.txt`` for a file without a suffix whose name is known, such as ``README``. An empty
        string if the format is not supported.

    Example:
        >>> suffix_of("docs/A.MD"), suffix_of("Makefile"), suffix_of("photo.png")
        ('.md', '.txt', '')
    """
    path = PurePosixPath(name)
    suffix = path.suffix.lower()
    if suffix in READERS:
        return suffix
    if path.name in NAMED_FILES:
        return suffix or ".txt"
    return ""


def reader_of(name: str) -> Reader:
    """Return the reader for a file and import the libraries that it needs.

    Args:
        name: Path of a file in a supported format.

    Returns:
        Function that parses the content of the file.

    Raises:
        MissingExtraError: If a library of an optional extra is not installed.
    """
    known = NAMED_FILES.get(PurePosixPath(name).name) or READERS[suffix_of(name)]
    module, function = known.split(".")
    reader: Reader = getattr(import_module(f"graphrerank_documents.formats.{module}"), function)
    return reader
