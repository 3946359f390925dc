"""The docs page *Incidents* is what is generated of the cases and tickets that there are."""

from tests.support import incidents_page


def test_the_incidents_page_is_generated_of_what_is_there() -> None:
    """``python -m tests.support.incidents_page`` writes it anew."""
    assert incidents_page.PAGE.read_text(encoding="utf-8") == incidents_page.page()
