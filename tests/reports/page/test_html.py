"""The page: complete, offline, escaped, the same bytes for the same data."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markupsafe import escape

import subreplay
from subreplay.audit.codes import Code
from subreplay.reports.data import ReportData
from subreplay.reports.formatting import RULES_PAGE, format_rule_url
from subreplay.reports.metrics import METRICS
from subreplay.reports.page.html import make_breakable, mark_code, to_html
from subreplay.reports.page.palette import LIGHT
from subreplay.reports.text import to_text
from tests.reports.made_reports import known_fault, us

ALL = {
    "incidents",
    "timeline",
    "input",
    "facts",
    "map",
    "load",
    "skew",
    "moves",
    "rules",
    "findings",
    "scenarios",
    "details",
    "keys",
    "limits",
}
REPOSITORY = Path(__file__).parents[3]
VOID = {"meta", "br", "wbr", "input", "link", "img", "hr"}


class Page(HTMLParser):
    """What a browser would see: ids, tags in order, text; a tag that is not closed fails."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.handlers: list[str] = []
        self.text = ""
        self.feed(html)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attrs:
            self.ids += [value or ""] if name == "id" else []
            self.links += [value or ""] if name in ("href", "src") else []
            self.handlers += [name] if name.startswith("on") else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data


@pytest.fixture(scope="module")
def small_html(small: ReportData) -> str:
    return to_html(small)


@pytest.fixture(scope="module")
def large_html(large: ReportData) -> str:
    return to_html(large)


def test_every_section_is_there_in_order_and_in_the_contents(small_html: str) -> None:
    page = Page(small_html)
    sections = [name for name in page.ids if name in ALL]
    assert set(sections) == ALL
    contents = small_html[small_html.index('<nav class="toc"') : small_html.index("</nav>")]
    assert re.findall(r'href="#(\w+)"', contents) == sections
    assert (
        small_html.index("<h1>1,204 messages")
        < small_html.index("Verdict: <strong>invalid")
        < small_html.index("<section")
    )
    assert len(page.ids) == len(set(page.ids))


def test_a_report_without_data_says_so(bare: ReportData) -> None:
    page = Page(to_html(bare))
    assert {"map", "load", "rules", "moves"} <= set(page.ids)
    assert not {"incidents", "scenarios", "findings", "keys", "skew", "facts"} & set(page.ids)
    assert page.text.count("Nothing to show") == 4
    assert page.tags["svg"] == 1  # the patterns' definitions


def test_a_what_if_without_rules_has_no_empty_sections_of_an_audit(small: ReportData) -> None:
    run = replace(small.run, kind="whatif")
    data = replace(small, run=run, codes=(), findings_over_time=(), range_maps=(), load=(), totals=(), moves=())
    ids = set(Page(to_html(data)).ids)
    assert "scenarios" in ids
    assert not {"rules", "map", "load", "moves", "findings"} & ids


@pytest.mark.parametrize("name", ["small", "large", "hostile", "failover", "bare", "dispatched"])
def test_the_page_asks_for_nothing_outside_itself(name: str, request: pytest.FixtureRequest) -> None:
    html = to_html(request.getfixturevalue(name))
    page = Page(html)
    assert not re.search(r"(@import|url\((?!#))", html)
    followed = {link.split("#")[0] for link in page.links if not link.startswith("#")}  # when a reader clicks
    assert followed <= {RULES_PAGE, "https://github.com/apache/pulsar/issues/23870"}
    assert not {"link", "img", "iframe", "object", "foreignobject", "image", "use"} & set(page.tags)


def test_hostile_names_stay_text(hostile: ReportData) -> None:
    html = to_html(hostile)
    page = Page(html)
    assert "<script>alert" not in html
    assert page.tags["script"] == 1
    assert not page.handlers
    assert page.text.count("<script>alert(1)</script>") > 40
    assert "\x1b" not in html
    assert "\u202e" not in html


def test_an_attribute_cannot_be_left(small: ReportData) -> None:
    evil = "\" onmouseover='x' x=\""
    finding = replace(small.codes[0].worst[0], consumer=evil, key=evil)
    total = replace(small.totals[0], consumer=evil)
    data = replace(small, codes=(replace(small.codes[0], code=evil, worst=(finding,)),), totals=(total,))
    assert not Page(to_html(data)).handlers


def test_a_finding_that_resembles_a_known_fault_links_to_its_ticket(small: ReportData) -> None:
    page = Page(to_html(known_fault(small)))
    assert page.links.count("https://github.com/apache/pulsar/issues/23870") == 3  # incident, table of rules, finding
    assert "looks like apache/pulsar#23870, fixed in 4.0.3" in page.text
    assert "out of order <at times>. Affects 4.0.0 to 4.0.2; fixed in 4.0.3. Upgrade the brokers." in page.text
    assert "javascript" not in " ".join(Page(to_html(known_fault(small, "javascript:alert(1)"))).links)


