"""The documentation site: these pages, every setting of `conf` and the API, from the files themselves.

Build: ``pip install -c constraints.txt -e ".[docs]" && sphinx-build -W docs site``.
"""

import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from graphrerank import __version__
from graphrerank.cli.schema import SETTINGS, settings_class
from graphrerank.config.command_settings import help_lines

# Built before autodoc reads a module, because FastAPI cannot be imported while autodoc sets `typing.TYPE_CHECKING`.
SETTINGS_CLASSES = {command: settings_class(command) for command in SETTINGS}

ROOT = Path(__file__).parent.parent
CONF = (ROOT / "conf", ROOT / "src" / "graphrerank_papers" / "conf")

project = "graphrerank"
author = "the graphrerank developers"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx-mathjax-offline"]
source_suffix = {".md": "markdown"}
root_doc = "index"
html_theme = "furo"
html_title = f"graphrerank {version}"
html_show_sphinx = False
exclude_patterns = ["conf.py"]
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]  # links to files of the repository; tests/test_readme.py checks them all
autodoc_typehints = "none"  # they stand in the signatures
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
napoleon_google_docstring = True
napoleon_use_ivar = True

PAGES = {"changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md", "security": "SECURITY.md"}
API = {  # modules for users, and packages whose modules are, in the order of their use
    "rerank": "Rerank in your own code",
    "training": "Train: `fit` and `RerankerTrainer`",
    "evaluation": "Evaluate: `evaluate`",
    "data.dataset": "Data sets",
    "data.qrels": "Relevance judgements",
    "config.components": "Components by their names",
    "config.settings": "Settings of commands",
    "core": "Records and base classes",
    "corpus": "Corpus graphs",
    "operators": "Retrievers and graph operators",
    "pipelines": "Pipelines of operators",
    "models": "Models and checkpoints",
    "losses": "Losses",
    "metrics": "Measures",
    "calibration": "Calibration of probabilities",
    "artifacts": "Artifacts: export and formats",
}
ADAPTERS = ("cross_encoder", "pyg", "graph_libraries")
SETTING = re.compile(r"^(?P<indent> *)(?P<key>[\w@/. -]+):(?: +(?P<value>[^#]*?))?(?: +# (?P<comment>.*))?$")


def settings_page() -> str:
    """List every file of `conf`, the library's and the papers', with its settings, values and comments."""
    lines = ["# Settings", ""]
    lines += ["Made from the files of `conf`. `group=file` chooses a file, `key=value` changes a setting.", ""]
    files = [(path.parent.relative_to(conf), path) for conf in CONF for path in sorted(conf.rglob("*.yaml"))]
    for folder in sorted({folder for folder, _ in files}):
        name = "" if str(folder) == "." else f"{folder}/"
        lines += [f"## {name.rstrip('/') or 'commands'}", ""]
        for path in [path for of, path in files if of == folder]:
            lines += [f"### {name}{path.stem}", "", *_settings(path.read_text(encoding="utf-8").splitlines()), ""]
            if not name and path.stem in SETTINGS_CLASSES:
                lines += ["", "```yaml", *help_lines(SETTINGS_CLASSES[path.stem], {}), "```", ""]
    return "\n".join(lines)


def _settings(content: list[str]) -> list[str]:
    """Return the page's lines on a file: its leading comment, its commands, and a table of its settings."""
    first = next((number for number, line in enumerate(content) if not line.startswith("#")), len(content))
    header = "\n".join(line.removeprefix("#").strip() for line in content[:first] if "@package" not in line)
    notes = header.replace("\\\n", "").splitlines()
    rows = []
    above: list[str] = []
    parents: list[tuple[int, str]] = []
    for line in content[first:]:
        if line.lstrip().startswith("#"):
            above.append(line.strip("# "))
            continue
        comment, above = " ".join(above), []
        setting = SETTING.match(line)
        if setting is None or setting["key"].strip().startswith("- "):
            continue
        indent = len(setting["indent"])
        parents = [(depth, key) for depth, key in parents if depth < indent]
        key = ".".join([*(key for _, key in parents), setting["key"].strip()])
        parents.append((indent, setting["key"].strip()))
        comment = " ".join(filter(None, (comment, setting["comment"])))
        if setting["value"] or comment:
            rows.append((key, setting["value"] or "", comment))
    commands = [note for note in notes if note.startswith("python ")]
    text = [note for note in notes if not note.startswith("python ")]
    table = ["| setting | |", "| --- | --- |"]
    table += [f"| `{_cell(f'{key}: {value}'.rstrip(': '))}` | {_cell(comment)} |" for key, value, comment in rows]
    return [*text, "", *(["```", *commands, "```", ""] if commands else []), *(table if rows else [])]


def _cell(text: str) -> str:
    return text.strip().replace("|", "\\|")


def api_page() -> str:
    """Document every module of the packages for users."""
    lines = ["# API", "", "Modules and packages for users, from their docstrings.", ""]
    for name, title in API.items():
        package = import_module(f"graphrerank.{name}")
        modules = [f"{package.__name__}.{entry.name}" for entry in iter_modules(getattr(package, "__path__", ()))]
        lines += [f"## {title}", ""]
        for module in [module for module in modules if "._" not in module] or [package.__name__]:
            lines += [f"### {module.removeprefix('graphrerank.')}", "", "```{eval-rst}"]
            lines += [f".. automodule:: {module}", "```", ""]
    lines += ["## Adapters", ""]
    for name in ADAPTERS:
        lines += ["```{eval-rst}", f".. automodule:: graphrerank.integrations.{name}", "```", ""]
    return "\n".join(lines)


def _read(app: Any, name: str, content: list[str]) -> None:
    """Put the generated pages and those at the top of the repository in the place of their empty files."""
    made = {"settings": settings_page, "api": api_page}
    if name in made:
        content[0] = made[name]()
    elif name in PAGES:
        content[0] = (ROOT / PAGES[name]).read_text(encoding="utf-8").replace("](docs/", "](")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _read)
