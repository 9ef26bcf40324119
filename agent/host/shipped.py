# SPDX-License-Identifier: MIT
"""The files that belong to the agent and are no modules: units, monitoring, examples, documents and the lock file.

A wheel installs them below `share/waldur-site-cluster` of its environment, in the folders that they have in a checkout.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from agent.core.errors import SiteAgentError
from agent.host.packages import DISTRIBUTION

# One file that is always among them.
TARGET = Path("systemd/waldur-site.target")


def folder() -> Path:
    """Return the folder that has them: the checkout, or where the wheel was installed. Raises SiteAgentError."""
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / TARGET).is_file():
        return checkout
    try:
        files = metadata.distribution(DISTRIBUTION).files or ()
    except metadata.PackageNotFoundError:
        files = ()
    for file in files:
        if Path(*file.parts[-2:]) == TARGET:
            return Path(str(file.locate())).resolve().parents[1]
    raise SiteAgentError(
        f"the files of `share/{DISTRIBUTION}` are not installed: install {DISTRIBUTION} with pip or uv, which put them "
        "into the environment"
    )
