"""``.ci/skipped.py`` finds the files of skipped tests in a report of pytest itself."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

TESTS = {
    "tests/test_whole.py": "import pytest\npytest.importorskip('no_such_module')\ndef test_a(): pass\n",
    "tests/deeper/test_one.py": "import pytest\nclass TestB:\n    def test_b(self): pytest.skip('no')\n",
    "tests/test_run.py": "def test_c(): pass\n",
}


@pytest.mark.parametrize(
    ("names", "printed"),
    [(list(TESTS), ["tests/deeper/test_one.py", "tests/test_whole.py"]), (["tests/test_run.py"], [])],
)
def test_files_with_skipped_tests(names: list[str], printed: list[str], tmp_path: Path) -> None:
    script = tmp_path / ".ci" / "skipped.py"
    script.parent.mkdir()
    script.write_text((ROOT / ".ci" / "skipped.py").read_text())
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(TESTS[name])
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "--import-mode=importlib", "--junitxml=report.xml"]
    subprocess.run([sys.executable, "-m", "pytest", "-q", *options], cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run([sys.executable, script, tmp_path / "report.xml"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == printed
