from __future__ import annotations

from pathlib import Path

from tests.language.messages import collect_messages, format_messages
from tests.language.words import find_long_sentences, find_replaced_names, find_replaced_phrases
from tests.support.snapshots import snapshot

MODULE = '''"""A docstring is not a message."""

def read_told(rows):
    """Nor is this one."""
    raise ValueError(f"{rows}: nothing tells its format")

HELP = "Print the report."
KEY = "report"
'''
TEMPLATE = """<h2 class="no message">Load over time</h2>
{% if other %}<p>The busiest consumer
is {{ name }}.</p>{% endif %}
"""


def test_messages_are_strings_of_two_words_that_are_no_docstring(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(MODULE)
    (tmp_path / "page.html.j2").write_text(TEMPLATE)
    (tmp_path / "page.js").write_text("// a comment in words\nshow('rows shown', `all of them`)\n")
    assert format_messages(collect_messages(tmp_path)) == (
        "module.py:5: {rows}: nothing tells its format\n"
        "module.py:7: Print the report.\n"
        "page.html.j2:1: Load over time\n"
        "page.html.j2:2: The busiest consumer is {{ name }}.\n"
        "page.js:2: rows shown\n"
        "page.js:2: all of them\n"
    )


def test_replaced_words_are_found_in_names_and_in_strings(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(MODULE)
    (tmp_path / "nights.py").write_text("")
    assert list(find_replaced_names(tmp_path)) == [
        "module.py:3: read_told contains 'told'; use recorded, shown, known",
        "nights.py: nights contains 'nights'; use daily runs",
    ]
    assert list(find_replaced_phrases(collect_messages(tmp_path))) == [
        "module.py:5: 'tells' in '{}: nothing tells its format'; use recorded, contains, reports; shown, listed"
    ]


def test_a_long_sentence_is_listed_and_two_short_ones_are_not(tmp_path: Path) -> None:
    long = "The row " + "and the next row " * 8
    (tmp_path / "module.py").write_text(f"LONG = '{long}'\nSHORT = '{long[:80]}. {long[:80]}.'\n")
    assert [line.split(":", 2)[:2] for line in find_long_sentences(collect_messages(tmp_path))] == [["module.py", "1"]]


def test_every_visible_string_of_the_package_is_in_the_list_that_reviewers_read() -> None:
    """``SUBREPLAY_SNAPSHOTS=write`` in the environment rewrites the list."""
    snapshot("messages.txt", format_messages(collect_messages(), lines=False))


def test_the_package_uses_no_replaced_word() -> None:
    assert [*find_replaced_names(), *find_replaced_phrases(collect_messages())] == []
