"""Figures that a slider steps through: every frame is there, says what it shows, and needs nothing from elsewhere."""

import matplotlib.pyplot as plt
import pytest
from bs4 import BeautifulSoup

from ctlib.book import draw


def pictures(count):
    return [plt.subplots(figsize=(1, 1))[0] for _ in range(count)]


def test_frames_carry_their_captions_as_alternative_text():
    told = ["first", "a < b & c", "last"]
    page = BeautifulSoup(draw.frames(pictures(3), "number of tokens", told).data, "html.parser")
    assert [image["alt"] for image in page.find_all("img")] == told
    assert [caption.text for caption in page.find_all("figcaption")] == told
    assert all(image["src"].startswith("data:image/svg+xml,") for image in page.find_all("img"))


def test_the_slider_reaches_every_frame_and_is_named():
    page = BeautifulSoup(draw.frames(pictures(4), "number of tokens", list("abcd")).data, "html.parser")
    slider = page.find("input")
    assert (slider["type"], slider["min"], slider["max"]) == ("range", "0", "3")
    assert slider.find_parent("label").text.strip() == "number of tokens"


def test_a_caption_for_every_frame():
    with pytest.raises(ValueError, match="shorter"):
        draw.frames(pictures(2), "n", ["only one"])
