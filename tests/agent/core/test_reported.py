# SPDX-License-Identifier: MIT
"""From what the cluster counted to Waldur's numbers: divided once, rounded once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.core.model import AccountingType, Component
from agent.core.units import reported_amount, tres_shares

# SLURM counts seconds and has its limits in minutes.
SCALE = 60
CENT = Fraction(1, 100)


def component(
    name: str = "cpu", factor: float = 1.0, reporting: float | None = None, **targets: float
) -> Component:
    """Targets are given with `_` for `/`."""
    mapped = {target.replace("_", "/"): value for target, value in targets.items()}
    usage = AccountingType.USAGE
    return Component(
        name, "h", usage, name, unit_factor=factor, unit_factor_reporting=reporting, targets=mapped
    )


CASES: dict[str, tuple[Component, Mapping[str, int], str]] = {
    # The reference's own example: 6360 cpu-minutes in k-Hours.
    "k-Hours": (component(factor=60000), {"cpu": 6360 * 60}, "0.11"),
    "cpu-hours": (component(factor=60), {"cpu": 4 * 1800 + 4 * 93600}, "106.00"),
    "memory in MiB, as GB-hours": (component("mem", 61440), {"mem": 128000 * 3600}, "125.00"),
    "nothing of it": (component(factor=60), {"mem": 5}, "0.00"),
    "less than half a cent": (component(factor=60), {"cpu": 17}, "0.00"),
    "half a hundredth goes up": (component(factor=60), {"cpu": 18}, "0.01"),
    "half of the next cent": (component(factor=60), {"cpu": 54}, "0.02"),
    "a little more than half": (component(factor=60), {"cpu": 19}, "0.01"),
    "a factor that has no end in binary": (component(factor=0.1), {"cpu": 60}, "10.00"),
    "a factor below one": (component(factor=0.0001), {"cpu": 60}, "10000.00"),
    "its own factor for reports": (component(factor=60, reporting=3600), {"cpu": 36000 * 60}, "10.00"),
    "a typed gres": (component("gres/gpu:a100", 60), {"gres/gpu": 9999, "gres/gpu:a100": 7200}, "2.00"),
    "billing": (component("billing", 60), {"billing": 5400, "cpu": 1}, "1.50"),
    # 500 / 5 + 800 / 10, the example of the reference's mapper.
    "several targets": (
        component("node_hours", gres_gpu=5, storage=10),
        {"gres/gpu": 500 * 60, "storage": 800 * 60},
        "180.00",
    ),
    "targets come out whole": (component("node_hours", cpu=60), {"cpu": 5400}, "2.00"),
    "halves of targets add up before they are rounded": (
        component("node_hours", cpu=60, gres_gpu=60),
        {"cpu": 1800, "gres/gpu": 1800},
        "1.00",
    ),
    "the factor of a target takes the place of both others": (
        component("x", 7, 9, cpu=60),
        {"cpu": 3600 * 5},
        "5.00",
    ),
    "more than 64 bit": (component(factor=60), {"cpu": 10**30 * 3600}, f"{10**30}.00"),
}


@pytest.mark.parametrize(("of", "counts", "amount"), CASES.values(), ids=CASES)
def test_amounts(of: Component, counts: Mapping[str, int], amount: str) -> None:
    assert f"{reported_amount(of, counts, SCALE):f}" == amount


FACTORS = st.one_of(
    st.integers(1, 10**6).map(float), st.floats(1e-4, 1e6, allow_nan=False, allow_infinity=False)
)
COUNTS = st.integers(0, 2**63 - 1)


@given(count=COUNTS, factor=FACTORS)
@example(count=18, factor=60.0)
@example(count=2**63 - 1, factor=3.0)
def test_the_amount_is_the_quotient_to_the_nearest_cent(count: int, factor: float) -> None:
    amount = reported_amount(component(factor=factor), {"cpu": count}, SCALE)
    exact = Fraction(count) / (SCALE * Fraction(str(factor)))
    assert abs(Fraction(amount) - exact) <= CENT / 2
    assert amount.as_tuple().exponent == -2


@given(counts=st.lists(COUNTS, max_size=20), factor=FACTORS)
def test_what_is_summed_first_is_off_by_half_a_cent_at_most(counts: list[int], factor: float) -> None:
    """And not by half a cent for every job, or every user."""
    amount = reported_amount(component(factor=factor), {"cpu": sum(counts)}, SCALE)
    exact = sum((Fraction(count) / (SCALE * Fraction(str(factor))) for count in counts), Fraction(0))
    assert abs(Fraction(amount) - exact) <= CENT / 2


@given(one=COUNTS, other=COUNTS, factor=FACTORS)
def test_more_counted_is_never_reported_lower(one: int, other: int, factor: float) -> None:
    of = component(factor=factor)
    less, more = sorted((one, other))
    assert reported_amount(of, {"cpu": less}, SCALE) <= reported_amount(of, {"cpu": more}, SCALE)


@given(
    targets=st.dictionaries(
        st.sampled_from(["cpu", "mem", "gres/gpu", "node"]), st.tuples(FACTORS, COUNTS), min_size=1
    )
)
def test_targets_are_summed_and_come_out_whole(targets: dict[str, tuple[float, int]]) -> None:
    of = Component("x", "h", AccountingType.USAGE, "x", targets={n: f for n, (f, _) in targets.items()})
    amount = reported_amount(of, {name: count for name, (_, count) in targets.items()}, SCALE)
    exact = sum((Fraction(c) / (SCALE * Fraction(str(f))) for f, c in targets.values()), Fraction(0))
    assert abs(Fraction(amount) - exact) <= Fraction(1, 2) + Fraction(1, 10**20)
    assert amount == amount.to_integral_value()


def test_a_tres_that_two_components_name_counts_for_both() -> None:
    counts = {"cpu": 3600 * 4}
    amounts = [reported_amount(component(n, cpu=f), counts, SCALE) for n, f in (("a", 60), ("b", 120))]
    assert amounts == [Decimal("4.00"), Decimal("2.00")]


NODE, GPU = component("node", cpu=600, gres_gpu=120), component("gres/gpu", 60)
LIMITED = [
    replace(NODE, accounting_type=AccountingType.LIMIT),
    replace(GPU, accounting_type=AccountingType.LIMIT),
]


@pytest.mark.parametrize(
    ("limits", "node", "gpu"),
    [
        # 10 node-hours bring 1200 of 1800 gpu-minutes, 10 gpu-hours the rest.
        ({"node": 10, "gres/gpu": 10}, "2.00", "2.00"),
        ({"node": 10}, "3.00", "0.00"),
        ({"gres/gpu": 10}, "0.00", "6.00"),
        ({"node": 10, "gres/gpu": "many"}, "3.00", "0.00"),
        # Half and half is all that is known.
        ({}, "2.00", "3.00"),
    ],
)
def test_a_tres_of_two_components_counts_once(limits: Mapping[str, object], node: str, gpu: str) -> None:
    shares = tres_shares(LIMITED, limits)
    counts = {"gres/gpu": 360 * SCALE}
    amounts = [f"{reported_amount(c, counts, SCALE, shares):f}" for c in LIMITED]
    assert amounts == [node, gpu]


def test_months_that_were_bought_count_in_a_share() -> None:
    bought = replace(NODE, accounting_type=AccountingType.ONE)
    shares = tres_shares([bought, LIMITED[1]], {"node": 1, "gres/gpu": 6}, months=3)
    assert shares == {
        "node": {"gres/gpu": Decimal(1) / 2},
        "gres/gpu": {"gres/gpu": Decimal(1) / 2},
    }


@given(
    limits=st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 10**9)),
    factors=st.tuples(FACTORS, FACTORS, FACTORS),
)
def test_the_parts_of_a_tres_are_the_whole_of_it(
    limits: Mapping[str, int], factors: tuple[float, float, float]
) -> None:
    named = [
        replace(component(name, x=factor), accounting_type=AccountingType.LIMIT)
        for name, factor in zip("abc", factors, strict=True)
    ]
    shares = tres_shares(named, limits)
    assert abs(sum(shares[name]["x"] for name in "abc") - 1) < Decimal("1e-25")
