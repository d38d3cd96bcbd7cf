"""What all tests share: one thread, examples that are the same on every run, and the book they belong to."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import settings

from ctlib.book.places import Book, find_root

torch.set_num_threads(1)
settings.register_profile("book", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("book")


@pytest.fixture(scope="session")
def book() -> Book:
    """The book in this checkout."""
    return Book(find_root())
