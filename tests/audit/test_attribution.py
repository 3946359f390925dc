"""Every finding says whose doing it is."""

from subreplay.audit.attribution import _PARTY_OF_CODE, find_party
from subreplay.audit.codes import Code, Exemption


def test_every_rule_names_a_party_of_its_own():
    assert set(_PARTY_OF_CODE) == set(Code)


def test_a_cursor_that_was_reset_is_the_operators_doing():
    assert find_party(Code.DUP_DELIVERY, Exemption.RESET) == "operator"


def test_what_a_kafka_consumer_does_not_receive_it_did_not_fetch():
    assert find_party(Code.STALLED) == "broker"
    assert find_party(Code.STALLED, of_group=True) == "consumer application"
    assert find_party(Code.PARTITION_ORDER, of_group=True) == "consumer application"
