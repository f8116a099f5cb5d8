"""Plugin of pytest that lets a second run leave out the tests that passed in a first one, in another environment.

``python -m pytest -p tests.support.passed --write-passed=FILE``, then the same with ``--deselect-passed=FILE``. The
equals sign is needed: pytest would take a separate FILE for a test when it looks for the root folder.
"""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options ``--write-passed`` and ``--deselect-passed``."""
    group = parser.getgroup("passed tests")
    group.addoption("--write-passed", type=Path, metavar="FILE", help="write the ids of the tests that pass")
    group.addoption("--deselect-passed", type=Path, metavar="FILE", help="deselect the tests whose ids are in a file")


def pytest_configure(config: pytest.Config) -> None:
    """Record the tests that pass, but not in the processes of pytest-xdist, which report to the first process."""
    path = config.getoption("write_passed")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(PassedTests(path))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests whose ids are in the file of ``--deselect-passed``."""
    path = config.getoption("deselect_passed")
    if path is None:
        return
    passed = set(path.read_text(encoding="utf-8").splitlines())
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
    items[:] = [item for item in items if item.nodeid not in passed]


class PassedTests:
    """Recorder of the tests that pass. A skipped test, or one whose teardown fails, does not.

    Args:
        path: File to which the ids are written at the end, one per line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outcomes: dict[str, set[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the outcome of a test's setup, call or teardown."""
        self.outcomes.setdefault(report.nodeid, set()).add(report.outcome)

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        passed = [nodeid for nodeid, outcomes in self.outcomes.items() if outcomes == {"passed"}]
        self.path.write_text("".join(f"{nodeid}\n" for nodeid in passed), encoding="utf-8")
