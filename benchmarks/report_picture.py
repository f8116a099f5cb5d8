"""Take a picture of the query browser of a report in Chromium.

PYTHONPATH=. python benchmarks/report_picture.py RUN docs/report.png

RUN is a finished run folder of ``evaluate.py``. The picture shows the first query whose text or id contains the text
of ``--words``.
"""

import argparse
import json
import tempfile
from pathlib import Path

from tests.support.browser import browsing

WIDTH, HEIGHT = 1280, 1450


def main() -> None:
    """Open the report, select a query, and take the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run folder with report.html")
    parser.add_argument("picture", type=Path, help="PNG file to write")
    parser.add_argument("--words", default="", help="text that the query or its id contains")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as profile, browsing(Path(profile)) as page:
        page.open(arguments.run.resolve() / "report.html", width=WIDTH, height=HEIGHT)
        page.evaluate("document.querySelector('.browser').open = true")
        page.evaluate(f"document.querySelector('.search').value = {json.dumps(arguments.words)}")
        page.evaluate("document.querySelector('.search').dispatchEvent(new Event('input'))")
        page.click(".found button")
        top = page.evaluate("document.querySelector('.browser').getBoundingClientRect().top + scrollY")
        page.picture(arguments.picture, height=HEIGHT, top=top)


if __name__ == "__main__":
    main()