def test_the_policy_allows_just_the_script_that_is_there(small_html: str) -> None:
    script = re.search(r"<script>(.*)</script>", small_html, re.DOTALL)
    assert script
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', small_html)
    assert policy
    assert f"script-src &#39;sha256-{digest}&#39;" in policy[1].replace("&#43;", "+")
    assert policy[1].startswith("default-src &#39;none&#39;")


@pytest.mark.long
def test_the_same_data_gives_the_same_bytes_in_every_process(
    small_html: str, small: ReportData, tmp_path: Path
) -> None:
    import pickle

    (tmp_path / "data").write_bytes(pickle.dumps(small))
    code = (
        "import pickle, sys; from pathlib import Path; from subreplay.reports.page.html import to_html; "
        "d = pickle.loads(Path(sys.argv[1]).read_bytes()); to_html(d); sys.stdout.buffer.write(to_html(d).encode())"
    )
    source = str(Path(subreplay.__file__).parent.parent)
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "data")],
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": source, "TZ": "Asia/Tokyo", "LANG": "C"},
        )
        assert done.stdout.decode() == small_html


def test_the_largest_report_stays_small(large_html: str) -> None:
    assert len(large_html.encode()) < 1_000_000
    assert max(len(svg) for svg in re.findall(r"<svg.*?</svg>", large_html)) < 600_000
    assert re.search(r"Up to [\d,]+ ranges at once are too many to draw", large_html)


def test_charts_name_colours_and_never_set_them(small_html: str) -> None:
    """A literal colour or font in a chart would be right on one theme only."""
    charts = "".join(re.findall(r"<svg viewBox.*?</svg>", small_html))
    assert charts.count("<svg") >= 7
    assert not re.search(r'(fill|stroke|style|font-family|id)="', charts)
    defined = set(re.findall(r"\.([a-z][a-z0-9-]*)", small_html.split("</style>")[0]))
    used = {name for names in re.findall(r'class="([^"]+)"', charts) for name in names.split()}
    assert used - {"ink"} <= defined
    assert {"k0", "k1", "k2"} <= used


def test_a_consumer_has_one_colour_everywhere(small_html: str) -> None:
    """The tool tips of all charts and all swatches agree."""
    tips = re.findall(r'class="(k\d+)"[^>]*><title>(?:[a-z ,\d]*, )?(?:mostly )?(c\d): ', small_html)
    swatches = re.findall(r'<i class="sw (k\d+)" aria-hidden="true"></i>(c\d+)<', small_html)
    assert len(tips) > 20
    seen = set(tips) | {(token, name) for token, name in swatches if len(name) == 2}
    assert {name: token for token, name in seen} == {f"c{i}": f"k{i - 1}" for i in range(1, 10)} | {}
    assert len(seen) == 9


def test_the_ten_solid_colours_differ() -> None:
    assert len(set(LIGHT)) == 10


def test_all_tables_have_captions_and_all_charts_descriptions(small_html: str) -> None:
    page = Page(small_html)
    assert page.tags["table"] == page.tags["caption"] > 5
    assert all('role="img" aria-label="' in svg for svg in re.findall(r"<svg viewBox[^>]*>", small_html))
    assert page.tags["h1"] == 1


def test_a_failover_map_has_a_row_for_each_partition(failover: ReportData) -> None:
    html = to_html(failover)
    assert "each row is a partition" in html
    assert all(f">partition {p}</text>" in html for p in range(4))
    assert "<title>partition 1: nobody, 12:00:40 to 12:01:00</title>" in html
    assert "<title>partition 2: A, 12:00:00 to 12:00:20</title>" in html


def test_a_long_name_breaks_after_dots_and_is_escaped() -> None:
    assert make_breakable("pulsar.key_<b>") == "pulsar.<wbr>key_<wbr>&lt;b&gt;"
    assert make_breakable("persistent://shop/v4.0") == "persistent://shop/<wbr>v4.0"


def test_what_is_in_backticks_is_code_and_stays_escaped() -> None:
    assert mark_code("Set `keys.<b>` in <i>") == "Set <code>keys.&lt;b&gt;</code> in &lt;i&gt;"
    assert mark_code("of pulsar.key_shared.consistent_hash") == (
        "of pulsar.<wbr>key_<wbr>shared.<wbr>consistent_<wbr>hash"
    )


def headings(page: str) -> list[str]:
    return re.findall(r"<section id=\"(\w+)\">", page)


def test_an_audit_begins_with_what_happened(small_html: str) -> None:
    assert headings(small_html)[:4] == ["incidents", "timeline", "findings", "load"]
    assert headings(small_html)[-4:] == ["rules", "input", "facts", "limits"]


def test_an_audit_without_incidents_begins_with_what_was_judged(small: ReportData) -> None:
    page = to_html(replace(small, verdict="valid", incidents=()))
    assert headings(page)[:3] == ["facts", "timeline", "findings"]
    assert (
        "could judge &gt;99.9% of the rows: 120,000 messages and 121,400 deliveries to 3 consumers in 5 epochs" in page
    )
    assert "1 found nothing</p>" in page
    assert "stuck after 30 s</p>" in page


