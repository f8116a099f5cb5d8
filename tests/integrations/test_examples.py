"""The examples of docs/adapters.md, as they stand."""

import re

import pytest

from graphrerank.extras import EXTRAS, is_installed
from tests.support import ROOT

PAGE = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))


def test_every_tool_of_the_page_has_an_example() -> None:
    assert set(re.findall(r"^## (.+)$", PAGE, re.MULTILINE)) == set(EXAMPLES)


@pytest.mark.parametrize("tool", EXAMPLES)
def test_example(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = EXAMPLES[tool]
    adapters = (name.replace("_", "-") for name in re.findall(r"graphrerank\.integrations\.(\w+)", code))
    needed = {module for name in adapters if name in EXTRAS for module in EXTRAS[name].modules}
    if missing := [module for module in sorted(needed) if not is_installed(module)]:
        pytest.skip(f"{', '.join(missing)} not installed")
    exec(compile(code, f"docs/adapters.md, {tool}", "exec"), {})
    assert capsys.readouterr().out
