"""``.ci/release.py`` in a repository of its own."""

import re
import shutil
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support import ROOT

FILES = ("pyproject.toml", "CHANGELOG.md", "src/graphrerank/__init__.py", ".ci/release.py")


def git(folder: Path, *arguments: str) -> str:
    named = ["-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(["git", *named], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    changelog = tmp_path / "CHANGELOG.md"  # a commit of a release has nothing unreleased
    changelog.write_text(changelog.read_text().replace("## [Unreleased]\n", "## [Unreleased]\n\n- A line.\n"))
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "config", "user.name", "a")
    git(tmp_path, "config", "user.email", "a@b")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / ".ci" / "release.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_version_changelog_commit_and_tag(repository: Path) -> None:
    unreleased = (repository / "CHANGELOG.md").read_text().partition("## [Unreleased]\n")[2].partition("\n## [")[0]
    done = run(repository, "99.0.1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "v99.0.1; now: git push --follow-tags\n"
    assert tomllib.loads((repository / "pyproject.toml").read_text())["project"]["version"] == "99.0.1"
    assert '__version__ = "99.0.1"' in (repository / "src/graphrerank/__init__.py").read_text()
    changelog = (repository / "CHANGELOG.md").read_text()
    sections = re.findall(r"^## \[(.*?)\](.*)$", changelog, re.MULTILINE)
    assert sections[0] == ("Unreleased", "")
    assert sections[1][0] == "99.0.1"
    assert abs((datetime.now(UTC) - datetime.fromisoformat(f"{sections[1][1][3:]}T12:00:00+00:00")).days) <= 1
    assert changelog.partition("## [99.0.1]")[2].partition("\n")[2].partition("\n## [")[0] == unreleased
    assert git(repository, "describe") == "v99.0.1"
    assert git(repository, "log", "-1", "--format=%s") == "Release 99.0.1"
    assert git(repository, "status", "--porcelain") == ""
    again = run(repository, "99.0.2")
    assert again.returncode == 1
    assert "CHANGELOG.md: needed lines under [Unreleased], found none" in again.stderr


@pytest.mark.parametrize("version", ["", "0.0.1", "1.2", "v9.0.0", "9.0.0rc1"])
def test_versions_that_are_refused(repository: Path, version: str) -> None:
    present = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    done = run(repository, *filter(None, [version]))
    assert done.returncode == 1
    assert f"`version` must be three numbers above {present}, got {version!r}" in done.stderr
    assert git(repository, "status", "--porcelain") == ""
    (repository / "pyproject.toml").open("a").write("# more\n")
    assert "no changes that are not committed, got ['M pyproject.toml']" in run(repository, "99.0.0").stderr
    assert git(repository, "tag") == ""
