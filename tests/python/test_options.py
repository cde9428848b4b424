"""Settings are checked where they are given, and say what is allowed."""

import pytest
from tensorlightning.options import Options


def refusal(**given) -> str:
    with pytest.raises(ValueError) as error:
        Options.make(**given)
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("period", 0, "from 1 on"),
        ("period", 2.5, "whole number"),
        ("beta", 0, "above 0"),
        ("beta", float("nan"), "above 0"),
        ("density", 1.5, "up to 1"),
        ("density", "much", "number"),
        ("reply_density", -0.1, "above 0"),
        ("bits", 3, "2, 4, 8, 16 or 32"),
        ("policy", "elastik", "one of elastic, local, dense, gradient, gradient-async"),
        ("when", "never", "one of period, adaptive"),
        ("patience", 0, "seconds above 0"),
        ("secret_file", "two\nlines", "one line"),
    ],
)
def test_a_value_that_is_not_allowed_is_named_with_what_is(name, value, allowed):
    said = refusal(**{name: value})
    assert said.startswith(f"{name}={value!r}: {name} must be ")
    assert allowed in said


def test_gossip_says_that_it_does_not_exist_yet():
    assert "does not exist yet" in refusal(policy="gossip")


def test_an_option_that_is_none_is_refused_with_those_that_are():
    with pytest.raises(TypeError, match=r"no option 'densty'.*density"):
        Options.make(densty=0.1)


def test_a_keyword_argument_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("TL_PERIOD", "7")
    monkeypatch.setenv("TL_POLICY", "local")
    chosen = Options.make(period=3)
    assert (chosen.period, chosen.policy) == (3, "local")


def test_a_bad_value_of_the_environment_is_named_as_such(monkeypatch):
    monkeypatch.setenv("TL_DENSITY", "2")
    assert refusal().startswith("TL_DENSITY=2: density must be")


def test_the_native_library_is_told_only_what_was_given():
    text = Options.make(period=3, density=0.5).native(job="a", policy="dense")
    assert text.splitlines() == [
        "period=3",
        "density=0.5",
        "policy=dense",
        "patience=60.0",
        "job=a",
    ]


def test_paths_may_have_blanks(tmp_path):
    text = Options.make(secret_file=tmp_path / "my secret").native()
    assert f"secret_file={tmp_path}/my secret" in text.splitlines()


def test_whoever_knows_an_aggregator_is_not_alone(monkeypatch):
    assert Options.make().alone
    assert not Options.make(aggregator="host:1").alone
    monkeypatch.setenv("TL_SIZE", "2")
    assert not Options.make().alone
