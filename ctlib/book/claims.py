"""The ledger: what the book claims, and the two calls with which a chapter answers for it.

A claim is a deviation that must not exceed a bound. Beside it the chapter measures a *broken twin*, a variant that must
exceed the same bound: a check that nothing can fail proves nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import lru_cache
from html import escape
from pathlib import Path

import yaml
from IPython.display import display
from myst_nb import glue

from ctlib.book.places import data_file

KINDS = ("proved", "exact", "order", "inequality", "empirical", "disputed")

#: The sections of the paper (version 2, numbers as reported) under which the page of claims files them, in its order.
SECTIONS = {
    "3": "The continuous equation, §3",
    "3.1": "Controls and training, §3.1",
    "3.3": "The substeps of a time step, §3.3",
    "3.3.2": "Layer normalisation, §3.3.2 and Appendix B",
    "3.3.3": "The rectifier, §3.3.3",
    "3.4": "The equation on a grid, §3.4",
    "4.1": "Recovery of the encoder, §4.1",
    "5": "Multi-head attention, §5",
    "6": "Vision, §6",
    "A": "Operator splitting, Appendix A",
    "new": "Beyond the paper",
}


class LedgerError(ValueError):
    """data/claims.yml itself is not in order."""


class ClaimError(AssertionError):
    """A claim that does not hold, or a broken twin that does."""


@dataclass(frozen=True)
class Claim:
    """One entry of data/claims.yml; the fields are explained at the top of that file."""

    id: str
    statement: str
    where: str
    section: str
    kind: str
    chapter: str
    bound: float
    why: str
    broken: str

    def violations(self, measured: float, broken: float) -> list[str]:
        """What is wrong with a pair of measurements, in words; nothing if the claim holds and its twin fails."""
        problems = []
        if not math.isfinite(measured):
            problems.append(f"measured is {measured}, not a finite number")
        elif measured > self.bound:
            problems.append(f"measured {measured:.3e} exceeds the bound {self.bound:.1e} ({self.why})")
        if not math.isfinite(broken):
            problems.append(f"the broken twin gives {broken}, not a finite number")
        elif broken <= self.bound:
            problems.append(
                f"the broken twin ({self.broken}) gives {broken:.3e}, within the bound {self.bound:.1e}: "
                "the check cannot tell right from wrong"
            )
        return problems


def parse_ledger(text: str) -> tuple[dict[str, Claim], list[str]]:
    """The well-formed claims of a ledger by id, and a list of everything wrong with the others."""
    claims: dict[str, Claim] = {}
    problems: list[str] = []
    names = [field.name for field in fields(Claim)]
    entries = yaml.safe_load(text) or []
    if not isinstance(entries, list):
        return {}, ["the ledger is not a list of claims"]
    for place, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            problems.append(f"entry {place} is not a claim but {entry!r}")
            continue
        name = entry.get("id", f"entry {place}")
        faults = [f"field {key!r} is missing or empty" for key in names if entry.get(key) in (None, "")]
        faults += [f"unknown field {key!r}" for key in entry if key not in names]
        faults += [f"{key} is not text" for key in names if key != "bound" and not isinstance(entry.get(key, ""), str)]
        if not faults:
            faults = _faults(entry)
        if name in claims:
            faults.append("this id occurs twice")
        if faults:
            problems.extend(f"claim {name}: {fault}" for fault in faults)
        else:
            claims[name] = Claim(**{**entry, "bound": float(entry["bound"])})
    return claims, problems


def _faults(entry: dict) -> list[str]:
    """What is wrong with the values of a complete entry."""
    faults = []
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", entry["id"]):
        faults.append("the id is not lower-case words joined by hyphens, the first beginning with a letter")
    if entry["kind"] not in KINDS:
        faults.append(f"kind {entry['kind']!r} is none of {', '.join(KINDS)}")
    if entry["section"] not in SECTIONS:
        faults.append(f"section {entry['section']!r} is none of {', '.join(SECTIONS)}")
    bound = entry["bound"]
    if isinstance(bound, bool) or not isinstance(bound, int | float):
        faults.append(f"bound {bound!r} is not a number (YAML needs the dot: 1.0e-14)")
    elif not (math.isfinite(bound) and bound >= 0):
        faults.append(f"bound {bound} is not a finite number >= 0")
    return faults


def read_ledger(path: Path) -> dict[str, Claim]:
    """The claims of a ledger by id; a ledger that is not in order raises `LedgerError`."""
    claims, problems = parse_ledger(Path(path).read_text(encoding="utf-8"))
    if problems:
        raise LedgerError("\n".join([f"{path} is not in order:", *problems]))
    return claims


@lru_cache(maxsize=4)
def _ledger(path: Path, _modified: int) -> dict[str, Claim]:
    return read_ledger(path)


def check(claim_id: str, *, measured: float, broken: float) -> None:
    """Record a claim's measurement and that of its broken twin, show both, and raise `ClaimError` unless all is well.

    `measured` and `broken` are numbers (or tensors of one element): the deviation, and the deviation of the twin.
    """
    path = data_file("claims.yml")
    claims = _ledger(path, path.stat().st_mtime_ns)
    if claim_id not in claims:
        raise ClaimError(f"{claim_id!r} is not in data/claims.yml; write the claim down before checking it")
    claim, measured, broken = claims[claim_id], float(measured), float(broken)
    glue(f"{claim_id}.measured", measured, display=False)
    glue(f"{claim_id}.broken", broken, display=False)
    problems = claim.violations(measured, broken)
    if problems:
        raise ClaimError(f"{claim_id}: {'; '.join(problems)}")
    display({"text/html": _line_html(claim, measured, broken), "text/plain": _line(claim, measured, broken)}, raw=True)


def number(key: str, value: float | int | str) -> None:
    """Record a number (or a word) for the prose, where {glue:text}`key:.1e` prints it; nothing is shown."""
    if not isinstance(value, int | str):
        value = float(value)
        if not math.isfinite(value):
            raise ValueError(f"number {key!r} is {value}; only finite numbers can be printed")
    glue(key, value, display=False)


def _line(claim: Claim, measured: float, broken: float) -> str:
    return (
        f"{claim.id} · measured {measured:.1e} · bound {claim.bound:.1e} ({claim.why}) · "
        f"broken twin {broken:.1e} ({claim.broken}) ✓"
    )


def _line_html(claim: Claim, measured: float, broken: float) -> str:
    return (
        f'<p class="claim" id="check-{claim.id}">'
        f'<a class="claim-id" href="../claims.html#{claim.id}">{escape(claim.id)}</a> '
        f'<span class="claim-part">measured <b>{measured:.1e}</b></span> '
        f'<span class="claim-part">bound {claim.bound:.1e} <span class="claim-why">({escape(claim.why)})</span></span> '
        f'<span class="claim-part">broken twin <b>{broken:.1e}</b> '
        f'<span class="claim-why">({escape(claim.broken)})</span> <span class="claim-ok">✓</span></span></p>'
    )


@dataclass(frozen=True)
class Record:
    """One glued value of an executed chapter; cells are counted from 1, as they stand in the notebook."""

    chapter: str
    cell: int
    key: str
    value: float | int | str


def audit(records: Iterable[Record], claims: dict[str, Claim]) -> list[str]:
    """Everything wrong between what was measured and what is claimed, each named with chapter and cell."""
    problems: list[str] = []
    seen: dict[str, dict[str, Record]] = {}
    for record in records:
        name, dot, part = record.key.rpartition(".")
        if not dot or part not in ("measured", "broken"):
            continue
        place = f"{record.chapter}, cell {record.cell}: {record.key}"
        if name not in claims:
            problems.append(f"{place}: no such claim in data/claims.yml")
        elif part in seen.setdefault(name, {}):
            problems.append(f"{place}: recorded a second time; a claim has one check")
        elif not isinstance(record.value, int | float):
            problems.append(f"{place}: {record.value!r} is not a number")
        else:
            seen[name][part] = record
            if record.chapter != claims[name].chapter:
                problems.append(f"{place}: the ledger gives this claim to chapter {claims[name].chapter}")
    for name, claim in claims.items():
        parts = seen.get(name, {})
        missing = [part for part in ("measured", "broken") if part not in parts]
        if missing:
            problems.append(f"{claim.chapter}: claim {name} has no record of {' and '.join(missing)}")
            continue
        measured, broken = parts["measured"], parts["broken"]
        problems.extend(
            f"{measured.chapter}, cell {measured.cell}: claim {name}: {fault}"
            for fault in claim.violations(measured.value, broken.value)
        )
    return problems
