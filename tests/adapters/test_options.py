"""Options of adapters: each takes some of them, and says so of the others."""

from pathlib import Path

import pytest

from subreplay.adapters import ADAPTERS, Options
from subreplay.adapters.base import NO_OPTIONS, OPTION_NAMES, check_names_exist
from subreplay.errors import ConfigError, InputError
from tests.support.source_reading import read_at_once

TOLD = {
    "topic": "t", "subscription": "s", "coordinator_log": "/logs", "statistics": "/polls", "time_zone": "UTC",
    "times": "name", "sampled": "true",
}  # fmt: skip


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("option", OPTION_NAMES)
def test_an_option_is_taken_or_the_error_names_those_that_are(name, option, tmp_path):
    adapter = ADAPTERS[name]
    options = Options.parse(**{option: TOLD[option]})
    with pytest.raises((ConfigError, InputError)) as error:  # of an empty folder, at the latest
        read_at_once(name, tmp_path, options)
    if option in adapter.accepted_options:
        assert isinstance(error.value, InputError)
    else:
        assert isinstance(error.value, ConfigError)
        assert f"option '{option}' has no effect: {adapter.option_text}" in str(error.value)


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_empty_folder_and_no_folder_are_errors_that_name_them(name, tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InputError, match=path.name):
            read_at_once(name, path)


def test_every_adapter_is_registered_under_its_own_name():
    assert all(adapter.name == name for name, adapter in ADAPTERS.items())
    assert {option for adapter in ADAPTERS.values() for option in adapter.accepted_options} == set(OPTION_NAMES)


def test_options_are_made_of_text():
    assert Options.parse(topic=None) == NO_OPTIONS
    options = Options.parse(**TOLD)
    assert (options.coordinator_log, options.sampled, options.times) == (Path("/logs"), True, "name")
    assert options.present_names == OPTION_NAMES
    assert Options.parse(sampled="False").sampled is False


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sampled": "often"}, "option 'sampled' is 'often', which is neither true nor false"),
        ({"topics": "t"}, "option 'topics' does not exist. The options are topic, subscription"),
    ],
)
def test_a_wrong_option_says_what_there_is(given, message):
    with pytest.raises(ConfigError) as error:
        Options.parse(**given)
    assert message in str(error.value)


def test_a_requested_name_is_looked_up_among_the_known_names():
    check_names_exist(Path("p"), Options(topic="t"), {"s"}, {"t"})
    check_names_exist(Path("p"), Options(topic="t"), {"s"}, set())
    with pytest.raises(InputError, match="p: the source contains no row of subscription 'x'; it has subscription 's'"):
        check_names_exist(Path("p"), Options(subscription="x"), {"s"}, {"t"})
