from pathlib import Path

import pytest

from graphrerank_documents.redirects import DAMAGED_CONFIG
from graphrerank_documents.site import Site, find_site


@pytest.mark.parametrize(
    ("name", "text", "base"),
    [
        ("mkdocs.yml", "site_name: A\nsite_url: https://a.example.org/docs # ours\n", "https://a.example.org/docs/"),
        ("_config.yml", "url: 'https://example.org'\nbaseurl: /jekyll\n", "https://example.org/jekyll/"),
        ("_config.yml", 'baseurl: "/only"\n', "/only/"),
        ("hugo.toml", 'title = "x"\nbaseURL             = "https://example.org/"\n', "https://example.org/"),
        (
            "docusaurus.config.ts",
            "const config = {\n  url: 'https://example.org',\n  baseUrl: '/docs/',\n}",
            "https://example.org/docs/",
        ),
        (
            "conf.py",
            'import os\nos.abort()\nhtml_baseurl = "https://example.org/en/stable/"\n',
            "https://example.org/en/stable/",
        ),
        ("book.toml", '[output.html]\nsite-url = "/book/"\n', "/book/"),
    ],
)
def test_addresses_are_read_from_configurations(tmp_path: Path, name: str, text: str, base: str) -> None:
    (tmp_path / "repo/site/docs").mkdir(parents=True)
    (tmp_path / "repo/site" / name).write_text(text)
    assert find_site(tmp_path / "repo") == Site((base, "/repo/"), ("site",))
    assert find_site(tmp_path / "repo/site") == Site((base, "/site/"), ("",))
    assert find_site(tmp_path / "repo/site/docs") == Site((base, "/docs/"))


def test_configurations_may_say_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    (folder / "node_modules/x").mkdir(parents=True)
    (folder / "node_modules/x/mkdocs.yml").write_text("site_url: https://example.org/\n")
    (folder / "mkdocs.yml").write_bytes(b"\xff\xfe\x00site_url: !ENV [URL]\nsite_url: ''\n")
    (folder / "conf.py").mkdir()
    site = find_site(folder)
    assert not site.by_name
    assert list(site.damaged.values()) == [["mkdocs.yml"]]
    (tmp_path / "writerside.cfg").touch()
    assert find_site(folder) == Site(("/docs/",), ("",), by_name=True, damaged=site.damaged)


def test_a_configuration_that_cannot_be_opened_or_is_too_large_is_reported(tmp_path: Path) -> None:
    (tmp_path / "_redirects").write_text("/a /b\n" + "# x\n" * 300_000)
    (tmp_path / "vercel.json").write_text("{}")
    real = Path.open

    def refuse(path: Path, *arguments: object, **settings: object) -> object:
        if path.name == "vercel.json":
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **settings)  # type: ignore[call-overload]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        site = find_site(tmp_path)
    assert len(site.redirects) == 1
    assert site.damaged == {
        f"{DAMAGED_CONFIG}: larger than 1 MB": ["_redirects"],
        f"{DAMAGED_CONFIG}: Permission denied": ["vercel.json"],
    }
