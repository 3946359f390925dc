"""The registry of rules, and what each policy says of them.

``RuleStatus`` decides what a finding does to the verdict: *promised* makes a run invalid, *allowed* is shown and does
not fail, *not applicable* is not looked for. A finding may also be excused one by one (a dispatch inside a close, say);
it is then shown as allowed with the reason.
"""

from __future__ import annotations

from typing import Final

from subreplay.audit.codes import Code, Exemption, Rule, kind_of
from subreplay.audit.needs import Need
from subreplay.audit.rules import (
    assignments,
    commits,
    dead_letters,
    flow,
    holding,
    liveness,
    order,
    ownership,
    partitions,
    publication,
    ranges,
    redelivery,
    undelivered,
)
from subreplay.audit.terms import Terms
from subreplay.hashing.profiles import KEYLESS
from subreplay.rows.model.rows import RuleStatus
from subreplay.semantics.policies.base import Policy

__all__ = ["BY_ROW", "RULES", "Code", "Exemption", "Rule", "find_rule_status", "find_rule_statuses", "missing"]

_FAMILIES: Final = (
    ownership, order, holding, redelivery, undelivered, flow, publication, partitions, ranges, dead_letters,
    commits, assignments, liveness,
)  # fmt: skip
RULES: Final[dict[Code, Rule]] = {
    rule.code: rule for rule in sorted((r for family in _FAMILIES for r in family.RULES), key=lambda r: r.code)
}
BY_ROW: Final = {code.bit: rule.by_row for code, rule in RULES.items() if rule.by_row}
"""The rules that one row alone decides, by their bits."""


def find_rule_status(code: Code, policy: Policy) -> RuleStatus:
    """What ``policy`` says of ``code``, where nothing is missing to look for it.

    Shared promises no order; one active consumer (Exclusive, Failover) serves its partition in order, whatever the
    keys, and a switch delivers outstanding messages again (row P-FO-6); Key_Shared promises order and one owner a key
    unless it allows out-of-order delivery (row P-KS-ORD-3). A slot without an owner is legal (row P-KS-ST-2): its
    messages wait; a reader of some slots skips those of the others (row P-KR-1).
    """
    rule, kind = RULES[code], kind_of(policy)
    if kind not in rule.promised | rule.allowed or (rule.only and policy.name not in rule.only):
        return RuleStatus.NOT_APPLICABLE
    return rule.profiles.get(policy.profile, RuleStatus.PROMISED if kind in rule.promised else RuleStatus.ALLOWED)


_NOTHING_TOLD: Final = Terms()


def find_rule_statuses(
    policy: Policy, terms: Terms = _NOTHING_TOLD, lacking: frozenset[Need] = frozenset()
) -> dict[Code, RuleStatus]:
    """Every rule's standing under ``policy``; where ``terms`` or the data (``lacking``) do not have what it needs, the
    rule could not look.

    A topic that is declared not to deduplicate may hold a message twice. Where nothing tells what a Kafka group's
    consumers did with their partitions, they may have sought back.
    """
    found = {code: find_rule_status(code, policy) for code in Code}
    if terms.deduplication is False:
        found[Code.DUP_PUBLISH] = RuleStatus.ALLOWED
    if kind_of(policy) == "group" and Need.CALLBACKS in lacking:
        found[Code.DUP_OUTSTANDING] = RuleStatus.ALLOWED
    for code, needs in missing(policy, terms, lacking).items():
        hole = any(need.essential for need in needs)
        found[code] = RuleStatus.UNDECIDED if hole else RuleStatus.NOT_APPLICABLE
    return found


def missing(policy: Policy, terms: Terms, lacking: frozenset[Need]) -> dict[Code, frozenset[Need]]:
    """What the rules that ``policy`` would look at need and do not have, by rule."""
    lacking |= terms.lacking
    if not (policy.routing == "slot" and KEYLESS[policy.profile].per_message):
        lacking -= {Need.STICKY_KEYS}
    needs = {
        code: _needs(rule) & lacking for code, rule in RULES.items() if find_rule_status(code, policy).is_evaluated
    }
    if kind_of(policy) == "group" and Need.COMMITS not in lacking and Code.STUCK in needs:
        needs[Code.STUCK] -= {Need.ACKNOWLEDGEMENTS}  # commits tell what its members have finished
    if kind_of(policy) == "group" and Code.STARVED in needs:  # whoever fetches nothing for long holds nothing back
        needs[Code.STARVED] -= {Need.ACKNOWLEDGEMENTS, Need.DISPATCH_TIMES}
    return {code: needed for code, needed in needs.items() if needed}


def _needs(rule: Rule) -> frozenset[Need]:
    """Who needs the membership needs it as it was, and who needs deliveries, some of them."""
    more = {Need.EXACT_MEMBERSHIP} if Need.MEMBERSHIP in rule.needs else set()
    more |= {Need.SOME_DELIVERY} if Need.DELIVERIES in rule.needs else set()
    return rule.needs | more | (set() if rule.code in _WITHOUT_MESSAGES else {Need.SOME_MESSAGE})


_WITHOUT_MESSAGES: Final = frozenset(
    {Code.NOT_CONNECTED, Code.NEVER_JOINED, Code.UNKNOWN_MESSAGE, Code.UNACKED, Code.STICKY_GAP, Code.STICKY_OVERLAP}
    | {Code.COMMIT_NOT_OWNER, Code.COMMIT_BACK, Code.TWO_OWNERS, Code.TOLD_DIFFERS, Code.OWNER_DIFFERS}
)
