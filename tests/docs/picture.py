"""The picture of the README: the report of a bundled incident. ``python -m tests.docs.picture`` takes it anew.

It needs Chromium. Sections that a small picture has no room for are hidden.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from subreplay.cli import main
from tests.docs.pages import ROOT

PICTURE: Final = ROOT / ".github" / "incident.png"
INCIDENT: Final = "hung-consumer"
SIZE: Final = (1000, 1050)
STYLE: Final = """<style>
nav.toc, #timeline form, footer, #timeline ~ section { display: none !important }
</style>"""


def take(browser: str) -> None:
    """Run the demo of the incident and take the picture of its report."""
    with tempfile.TemporaryDirectory() as folder:
        assert main.main(["demo", INCIDENT, "--out", folder]) == 1
        page = Path(folder, INCIDENT, "report", "report.html")
        page.write_text(page.read_text(encoding="utf-8").replace("</head>", f"{STYLE}</head>"), encoding="utf-8")
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        size = f"--window-size={SIZE[0]},{SIZE[1]}"
        subprocess.run([browser, *options, size, f"--screenshot={PICTURE}", page.as_uri()], check=True)


if __name__ == "__main__":
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        sys.exit("The picture needs Chromium. Install it, e.g. `apt-get install chromium`.")
    take(found)
