"""Collect the rules, and decide what each policy promises.

``RuleStatus`` decides the effect of a finding on the verdict. *promised*: it makes a run invalid. *allowed*: it is
shown and does not fail. *not applicable*: the rule is not evaluated. A single finding may also be exempt (a dispatch
during a close, for example); it is then shown as allowed, with the reason.
"""

from __future__ import annotations

from typing import Final

from subreplay.audit.codes import Code, Exemption, Rule, classify_policy
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
    shared_records,
    undelivered,
)
from subreplay.audit.terms import Terms
from subreplay.hashing.profiles import KEYLESS
from subreplay.rows.model.rows import RuleStatus
from subreplay.semantics.policies.base import Policy

__all__ = [
    "BY_ROW",
    "RULES",
    "Code",
    "Exemption",
    "Rule",
    "find_missing_needs",
    "find_rule_status",
    "find_rule_statuses",
]

_FAMILIES: Final = (
    ownership, order, holding, redelivery, undelivered, flow, publication, partitions, ranges, dead_letters,
    commits, assignments, liveness, shared_records,
)  # fmt: skip
RULES: Final[dict[Code, Rule]] = {
    rule.code: rule for rule in sorted((r for family in _FAMILIES for r in family.RULES), key=lambda r: r.code)
}
BY_ROW: Final = {code.bit: rule.by_row for code, rule in RULES.items() if rule.by_row}
"""The rules that need one row only, by their bits."""


def find_rule_status(code: Code, policy: Policy) -> RuleStatus:
    """Return the status of ``code`` under ``policy``, if the data contain everything that the rule needs.

    Shared promises no order. One active consumer (Exclusive, Failover) serves its partition in order, whatever the
    keys, and a switch redelivers outstanding messages (row P-FO-6). Key_Shared promises order and one owner for each
    key unless it allows out-of-order delivery (row P-KS-ORD-3). A slot without an owner is legal (row P-KS-ST-2), and
    its messages wait. A reader of some slots skips the others (row P-KR-1).
    """
    rule, kind = RULES[code], classify_policy(policy)
    if kind not in rule.promised | rule.allowed or (rule.only and policy.name not in rule.only):
        return RuleStatus.NOT_APPLICABLE
    return rule.profiles.get(policy.profile, RuleStatus.PROMISED if kind in rule.promised else RuleStatus.ALLOWED)


_DEFAULT_TERMS: Final = Terms()


def find_rule_statuses(
    policy: Policy, terms: Terms = _DEFAULT_TERMS, lacking: frozenset[Need] = frozenset()
) -> dict[Code, RuleStatus]:
    """Return the status of every rule under ``policy``. A rule is not evaluated if ``terms`` or the data (``lacking``)
    miss what it needs.

    A topic without deduplication may contain a message twice. If the callbacks of a Kafka group are not recorded, its
    consumers may have sought back.
    """
    found = {code: find_rule_status(code, policy) for code in Code}
    if terms.deduplication is False:
        found[Code.DUP_PUBLISH] = RuleStatus.ALLOWED
    if classify_policy(policy) == "group" and Need.CALLBACKS in lacking:
        found[Code.DUP_OUTSTANDING] = RuleStatus.ALLOWED
    for code, needs in find_missing_needs(policy, terms, lacking).items():
        hole = any(need.essential for need in needs)
        found[code] = RuleStatus.UNDECIDED if hole else RuleStatus.NOT_APPLICABLE
    return found


def find_missing_needs(policy: Policy, terms: Terms, lacking: frozenset[Need]) -> dict[Code, frozenset[Need]]:
    """Return, by rule, what the rules of ``policy`` need and do not have."""
    lacking |= terms.lacking
    if not (policy.routing == "slot" and KEYLESS[policy.profile].per_message):
        lacking -= {Need.STICKY_KEYS}
    needs = {
        code: _list_needs(rule) & lacking for code, rule in RULES.items() if find_rule_status(code, policy).is_evaluated
    }
    if classify_policy(policy) == "group" and Need.COMMITS not in lacking and Code.STUCK in needs:
        needs[Code.STUCK] -= {Need.ACKNOWLEDGEMENTS}  # commits show what its members have finished
    if (
        classify_policy(policy) == "group" and Code.STARVED in needs
    ):  # whoever fetches nothing for long holds nothing back
        needs[Code.STARVED] -= {Need.ACKNOWLEDGEMENTS, Need.DISPATCH_TIMES}
    return {code: needed for code, needed in needs.items() if needed}


def _list_needs(rule: Rule) -> frozenset[Need]:
    """Return what a rule needs. A rule that needs the membership needs it as it was; one that needs deliveries needs
    some of them."""
    more = {Need.EXACT_MEMBERSHIP} if Need.MEMBERSHIP in rule.needs else set()
    more |= {Need.SOME_DELIVERY} if Need.DELIVERIES in rule.needs else set()
    return rule.needs | more | (set() if rule.code in _WITHOUT_MESSAGES else {Need.SOME_MESSAGE})


_WITHOUT_MESSAGES: Final = frozenset(
    {Code.NOT_CONNECTED, Code.NEVER_JOINED, Code.UNKNOWN_MESSAGE, Code.UNACKED, Code.STICKY_GAP, Code.STICKY_OVERLAP}
    | {Code.COMMIT_NOT_OWNER, Code.COMMIT_BACK, Code.TWO_OWNERS, Code.TOLD_DIFFERS, Code.OWNER_DIFFERS}
)
