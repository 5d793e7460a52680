"""What tests of engines share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _poison(poisoned: None) -> None:
    """Runs overwrite dead memory."""
