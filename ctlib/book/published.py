"""The numbers the book prints, as last published, and how far a new run may lie from each of them.

`data/published.json` maps chapter → key → entry. An entry is a value with one tolerance:

    {"value": 0.25, "relative": 1e-06}     |new - value| <= relative * |value|
    {"value": 3e-16, "absolute": 1e-14}    |new - value| <= absolute
    {"value": 2e-07, "factor": 10}         value / factor <= new <= value * factor, for the size of a rounding error
    {"value": "yes", "or": ["no"]}         the same word, or one of those; the same word only, without "or"

Values are rewritten by `python -m ctlib.book publish`; a tolerance that stands in the file is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ctlib.book.claims import Claim, Record

ROUNDING = 1e-5  # a smaller number is taken for a rounding error, of which only the size is published
TOLERANCES = ("relative", "absolute", "factor", "or")

Published = dict[str, dict[str, dict[str, Any]]]


def read_published(path: Path) -> Published:
    """The stored numbers; none if there is no file yet."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def write_published(path: Path, published: Published) -> None:
    """Store the numbers, one entry a line, so that a change is one line of a diff."""
    chapters = []
    for chapter, entries in published.items():
        lines = [f"    {json.dumps(key)}: {json.dumps(entry, ensure_ascii=False)}" for key, entry in entries.items()]
        chapters.append(f"  {json.dumps(chapter)}: {{\n" + ",\n".join(lines) + "\n  }")
    path.write_text("{\n" + ",\n".join(chapters) + "\n}\n", encoding="utf-8")


def publish(records: Iterable[Record], claims: dict[str, Claim], old: Published) -> Published:
    """The entries for a new run: its values, the tolerances of `old`, and default tolerances for new keys."""
    new: Published = {}
    for record in records:
        kept = old.get(record.chapter, {}).get(record.key, {})
        tolerance = {name: kept[name] for name in TOLERANCES if name in kept} or default_tolerance(record, claims)
        new.setdefault(record.chapter, {})[record.key] = {"value": record.value, **tolerance}
    return new


def default_tolerance(record: Record, claims: dict[str, Claim]) -> dict[str, float]:
    """How far a number may move when nobody has said: a claim within its bound, a rounding error by its size."""
    name, _, part = record.key.rpartition(".")
    if isinstance(record.value, str):
        return {}
    if part == "measured" and name in claims:
        return {"absolute": claims[name].bound}
    if 0 < abs(record.value) < ROUNDING:
        return {"factor": 10}
    if part == "broken" and name in claims:
        return {"relative": 0.01}
    return {"relative": 1e-6}


def differences(records: Iterable[Record], published: Published, chapter: str) -> list[str]:
    """Everything in which a chapter's new run departs from what was published, one line each."""
    new = {record.key: record.value for record in records if record.chapter == chapter}
    old = published.get(chapter, {})
    problems = [f"{chapter}: {key} was published, but the run does not record it" for key in old if key not in new]
    for key, value in new.items():
        if key not in old:
            problems.append(f"{chapter}: {key} = {value!r} is not in data/published.json (make publish)")
        elif not _close(value, old[key]):
            problems.append(f"{chapter}: {key} = {value!r}, but published is {old[key]}")
    return problems


def _close(value: float | int | str, entry: dict[str, Any]) -> bool:
    old = entry["value"]
    if isinstance(value, str) or isinstance(old, str):
        return value == old or value in entry.get("or", [])
    if "absolute" in entry:
        return abs(value - old) <= entry["absolute"]
    if "factor" in entry:
        return abs(old) / entry["factor"] <= abs(value) <= abs(old) * entry["factor"] and value * old >= 0
    return abs(value - old) <= entry["relative"] * abs(old)
