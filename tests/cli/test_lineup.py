import pytest

from graphrerank.cli.lineup import FROZEN, short_names


def test_short_names() -> None:
    assert short_names(["runs/1/gatv2", "runs/2/gatv2"]) == ["1-gatv2", "2-gatv2"]
    assert short_names(["a/x.trec", "b/x.trec.gz", "re2"]) == ["a-x", "b-x", "re2"]
    with pytest.raises(ValueError, match="must have different names"):
        short_names(["a/x.trec", "a/x.run"])


@pytest.mark.parametrize("name", FROZEN)
def test_a_frozen_rows_name_is_taken_by_nothing_else(name: str) -> None:
    assert short_names([f"runs/{name}", "base"]) == [f"runs-{name}", "base"]
    assert short_names([f"/runs/{name}.trec"]) == [f"runs-{name}"]
    assert short_names([f"a/{name}", f"b/{name}"]) == [f"a-{name}", f"b-{name}"]
    with pytest.raises(ValueError, match=rf"a frozen row's name .*, got \['{name}'\]; write the path with its parent"):
        short_names([f"{name}.trec", "base"])
