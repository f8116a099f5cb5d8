"""The generated reference: every public symbol and every file of settings is on a page."""

import inspect
import runpy
from pathlib import Path
from typing import Any

import pytest

import graphrerank
from graphrerank.config.settings import train
from graphrerank.serving.routes import ErrorAnswer
from graphrerank_documents.readers import Reader
from tests.support import ROOT

SETTINGS_FILE = """# graphrerank train sauce=hot
# Sauce with some spice.
# It needs a spoon.
defaults:
  # Kind of pepper.
  - /pepper: red
  - override hydra/job_logging: none
_target_: collections.Counter
_partial_: true
# Number of spoons, at least 1.
spoons: 3
names: [a, b] # names of guests
steps:
  - _target_: collections.OrderedDict
    # Colour of the step.
    colour: null
  - plain: x
text: |
  first: line
  # second line
"""


@pytest.fixture(scope="module")
def api() -> dict[str, Any]:
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    return runpy.run_path(str(ROOT / "docs" / "api_reference.py"))


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "settings_reference.py"))


def test_each_public_module_is_on_one_page(api: dict[str, Any]) -> None:
    text = "\n".join(api["pages"]().values())
    modules = api["public_modules"]()
    assert {"graphrerank.operators.gcs", "graphrerank_papers.fastinsight", "graphrerank_documents.links"} <= set(
        modules
    )
    assert not any("._" in module for module in modules)
    assert [module for module in modules if text.count(f".. automodule:: {module}\n") != 1] == []


def test_pydantic_fields_are_described(api: dict[str, Any]) -> None:
    lines = ["Response to a failed request.", ""]
    api["describe_fields"](None, "class", "ErrorAnswer", ErrorAnswer, None, lines)
    assert "Attributes:" in lines
    assert "    error: Same as ``message``, under the name that TEI clients read." in lines
    unchanged = ["Text."]
    api["describe_fields"](None, "class", "Path", Path, None, unchanged)
    assert unchanged == ["Text."]


def test_a_protocol_shows_the_arguments_of_its_functions(api: dict[str, Any]) -> None:
    lines = [Reader.__doc__ or ""]
    api["describe_call"](None, "class", "Reader", Reader, None, lines)
    assert "    content: Bytes of the file." in lines[lines.index("Args:") :]
    assert "    name: Path of the file, relative to the source." in lines
    assert "Returns:" in lines
    unchanged = ["Text."]
    api["describe_call"](None, "class", "Path", Path, None, unchanged)
    assert unchanged == ["Text."]


def test_overview_links_every_page(api: dict[str, Any]) -> None:
    overview = api["overview"]()
    assert [package for package in api["pages"]() if f"](api/{package}.md)" not in overview] == []


def test_symbols_are_those_that_python_sees(api: dict[str, Any]) -> None:
    symbols = api["public_symbols"](Path(inspect.getfile(train)))
    defined = [name for name, value in vars(train).items() if getattr(value, "__module__", "") == train.__name__]
    assert set(symbols) >= {name for name in defined if not name.startswith("_")}
    assert api["public_symbols"](Path(graphrerank.__file__)) == []
    assert "GraphReranker" in api["exported_names"](Path(graphrerank.__file__))


def test_symbols_of_a_module(api: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "import logging\nfrom typing import TypeVar\nlog = logging.getLogger('x')\nT = TypeVar('T')\nLIMIT: int = 3\n"
        "_HIDDEN = 1\nif LIMIT:\n    def first(): ...\nelse:\n    class Second: ...\ndef first(): ...\n"
    )
    assert api["public_symbols"](path) == ["first", "Second", "LIMIT"]


def test_builders_are_functions_on_the_page(api: dict[str, Any]) -> None:
    module = "graphrerank_papers.builders.beir"
    directives = api["module_directives"](module, api["public_modules"]()[module])
    assert ".. py:function:: beir(files: RawFiles, writer: DatasetWriter)" in directives
    assert "   :param writer: Writer of the data set folder." in directives


def test_constants_have_their_comments(api: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "#: Documented.\nA = 1\n# Largest `b`,\n# in MiB.\nB = 1 << 2\nC = {}  # type: ignore\nD = 1  # of *d\n"
    )
    constants = [(constant.name, constant.comment, constant.in_docs) for constant in api["public_constants"](path)]
    assert constants == [
        ("A", "Documented.", True),
        ("B", "Largest `b`, in MiB.", False),
        ("C", "", False),
        ("D", "of *d", False),
    ]
    directives = api["module_directives"]("module", path)
    assert "   :members: A" in directives
    assert ".. py:data:: A" not in directives
    assert directives[directives.index(".. py:data:: B") :][:4] == [
        ".. py:data:: B", "   :value: 1 << 2", "", "   Largest ``b``, in MiB."
    ]  # fmt: skip
    assert r"   of \*d" in directives


def test_each_file_of_settings_has_a_section(settings: dict[str, Any]) -> None:
    pages = settings["pages"]()
    for group, paths in settings["files"]().items():
        page = pages[group.replace("/", "_")].splitlines()
        names = [f"shared/{path.stem}" if path.parent.name == "shared" else path.stem for path in paths]
        assert [name for name in names if f"## {name}" not in page] == []
    assert (
        "# Number of queries of each split, the first ones by id." in pages["commands"]
        or "system:" in pages["commands"]
    )
    assert "`retriever.top_k`, default `` 100 ``" in pages["retriever"]


def test_groups_have_a_description(settings: dict[str, Any]) -> None:
    assert set(settings["files"]()) == set(settings["GROUPS"])


def test_settings_of_a_file(settings: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "hot.yaml"
    path.write_text(SETTINGS_FILE)
    content = settings["read_settings"](path, "sauce.")
    assert content.commands == "graphrerank train sauce=hot"
    assert content.notes == "Sauce with some spice. It needs a spoon."
    assert content.target == "collections.Counter"
    assert content.choices == [("pepper=red", "Kind of pepper.")]
    assert content.settings == [
        ("sauce.spoons", "3", "Number of spoons, at least 1."),
        ("sauce.names", "[a, b]", "names of guests"),
        ("sauce.steps.0._target_", "collections.OrderedDict", "Class of this part."),
        ("sauce.steps.0.colour", "null", "Colour of the step."),
        ("sauce.steps.1.plain", "x", ""),
        ("sauce.text", "|\n  first: line\n  # second line", ""),
    ]


def test_a_setting_without_a_comment_has_the_description_of_the_argument(settings: dict[str, Any]) -> None:
    arguments = settings["argument_descriptions"]("graphrerank.config.command_settings.store_settings")
    assert arguments["command"] == "Name of the command's file in `conf`."
    assert settings["argument_descriptions"]("no.such.Class") == {}


def test_markdown_in_comments_is_escaped(settings: dict[str, Any]) -> None:
    assert settings["escape"]("a*b `c*d` <e>") == r"a\*b `c*d` \<e\>"
