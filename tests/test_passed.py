"""``tests/support/passed.py`` on small files: a second run takes what did not pass in the first one."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support import ROOT

TESTS = {
    "test_whole.py": "import pytest\npytest.importorskip('package_of_a_test')\ndef test_a(): pass\n",
    "deeper/test_some.py": """
import pytest

@pytest.mark.parametrize("name", ["json", "package_of_a_test"])
def test_b(name): pytest.importorskip(name)

@pytest.mark.slow
def test_c(): pass

@pytest.fixture
def broken():
    yield
    raise OSError

def test_d(broken): pass
""",
    "test_passes.py": "class TestE:\n    def test_e(self): pass\n",
}
PASSED = ["deeper/test_some.py::test_b[json]", "test_passes.py::TestE::test_e"]


def run_pytest(folder: Path, *options: str) -> None:
    """Run pytest with a worker of pytest-xdist and without other plugins, which take seconds to load."""
    plugins = ("-p", "no:cacheprovider", "-p", "xdist.plugin", "-n", "1", "-p", "tests.support.passed")
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(folder / "packages")])}
    environment = os.environ | environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", *plugins, *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr  # the teardown of test_d fails


def test_a_second_run_takes_what_did_not_pass(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\naddopts = --import-mode=importlib\n")
    for name, content in TESTS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    run_pytest(tmp_path, "-m", "not slow", "--write-passed=passed.txt")
    assert sorted((tmp_path / "passed.txt").read_text().splitlines()) == PASSED
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "package_of_a_test.py").touch()
    run_pytest(tmp_path, "--deselect-passed=passed.txt", "--write-passed=others.txt")
    others = ["deeper/test_some.py::test_b[package_of_a_test]", "deeper/test_some.py::test_c", "test_whole.py::test_a"]
    assert sorted((tmp_path / "others.txt").read_text().splitlines()) == others
