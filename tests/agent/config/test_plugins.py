# SPDX-License-Identifier: MIT
"""A plugin that cannot be imported stops what it would serve, and nothing else, whatever its module raises."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.config.model import Mode
from agent.core.errors import ConfigError
from backends import registry
from backends.plugins import PluginMissing
from backends.slurm.schema import SlurmSettings
from backends.usernames import registry as usernames
from backends.usernames.ldap.schema import LdapKeys

from .samples import OFFERING, Site, only_offering, root

FAULTS = {
    "raise ImportError('it was made for another version')": "ImportError: it was made for another version",
    "1 / 0": "ZeroDivisionError: division by zero",
    "import sys; sys.exit('no licence')": "SystemExit: no licence",
    "def (": "SyntaxError: ",
    "x = 1": "AttributeError: ",
}


@pytest.mark.parametrize(("text", "reason"), FAULTS.items())
def test_a_plugin_that_cannot_be_imported_has_its_reason(
    site: Site, install: Callable[[str], None], text: str, reason: str
) -> None:
    install(text)
    served = {"membership_sync_backend": "odd", "username_management_backend": "odd"}
    offering = only_offering(site.load(root(offerings=[{**OFFERING, **served}])))
    for load in (registry.load, usernames.load):
        with pytest.raises(PluginMissing, match="'odd' is installed but cannot be loaded: ") as caught:
            load("odd")
        assert reason in str(caught.value)
    (problem,) = (p for p in registry.problems(offering) if "odd" in p.message)
    assert problem.message.endswith("; until then membership_sync is off for this offering")
    assert reason in "".join(p.message for p in usernames.problems(offering))
    assert usernames.setting_kinds(offering) == {LdapKeys}  # the directory of groups
    assert registry.setting_kinds(offering) == {SlurmSettings}
    assert registry.component_keys(offering) is not None
    with pytest.raises(ConfigError, match="cannot be loaded"):
        registry.configure(offering, Mode.MEMBERSHIP_SYNC)
    assert registry.configure(offering, Mode.ORDER_PROCESS).name == "slurm"
