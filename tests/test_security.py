"""SECURITY.md says what pyproject.toml, constraints.txt and conf say."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support import ROOT

TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIREMENTS = [
    Requirement(line)
    for listed in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for line in listed
    if not line.startswith("graphrerank")
]
PINNED = {
    canonicalize_name(name): Version(version)
    for name, version in re.findall(
        r"^([\w.-]+)==([\w.+]+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
}
FLOORS = re.findall(r"^\| ([\w-]+) \| (\d[\d.]*) \|", TEXT, re.MULTILINE)


@pytest.mark.parametrize(("name", "version"), FLOORS)
def test_the_lowest_version_that_is_allowed_has_no_known_hole(name: str, version: str) -> None:
    (requirement,) = {str(r.specifier): r for r in REQUIREMENTS if canonicalize_name(r.name) == name}.values()
    (lowest,) = (Version(part.version) for part in requirement.specifier if part.operator in (">=", "=="))
    assert lowest == Version(version)


def test_the_measured_versions_are_allowed() -> None:
    assert len(FLOORS) >= 10
    known = [r for r in REQUIREMENTS if canonicalize_name(r.name) in PINNED]
    assert len(known) > 40
    assert [str(r) for r in known if PINNED[canonicalize_name(r.name)] not in r.specifier] == []


def test_every_file_that_is_named_is_there() -> None:
    for name in re.findall(r"`((?:src|tests|conf)/[\w/.]+)`", TEXT):
        assert (ROOT / name).exists(), name
