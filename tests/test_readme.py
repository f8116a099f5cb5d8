"""README and docs: their links lead somewhere, and their tables agree. tests/test_pages.py runs their code."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.pages import PAGES

GENERATED = ("api/", "settings/")  # folders of pages that docs/conf.py writes
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_two_commands_of_a_checkout() -> None:
    for extra, command in (("train", "python train.py"), ("dev", "pytest")):
        assert f'pip install -c constraints.txt -e ".[{extra}]" && {command}' in README


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name + "/" + page.stem)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        if name.startswith(GENERATED):
            continue  # Sphinx checks these, because it writes them
        linked = page.parent / name if name else page
        assert linked.exists(), target
        headings = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
        assert not anchor or anchor in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in headings}


def test_newest_section_of_the_changelog_is_the_version() -> None:
    sections = re.findall(r"^## \[(.*?)\](.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert sections[0] == ("Unreleased", "")
    assert sections[1][0] == version
    assert re.fullmatch(r" - \d{4}-\d\d-\d\d", sections[1][1])


def test_lines_of_compare_are_those_that_ranked() -> None:
    peers = runpy.run_path(str(ROOT / "benchmarks" / "peers.py"))
    blocks = re.findall(r"```python\n(.*?)\n```", (ROOT / "docs" / "compare.md").read_text(encoding="utf-8"), re.DOTALL)
    assert blocks == [peers["snippet"](peer) for peer in peers["PEERS"].values()]


def test_the_first_example_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL).groups()
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == output


def test_the_edge_of_the_first_example_changes_the_order(capsys: pytest.CaptureFixture[str]) -> None:
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    assert ", edges=[(0, 2)]" in code
    exec(compile(code.replace(", edges=[(0, 2)]", ""), "README.md", "exec"), {})
    assert capsys.readouterr().out == "['Solaris', 'Paris', 'Andrei Tarkovsky']\n"
