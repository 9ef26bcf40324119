# SPDX-License-Identifier: MIT
"""Whatever is in the file or in the environment: settings come out or errors do, never an exception."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.config.environment import Variables, read_variables
from agent.config.findings import Findings, has_errors
from agent.config.keys import keys_of
from agent.config.load import load
from agent.config.model import LogShipping, Periods
from agent.config.render import plain
from agent.config.schema import BackendSettingsKeys, ComponentKeys, OfferingKeys, RootKeys, TargetKeys
from agent.config.settings import read_settings
from agent.config.sources import Sources

from .samples import UUID

NAMES = sorted(
    {
        name
        for kind in (RootKeys, LogShipping, OfferingKeys, BackendSettingsKeys, ComponentKeys, TargetKeys)
        for name in keys_of(kind)
    }
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.dates()
    | st.binary(max_size=4)
    | st.sampled_from(["https://w/api", UUID, "slurm", "usage", "10", "0700", 10**60])
)
ROOT_KEYS = sorted(keys_of(RootKeys).keys() - {"offerings"})
keys = st.sampled_from(NAMES) | st.text(max_size=8) | st.integers() | st.just(10**60)
junk = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5)
)
offerings = st.dictionaries(st.sampled_from(sorted(keys_of(OfferingKeys))), junk)
trees = st.fixed_dictionaries(
    {"offerings": junk | st.lists(offerings, max_size=3)}, optional=dict.fromkeys(ROOT_KEYS, junk)
)


@settings(max_examples=60, deadline=None)
@given(tree=trees)
def test_any_tree_gives_settings_or_errors(tree: dict[object, object]) -> None:
    findings = Findings()
    sources = Sources({}, Path("/nowhere"), findings)
    result = read_settings(tree, "junk", variables=Variables(), sources=sources)
    assert all(problem.message for problem in findings.problems)
    if not has_errors(findings.problems):
        assert isinstance(tree["offerings"], list)
        assert len(result.offerings) == len(tree["offerings"])
        json.dumps(plain(result), default=None)


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=60) | st.text(alphabet="ab:[]{}-!&*#'\"\n \t,?|>%@`0~<", max_size=40))
def test_any_text_gives_settings_or_errors(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "junk.yaml"
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        loaded = load(file, {})
    assert (loaded.settings is None) == has_errors(loaded.problems)


@given(values=st.lists(st.text(max_size=10), min_size=4, max_size=4))
def test_any_period_is_positive_or_refused(values: list[str]) -> None:
    findings = Findings()
    environ = dict(zip(keys_of(Periods), values, strict=True))
    periods = read_variables(environ, findings).periods
    assert all(getattr(periods, each.attribute) > 0 for each in keys_of(Periods).values())
    assert all(problem.path in environ for problem in findings.problems)