def test_five_incidents_are_open_and_the_others_folded(small_html: str) -> None:
    section = small_html[small_html.index('<section id="incidents">') :]
    section = section[: section.index("</section>")]
    cards = re.findall(r'id="incident-(\d)" data-start="(\d+)" data-end="(\d+)"', section)
    assert [int(number) for number, *_ in cards] == [1, 2, 3, 4, 5, 6, 7]
    assert (int(cards[0][1]), int(cards[0][2])) == (us(6), us(54))
    open_part, folded = section.split("<details>")
    assert open_part.count("<article") == 5
    assert "<summary>2 more incidents, less severe</summary>" in folded


def test_an_incident_has_its_evidence_its_next_step_and_the_page_of_its_rule(small_html: str) -> None:
    card = small_html[small_html.index("<article") : small_html.index("</article>")]
    text = " ".join(re.sub("<(?!wbr)[^>]*>", " ", card).replace("<wbr>", "").split())
    assert "12:00:06 to 12:00:54 UTC, 48 s 1,204 findings c2 , c3 , c1" in text
    assert "Evidence 5:117 is the worst of 1,204 findings 5:117 → c1 at 12:00:05.000, never acked" in text
    assert "Next Upgrade the brokers to 4.0.3, or let consumers finish before they close. About KEY_TWO_OWNERS" in text
    assert "Looks like apache/pulsar#23870 : Key_Shared delivers out of order." in text
    assert f'href="{RULES_PAGE}#key_two_owners"' in card


def test_rules_without_findings_are_folded_with_their_reasons(small_html: str) -> None:
    section = small_html[small_html.index('<section id="rules">') :]
    open_part, clean, unfit = section.split("<details>")[:3]
    assert open_part.count('<tr><th scope="row">') == 4
    assert "1 rule found nothing</summary>" in clean
    assert "1 rule does not apply</summary>" in unfit
    assert "<dd>Key_Shared promises order per key only</dd>" in unfit


@pytest.mark.parametrize("code", [code.name for code in Code])
def test_each_rule_has_its_place_on_the_documentation_page(code: str) -> None:
    place = format_rule_url(code).removeprefix(RULES_PAGE)
    assert f"]({place})" in (REPOSITORY / "docs/reference/rules.md").read_text()
    documentation = re.search(r'^Documentation = "(.*)"$', (REPOSITORY / "pyproject.toml").read_text(), re.MULTILINE)
    assert documentation
    assert RULES_PAGE.startswith(documentation[1])


def test_a_what_if_begins_with_its_answer_and_has_no_verdict(dispatched: ReportData) -> None:
    page = to_html(dispatched)
    assert headings(page)[:3] == ["scenarios", "dispatch", "details"]
    header = page[page.index("<header>") : page.index("</header>")]
    assert "What-if: Nightly audit of orders</h1>" in header
    assert '<p class="choice">Use &#34;1,000 points&#34;</p>' in header
    for part, text in (("Why", "With &#34;as recorded&#34; 200 of 120,000"), ("Price", "It was not replayed, so ")):
        assert f"<dt>{part}</dt><dd>{text}" in header
    assert page[page.index("<title>") : page.index("</title>")] == "<title>What-if: Nightly audit of orders"


def test_a_what_if_without_a_recommendation_shows_its_headline(dispatched: ReportData) -> None:
    page = to_html(replace(dispatched, recommendation=None))
    assert f'<p class="choice">{escape(dispatched.headline)}</p>' in page


def test_figures_have_their_meaning_beside_them(small_html: str) -> None:
    for name in ("skew", "traffic moved", "slots moved", "worst window", "unacked"):
        assert f'title="{escape(METRICS[name])}"' in small_html
        assert f"<dt>{name}</dt><dd>{escape(METRICS[name])}</dd>" in small_html


def test_the_legend_of_a_map_of_shares_names_every_consumer(large_html: str) -> None:
    section = large_html[large_html.index('<section id="map">') :]
    legend = section[: section.index("</ul>")]
    assert [f"c{i}" for i in range(1, 11) if f"</i>c{i}</span>" not in legend] == []


def test_idle_consumers_and_unowned_messages_have_their_reason(small: ReportData) -> None:
    idle = replace(
        small.scenarios[0].per_consumer[0], consumer="z", messages=0, note="there were fewer partitions than consumers"
    )
    reported = replace(
        small.scenarios[0], per_consumer=(idle,), unowned=7, unowned_why="7 while no consumer was connected"
    )
    total = replace(small.totals[0], note="no key falls in its ranges")
    data = replace(small, scenarios=(reported,), totals=(total,))
    page, text = to_html(data), to_text(data)
    assert "<dt>Idle</dt><dd>z: there were fewer partitions than consumers</dd>" in page
    assert "<dt>Without an owner</dt><dd>7 while no consumer was connected</dd>" in page
    assert "idle: no key falls in its ranges" in page
    assert (
        "idle: z, there were fewer partitions than consumers; without an owner: 7 while no consumer was connected"
        in " ".join(text.split())
    )
    assert "idle: c1, no key falls in its ranges" in text
