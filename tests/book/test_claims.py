"""The rules of the ledger: each of them catches what it is there for."""

import math
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from stub import claim

from ctlib.book.claims import (
    KINDS,
    Claim,
    ClaimError,
    LedgerError,
    Record,
    audit,
    check,
    number,
    parse_ledger,
    read_ledger,
)

GOOD = Claim(**claim("first", "01-one"))
numbers = st.floats(allow_nan=True, allow_infinity=True)


def records(measured: float = 0.0, broken: float = 1.0, name: str = "first", chapter: str = "01-one") -> list[Record]:
    return [Record(chapter, 5, f"{name}.measured", measured), Record(chapter, 5, f"{name}.broken", broken)]


@given(numbers, numbers)
def test_a_claim_passes_exactly_when_it_holds_and_its_twin_fails(measured, broken):
    good = math.isfinite(measured) and measured <= GOOD.bound and math.isfinite(broken) and broken > GOOD.bound
    assert (audit(records(measured, broken), {"first": GOOD}) == []) is good


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (records(measured=1.0), "01-one, cell 5: claim first: measured 1.000e+00 exceeds the bound 1.0e-14"),
        (
            records(broken=0.0),
            "01-one, cell 5: claim first: the broken twin (adds a thousandth) gives 0.000e+00, within",
        ),
        (records(measured=math.nan), "measured is nan"),
        (records(broken=math.inf), "the broken twin gives inf"),
        (records()[:1], "01-one: claim first has no record of broken"),
        ([], "01-one: claim first has no record of measured and broken"),
        (records() + records(name="other"), "01-one, cell 5: other.measured: no such claim"),
        (records(chapter="02-two"), "02-two, cell 5: first.measured: the ledger gives this claim to chapter 01-one"),
        (records() + records(), "recorded a second time"),
        ([*records()[:1], Record("01-one", 5, "first.broken", "much")], "'much' is not a number"),
    ],
)
def test_audit_names_chapter_cell_and_reason(found, message):
    problems = audit(found, {"first": GOOD})
    assert any(message in problem for problem in problems), problems


def test_other_numbers_need_no_claim():
    assert audit([*records(), Record("01-one", 7, "time.per.layer", 3.0)], {"first": GOOD}) == []


@pytest.mark.parametrize("field", list(claim("first", "01-one")))
def test_every_field_is_needed(field):
    entry = claim("first", "01-one")
    del entry[field]
    assert any(f"field {field!r} is missing" in problem for problem in parse_ledger(yaml.safe_dump([entry]))[1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "guess"}, "kind 'guess' is none of"),
        ({"section": "9.9"}, "section '9.9' is none of"),
        ({"bound": "1e-14"}, "YAML needs the dot"),
        ({"bound": True}, "is not a number"),
        ({"bound": -1.0}, "not a finite number >= 0"),
        ({"bound": math.inf}, "not a finite number >= 0"),
        ({"id": "Not an id"}, "not lower-case words"),
        ({"remark": "x"}, "unknown field 'remark'"),
        ({"why": 3}, "why is not text"),
    ],
)
def test_a_faulty_entry_is_named(changes, message):
    _, problems = parse_ledger(yaml.safe_dump([claim("first", "01-one", **changes)]))
    assert any(message in problem for problem in problems), problems


def test_an_id_occurs_once():
    _, problems = parse_ledger(yaml.safe_dump([claim("first", "01-one"), claim("first", "02-two")]))
    assert problems == ["claim first: this id occurs twice"]


@pytest.mark.parametrize("text", ["a: 1", "- just words"])
def test_a_ledger_is_a_list_of_claims(text):
    assert parse_ledger(text)[1]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_accepted(kind):
    assert parse_ledger(yaml.safe_dump([claim("first", "01-one", kind=kind)]))[1] == []


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one claim, as the working directory."""
    for name in ("_config.yml", "_toc.yml"):
        (tmp_path / name).touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "data/claims.yml").write_text(yaml.safe_dump([claim("first", "01-one")]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data/claims.yml"


@pytest.mark.usefixtures("ledger")
def test_check_accepts_a_claim_with_a_failing_twin(capsys):
    check("first", measured=1e-15, broken=1e-3)
    assert "first · measured 1.0e-15 · bound 1.0e-14 (two roundings) · broken twin 1.0e-03" in capsys.readouterr().out


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize(
    ("name", "measured", "broken", "message"),
    [
        ("first", 1.0, 2.0, "first: measured 1.000e.00 exceeds the bound 1.0e-14 .two roundings."),
        ("first", 0.0, 0.0, "first: the broken twin .adds a thousandth. gives 0.000e.00, within"),
        ("second", 0.0, 1.0, "'second' is not in data/claims.yml"),
    ],
)
def test_check_raises(name, measured, broken, message):
    with pytest.raises(ClaimError, match=message):
        check(name, measured=measured, broken=broken)


def test_check_refuses_a_ledger_out_of_order(ledger):
    ledger.write_text(yaml.safe_dump([claim("first", "01-one", kind="guess")]), encoding="utf-8")
    with pytest.raises(LedgerError, match="kind 'guess'"):
        check("first", measured=0.0, broken=1.0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_for_the_prose_is_finite(value):
    with pytest.raises(ValueError, match="only finite numbers"):
        number("key", value)


def test_the_ledger_of_this_book_is_in_order(book):
    claims = read_ledger(book.ledger)
    assert {claim.chapter for claim in claims.values()} <= {chapter.stem for chapter in book.chapters()}
