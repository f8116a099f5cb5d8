import pytest

from graphrerank.cli.main import main


def test_index(tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n\nwords of a")
    assert main(["index", str(tmp_path / "docs"), "--out", str(tmp_path / "data")]) == 0
    shown = capsys.readouterr().out
    assert "1 documents, 1 passages, 0 links" in shown
    assert f"index={tmp_path / 'data'}" in shown
    assert main(["index", str(tmp_path / "docs"), "--out", str(tmp_path / "data")]) == 1
    assert "`out` must not exist" in capsys.readouterr().err


def test_build(tmp_path, capsys):
    assert main(["build", "nothing", "--from", "x", "--out", str(tmp_path / "o")]) == 1
    assert "nothing" in capsys.readouterr().err
    assert main(["build", "spider", "--from", "x", "--out", str(tmp_path / "o"), "--option", "k"]) == 1
    assert "`--option` must be KEY=VALUE, got 'k'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["build", "spider"])
