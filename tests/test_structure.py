"""The shape of the source tree."""

import runpy

from tests.support import ROOT

SOURCES = ROOT / "src"
MAX_LINES = 500  # of a file that is one idea


def test_no_source_file_is_long() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES.rglob("*.py")}
    assert {str(path): length for path, length in lengths.items() if length > MAX_LINES} == {}


def test_each_mutation_of_the_benchmark_stands_once_in_its_file() -> None:
    mutations = runpy.run_path(str(ROOT / "benchmarks" / "mutations.py"))["MUTATIONS"]
    texts = {each.file: (ROOT / each.path).read_text(encoding="utf-8") for each in mutations}
    assert [each for each in mutations if texts[each.file].count(each.old) != 1] == []
