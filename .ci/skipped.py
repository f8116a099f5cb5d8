"""Print the test files with skipped tests in a JUnit report of pytest: ``python .ci/skipped.py REPORT``."""

import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]


def skipped_files(report: Path, root: Path = ROOT) -> list[str]:
    """Return the test files in which at least one test was skipped.

    Args:
        report: JUnit report that ``pytest --junitxml=REPORT`` wrote.
        root: Folder in which pytest ran.

    Returns:
        Paths relative to ``root``, sorted and without duplicates.
    """
    files = set()
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("skipped") is not None:
            # a file that was skipped as a whole has its module as the name of its only test
            files.add(_file_of(case.get("classname") or case.get("name", ""), root))
    return sorted(files - {""})


def _file_of(module: str, root: Path) -> str:
    """Return the path of a test's file, given the dotted name of its module and classes."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        path = Path(*parts[:length]).with_suffix(".py")
        if (root / path).is_file():
            return path.as_posix()
    return ""


if __name__ == "__main__":
    for file in skipped_files(Path(sys.argv[1])):
        print(file)
