"""``python .ci/release.py 0.3.0``: version, changelog, commit and tag. Then ``git push --follow-tags`` publishes it."""

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNRELEASED = "## [Unreleased]\n"
HOLDERS = {"pyproject.toml": 'version = "{}"', "src/graphrerank/__init__.py": '__version__ = "{}"'}


def release(version: str, root: Path = ROOT) -> str:
    """Write a version into its files, give the changelog's newest section its name and the date, commit and tag.

    Returns:
        The tag.

    Raises:
        ValueError: If the version is not three numbers above the present one, nothing is unreleased, or a file of the
            repository has changes that are not committed; nothing is written then.
    """
    texts = {name: (root / name).read_text(encoding="utf-8") for name in (*HOLDERS, "CHANGELOG.md")}
    (present,) = re.findall(r'^version = "(.*)"$', texts["pyproject.toml"], re.MULTILINE)
    if not re.fullmatch(r"\d+\.\d+\.\d+", version) or _numbers(version) <= _numbers(present):
        raise ValueError(f"`version` must be three numbers above {present}, got {version!r}")
    before, _, after = texts["CHANGELOG.md"].partition(UNRELEASED)
    if not after.partition("\n## [")[0].strip():
        raise ValueError("CHANGELOG.md: needed lines under [Unreleased], found none")
    if changed := _git(root, "status", "--porcelain", "--untracked-files=no"):
        raise ValueError(f"the repository must have no changes that are not committed, got {changed.splitlines()}")
    today = datetime.now(UTC).date().isoformat()
    texts["CHANGELOG.md"] = f"{before}{UNRELEASED}\n## [{version}] - {today}\n{after}"
    for name, line in HOLDERS.items():
        if texts[name].count(line.format(present)) != 1:
            raise ValueError(f"{name}: needed the line {line.format(present)} once")
        texts[name] = texts[name].replace(line.format(present), line.format(version))
    for name, text in texts.items():
        (root / name).write_text(text, encoding="utf-8")
    _git(root, "commit", "--quiet", "--all", "--message", f"Release {version}")
    _git(root, "tag", "--annotate", f"v{version}", "--message", f"Release {version}")
    return f"v{version}"


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    try:
        print(f"{release(*sys.argv[1:2] or [''])}; now: git push --follow-tags")
    except ValueError as error:
        sys.exit(str(error))
