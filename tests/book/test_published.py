"""The published numbers: defaults, kept tolerances, and every difference named."""

import pytest
from stub import claim

from ctlib.book.claims import Claim, Record
from ctlib.book.published import differences, publish, read_published, write_published

CLAIMS = {"first": Claim(**claim("first", "01-one"))}


def published(key: str, value, old=None) -> dict:
    return publish([Record("01-one", 3, key, value)], CLAIMS, {"01-one": {key: old}} if old else {})["01-one"][key]


@pytest.mark.parametrize(
    ("key", "value", "entry"),
    [
        ("first.measured", 3e-16, {"value": 3e-16, "absolute": 1e-14}),
        ("first.broken", 0.5, {"value": 0.5, "relative": 0.01}),
        ("size", 64, {"value": 64, "relative": 1e-6}),
        ("gap", 2e-7, {"value": 2e-7, "factor": 10}),
        ("same", 0.0, {"value": 0.0, "relative": 1e-6}),
        ("dtype", "float64", {"value": "float64"}),
    ],
)
def test_a_new_key_gets_a_default(key, value, entry):
    assert published(key, value) == entry


def test_a_tolerance_in_the_file_is_kept():
    assert published("seconds", 3.0, {"value": 2.0, "factor": 5}) == {"value": 3.0, "factor": 5}


@pytest.mark.parametrize(
    ("entry", "inside", "outside"),
    [
        ({"value": 2.0, "absolute": 0.5}, 2.5, 2.6),
        ({"value": 2.0, "relative": 0.5}, 1.0, 0.9),
        ({"value": 2.0, "factor": 5}, 10.0, 10.1),
        ({"value": 2.0, "factor": 5}, 0.4, -2.0),
        ({"value": 0.0, "relative": 0.5}, 0.0, 1e-300),
        ({"value": "a"}, "a", "b"),
        ({"value": 2.0, "relative": 0.5}, 2, "2.0"),
    ],
)
def test_a_tolerance_is_its_own(entry, inside, outside):
    assert differences([Record("01-one", 3, "key", inside)], {"01-one": {"key": entry}}, "01-one") == []
    (problem,) = differences([Record("01-one", 3, "key", outside)], {"01-one": {"key": entry}}, "01-one")
    assert problem.startswith(f"01-one: key = {outside!r}, but published is")


def test_missing_keys_are_named_on_both_sides():
    problems = differences([Record("01-one", 3, "new", 1)], {"01-one": {"old": {"value": 1}}}, "01-one")
    assert [problem.split()[1] for problem in problems] == ["old", "new"]


def test_what_is_written_is_read_back(tmp_path):
    entries = {"01-one": {"gap": {"value": 2e-7, "factor": 10}, "word": {"value": "ε"}}, "02-two": {"n": {"value": 1}}}
    write_published(tmp_path / "published.json", entries)
    assert read_published(tmp_path / "published.json") == entries


def test_a_word_may_have_alternatives():
    published = {"01-one": {"bits": {"value": "all", "or": ["nearly all"]}}}
    assert differences([Record("01-one", 3, "bits", "nearly all")], published, "01-one") == []
    assert differences([Record("01-one", 3, "bits", "none")], published, "01-one") != []
    assert publish([Record("01-one", 3, "bits", "nearly all")], {}, published)["01-one"]["bits"]["or"] == ["nearly all"]
