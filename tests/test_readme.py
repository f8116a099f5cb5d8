"""README and docs: links lead somewhere, tables agree, words are those of the field; their code: test_pages.py."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.pages import PAGES

README = (ROOT / "README.md").read_text(encoding="utf-8")
WORDED = [ROOT / "CHANGELOG.md", *PAGES, *(ROOT / "benchmarks").glob("*.py"), *(ROOT / "conf").rglob("*.yaml")]
PRIVATE_WORDS = re.compile(r"\b(doors?|rooms?|hangs? on|on the mean|tells? whether|whom to ask)\b", re.IGNORECASE)
NAMES = {"Spider": "spider", "BIRD": "bird", "ATT&CK": "attack"}  # of the README's table in docs/base.md


def test_first_screen_holds_the_two_commands() -> None:
    first_screen = "\n".join(README.splitlines()[:40])
    for command in ("python train.py", "pytest"):
        assert f'pip install -c constraints.txt -e ".[dev]" && {command}' in first_screen
    assert len(README.splitlines()) < 200


@pytest.mark.parametrize("package", sorted(p.name for p in (ROOT / "src" / "graphrerank").iterdir() if p.is_dir()))
def test_map_names_every_package(package: str) -> None:
    if package not in ("__pycache__", "pretrained"):
        assert f"`{package}/`" in README


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name + "/" + page.stem)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        linked = page.parent / name
        assert linked.exists(), target
        headings = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
        assert not anchor or anchor in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in headings}


def test_table_is_that_of_the_checkpoints_page() -> None:
    rows: dict[str, list[list[str]]] = {}
    first_table = (ROOT / "docs" / "base.md").read_text(encoding="utf-8").split("### ")[0]
    for line in first_table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0].endswith("expansion)"):
            rows[name := cells[0].split(",")[0]] = [cells]
        elif cells[0] == "" and len(cells) > 1:
            rows[name].append(cells)
    compared = 0
    for line in README.splitlines():
        cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
        if (name := NAMES.get(cells[0], cells[0].lower())) in rows and len(cells) == 9:
            systems = {row[1].strip("`"): row for row in rows[name]}
            expected = [systems[system][column] for column in (3, 7) for system in ("retriever", "GCS", "base")]
            assert cells[3:] == expected
            compared += 1
    assert compared == 7


def test_newest_section_of_the_changelog_is_the_version() -> None:
    sections = re.findall(r"^## \[(.*?)\](.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert sections[0] == ("Unreleased", "")
    assert sections[1][0] == version
    assert re.fullmatch(r" - \d{4}-\d\d-\d\d", sections[1][1])


@pytest.mark.parametrize("file", WORDED, ids=lambda file: str(file.relative_to(ROOT)))
def test_words_are_the_fields(file: Path) -> None:
    assert PRIVATE_WORDS.findall(file.read_text(encoding="utf-8")) == []
