# SPDX-License-Identifier: MIT
"""A person names one of several things by its uuid or name, or by how either begins."""

from __future__ import annotations

import pytest

from agent.core import choice

UUIDS = {
    "341a66fe9750f5ee9b016bb2a79386a2": "Larch HPC",
    "341b66fe9750f5ee9b016bb2a79386a2": "Larch",
    "9f0266fe9750f5ee9b016bb2a79386a2": "341a",
}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("341A66FE-9750-F5EE-9B01-6BB2A79386A2", ["Larch HPC"]),
        ("larch", ["Larch"]),
        ("Larch h", ["Larch HPC"]),
        ("lar", ["Larch HPC", "Larch"]),
        ("341a", ["341a"]),
        ("341a66fe-97", ["Larch HPC"]),
        ("341", ["Larch HPC", "Larch", "341a"]),
        ("arch", []),
        ("", []),
        ("-", []),
    ],
)
def test_what_is_meant(wanted: str, found: list[str]) -> None:
    """A whole name comes before the beginning of another one."""
    assert [UUIDS[each] for each in choice.meant(wanted, UUIDS, str, UUIDS.__getitem__)] == found
