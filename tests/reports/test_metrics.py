"""Every figure has one definition: what the page shows beside it is what the glossary says."""

import re
from pathlib import Path

import pytest

from subreplay.reports.metrics import METRICS

GLOSSARY = Path("docs/reference/metrics.md").read_text(encoding="utf-8")
CHAPTERS = dict(re.findall(r"^## (.+)\n\n((?:.+\n)+)", GLOSSARY, re.MULTILINE))


@pytest.mark.parametrize("name", METRICS)
def test_the_glossary_has_the_definition_word_for_word(name: str) -> None:
    assert " ".join(CHAPTERS[name.capitalize()].split()) == METRICS[name]


def test_the_glossary_has_no_other_figures() -> None:
    assert set(CHAPTERS) == {name.capitalize() for name in METRICS}
