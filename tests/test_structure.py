"""The shape of the source tree."""

import runpy

from tests.support import ROOT


def test_each_mutation_of_the_benchmark_stands_once_in_its_file() -> None:
    mutations = runpy.run_path(str(ROOT / "benchmarks" / "mutations.py"))["MUTATIONS"]
    texts = {each.file: (ROOT / each.path).read_text(encoding="utf-8") for each in mutations}
    assert [each for each in mutations if texts[each.file].count(each.old) != 1] == []
