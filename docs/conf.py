"""Configuration of Sphinx, and the generated reference: every public module and every setting.

Build: ``pip install -c constraints.txt -e ".[dev,docs]" && sphinx-build -W docs site``.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parent))

import api_reference
import settings_reference
from docutils import nodes
from sphinx.addnodes import toctree
from sphinx.util import logging

from graphrerank import __version__

ROOT = Path(__file__).parent.parent

project = "graphrerank"
author = "the graphrerank developers"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx-mathjax-offline", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
root_doc = "index"
html_theme = "furo"
html_title = f"graphrerank {version}"
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"  # commands and code, not what they print
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
suppress_warnings = [
    "myst.xref_missing",  # links to files of the repository; tests/test_readme.py checks them all
    "ref.python",  # annotations such as `type`, which several classes have as a field
]
autodoc_typehints = "none"  # types are in the signatures
autodoc_member_order = "bysource"
autodoc_default_options = {"undoc-members": True, "no-value": True, "show-inheritance": True}
autodoc_mock_imports = api_reference.missing_packages()
if autodoc_mock_imports:
    suppress_warnings += ["autodoc", "autodoc.mocked_object"]  # `check_reference` finds what could not be imported
napoleon_google_docstring = True
napoleon_use_ivar = True
napoleon_attr_annotations = False  # types are in the signatures; `|u1` in one would be read as markup

# Pages whose text is a file at the top of the repository.
PAGES = {"changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md", "security": "SECURITY.md"}


def write_reference(app: Any) -> None:
    """Write the pages of the modules to docs/api and those of the settings to docs/settings."""
    api_reference.import_modules()
    for folder, pages in (("api", api_reference.pages()), ("settings", settings_reference.pages())):
        directory = Path(app.srcdir) / folder
        directory.mkdir(exist_ok=True)
        for path in directory.glob("*.md"):
            if path.stem not in pages:
                path.unlink()
        for name, text in pages.items():
            path = directory / f"{name}.md"
            if not path.is_file() or path.read_text(encoding="utf-8") != text:  # an unchanged page is not built again
                path.write_text(text, encoding="utf-8")


def read_page(app: Any, name: str, content: list[str]) -> None:
    """Complete a page: append the generated tables, or insert a file at the top of the repository."""
    if name == "api":
        content[0] += api_reference.overview()
    elif name == "settings":
        content[0] += settings_reference.overview()
    elif name in PAGES:
        content[0] = (ROOT / PAGES[name]).read_text(encoding="utf-8").replace("](docs/", "](")


def check_reference(app: Any, env: Any) -> None:
    """Warn of public symbols that are on no page, so that ``sphinx-build -W`` fails."""
    documented = env.get_domain("py").objects
    for module, path in api_reference.public_modules().items():
        for symbol in api_reference.public_symbols(path):
            if f"{module}.{symbol}" not in documented:
                logging.getLogger(__name__).warning("%s.%s is on no page of the API reference", module, symbol)


def shorten_navigation(app: Any, env: Any) -> None:
    """Let the theme build the navigation of each page from the titles of the pages.

    Sphinx copies the table of contents of every page, with all symbols, and then drops all but the titles. It does so
    for every page, which takes 40 % of the build.
    """
    tables = {name: table.deepcopy() for name, table in env.tocs.items()}
    for table in tables.values():
        for entry in table.children:
            if len(entry) > 1:  # the title, and the sections of the page
                entry[1:] = [nodes.bullet_list("", *subtrees)] if (subtrees := list(entry.findall(toctree))) else []

    def use_titles(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
        navigation = context.get("toctree")
        if navigation is not None:
            context["toctree"] = lambda **options: with_tables(navigation, **options)

    def with_tables(navigation: Callable[..., str], **options: Any) -> str:
        if not options.get("titles_only"):
            return navigation(**options)
        with patch.object(env, "tocs", tables):
            return navigation(**options)

    app.connect("html-page-context", use_titles, priority=400)  # before the theme


def setup(app: Any) -> None:
    """Connect the functions of this file to Sphinx."""
    app.connect("builder-inited", write_reference)
    app.connect("source-read", read_page)
    app.connect("env-check-consistency", check_reference)
    app.connect("env-check-consistency", shorten_navigation)
    app.connect("autodoc-skip-member", api_reference.skip_member)
    app.connect("autodoc-process-docstring", api_reference.describe_fields, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", api_reference.describe_call, priority=400)
