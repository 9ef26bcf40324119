# SPDX-License-Identifier: MIT
"""Print what `usage-check` found: a table for each component in Waldur's units, below each account where its
figures differ and why in TRES-seconds, then the sums and what they mean for bills.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent.cli.options import console, number
from agent.cli.usage.table import UNKNOWN, shortened, shown
from agent.core.printable import printable
from agent.core.usage import UsageSource
from agent.plan.usage.check import OF_SOURCE, AccountCheck, Amounts, Seconds, Way
from agent.plan.usage.figures import Measure
from agent.run.usage.check import Checked

TITLES = {
    Way.REFERENCE: "reference",
    Way.REQUESTED: "requested",
    Way.ALLOCATED: "allocated",
    Way.SUMMARY: "sreport",
}
NOTHING = "-"
NAME_AT_LEAST = 12
GAP = 2


def show(found: Checked, out: Console | None = None) -> None:
    """Print one offering."""
    out = out or console()
    _say(
        out,
        f"{printable(found.name)}: {found.month} ({found.zone}) on cluster {printable(found.cluster)}",
        style="bold",
    )
    if found.charged:
        _say(out, f"Waldur is told {printable(found.charged)}, whatever usage_source says")
    else:
        counted = "what jobs asked for" if found.source is UsageSource.REQUESTED else "what jobs were given"
        _say(out, f"usage_source is {found.source}: Waldur is told {counted}")
        _say(out, "reference: as waldur-site-agent counts, from the same jobs")
    for note in found.notes:
        _say(out, printable(note))
    if not found.has_second_count:
        _say(out, found.summary_unknown)
    elif found.summary_unknown:
        _say(out, f"sreport: unknown: {printable(found.summary_unknown)}")
    if found.waldur:
        _say(out, "Waldur: unknown, it did not answer")
    for measure in found.measures if found.comparison.lines else ():
        out.line()
        _show_component(out, found, measure)
    out.line()
    for sentence in sums(found):
        _say(out, sentence)
    if found.commands:
        out.line()
        _say(out, "to check by hand, one line for each run of a job:")
        for command in found.commands.values():
            _say(out, f"  {command}")


def _show_component(out: Console, found: Checked, measure: Measure) -> None:
    _say(out, f"{printable(measure.label)}, {printable(measure.unit)}", style="bold")
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    rows = []
    for line in _with_total(found):
        amounts = line.amounts[measure.name]
        cells = [printable(line.account) or "all", *(shown(amounts.amounts.get(way)) for way in _ways(found))]
        if not found.waldur:
            cells.append(NOTHING if amounts.told is None else shown(amounts.told))
        rows.append(cells)
    widths = [max(len(title), *(len(row[n]) for row in rows)) for n, title in enumerate(_titles(found), 1)]
    room = out.width - sum(widths) - GAP * (len(widths) + 1) - 1
    names = max(len("account"), *(cell_len(row[0]) for row in rows))
    names = min(names, max(NAME_AT_LEAST, room))
    table.add_column("account", width=names, no_wrap=True, overflow="ellipsis")
    for title, width in zip(_titles(found), widths, strict=True):
        table.add_column(title, width=width, justify="right", no_wrap=True)
    table.add_column("", width=1, no_wrap=True)
    short = shortened((row[0] for row in rows), names)
    # Of this component: an account may differ in another one only.
    told = {
        line.account: list(_reasons(found, line, line.amounts[measure.name], measure))
        for line in found.comparison.lines
    }
    for line, row in zip(_with_total(found), rows, strict=True):
        differs = told[line.account] if line.account in told else any(told.values())
        table.add_row(
            *map(Text, (short[row[0]], *row[1:])),
            Text("*" if differs else ""),
            style="" if line.account else "bold",
        )
    table.width = names + sum(widths) + GAP * (len(widths) + 1) + 1  # amounts are never cut
    out.print(table, crop=False)
    for account, sentences in told.items():
        if sentences:
            _say(out, f"  {printable(account)}:")
            for sentence in sentences:
                _say(out, f"    {sentence}")


def _with_total(found: Checked) -> list[AccountCheck]:
    lines = list(found.comparison.lines)
    return [*lines, found.comparison.total] if len(lines) > 1 else lines


def _titles(found: Checked) -> list[str]:
    return [
        *("charged" if found.charged else TITLES[way] for way in _ways(found)),
        *(() if found.waldur else ("Waldur",)),
    ]


def _ways(found: Checked) -> list[Way]:
    if found.charged:
        return [OF_SOURCE[found.source]]
    return [way for way in Way if way is not Way.SUMMARY or not found.summary_unknown]


def _reasons(found: Checked, line: AccountCheck, amounts: Amounts, measure: Measure) -> Iterator[str]:
    for tres in amounts.tres:
        seconds = line.seconds.get(tres)
        if seconds is not None:
            yield from reasons(seconds)
    if amounts.moves:
        had = "nothing yet of"
        if amounts.told is not None:
            had = f"{abs(amounts.moves):,.2f} {'less' if amounts.moves > 0 else 'more'} than"
        how = "" if found.charged else f" ({found.source})"
        would = "that were used" if line.has_ended else "that it would be told"
        ended = ", and takes no more of a terminated resource: put it right there" if line.has_ended else ""
        yield f"Waldur has {had} the {shown(amounts.next)} {printable(measure.unit)} {would}{how}{ended}"


def reasons(seconds: Seconds) -> Iterator[str]:
    """Yield where the counts of one TRES differ, by how much, and why."""
    unit = f"{seconds.tres}-seconds"
    if not seconds.as_asked:
        left_out = "runs of requeued jobs, or jobs that run and have counted on meanwhile"
        if seconds.requeues is not None and seconds.border is not None:
            parts = {
                f"{seconds.requeues:,} in earlier runs of requeued jobs": seconds.requeues,
                f"{seconds.border:,} in the last second of the month": seconds.border,
            }
            left_out = ", ".join(text for text, count in parts.items() if count)
        yield f"{_gap(seconds, Way.REFERENCE, Way.REQUESTED, unit)}: {left_out}"
    if not seconds.as_given:
        given = seconds.gap(Way.REQUESTED, Way.ALLOCATED) > 0
        why = (
            "jobs were given more than they asked for (whole nodes, cores by the task, what is kept while suspended)"
            if given
            else "jobs were given less than they asked for"
        )
        yield f"{_gap(seconds, Way.REQUESTED, Way.ALLOCATED, unit)}: {why}"
    if not seconds.as_summed:
        more = seconds.gap(Way.ALLOCATED, Way.SUMMARY) > 0
        why = (
            "idle reservations, or jobs that the rollup thinks run still"
            if more
            else "slurmdbd has not rolled up all of the month"
        )
        yield f"{_gap(seconds, Way.ALLOCATED, Way.SUMMARY, unit)}: {why}"


def _gap(seconds: Seconds, one: Way, other: Way, unit: str) -> str:
    gap = seconds.gap(one, other)
    return f"{TITLES[other]} is {abs(gap):,} {unit} {'more' if gap > 0 else 'less'} than {TITLES[one]}"


def sums(found: Checked) -> Iterator[str]:
    """Yield the sums, in sentences."""
    comparison = found.comparison
    total = comparison.total
    differing = sum(1 for line in comparison.lines if line.differs)
    yield f"{number(len(comparison.lines), 'account')}, {differing} of them with differences (* in what differs)"
    yield from _summary_sentences(found)
    for measure in found.measures:
        amounts = total.amounts.get(measure.name)
        if amounts is not None:
            yield from _bill_sentences(found, amounts, measure)


def _summary_sentences(found: Checked) -> Iterator[str]:
    seconds = found.comparison.total.seconds
    if not found.has_second_count:
        return
    if found.comparison.equals_summary is None:
        yield "AllocTRES equals sreport: unknown"
    elif found.comparison.equals_summary:
        counts = [
            f"{s.counts.get(Way.ALLOCATED) or 0:,} {tres}-seconds" for tres, s in _first_cpu(seconds).items()
        ]
        yield f"AllocTRES equals sreport: yes, {', '.join(counts)}"
    else:
        wrong = [
            f"{tres} {s.gap(Way.ALLOCATED, Way.SUMMARY):+,} of {s.counts.get(Way.ALLOCATED) or 0:,} {tres}-seconds"
            for tres, s in _first_cpu(seconds).items()
            if any(
                not line.seconds[tres].as_summed for line in found.comparison.lines if tres in line.seconds
            )
        ]
        yield f"AllocTRES equals sreport: no, sreport has {', '.join(wrong)}"


def _first_cpu(seconds: Mapping[str, Seconds]) -> dict[str, Seconds]:
    return {tres: seconds[tres] for tres in sorted(seconds, key=lambda tres: (tres != "cpu", tres))}


def _bill_sentences(found: Checked, amounts: Amounts, measure: Measure) -> Iterator[str]:
    unit, configured = printable(measure.unit), OF_SOURCE[found.source]
    label = printable(measure.label)
    other = Way.ALLOCATED if configured is Way.REQUESTED else Way.REQUESTED
    before, now, then = (amounts.amounts.get(way) for way in (Way.REFERENCE, configured, other))
    if now is None:
        yield f"{label}: {UNKNOWN}"
        return
    how = "charged" if found.charged else f"as configured ({configured})"
    sentences = [f"{label}: {shown(now)} {unit} {how}"]
    if found.charged:
        before = then = None
    if before is not None:
        sentences.append(f"the reference counts {_moved(now, before)}")
    if then is not None:
        sentences.append(f"with `usage_source: {other}` it would be {_moved(now, then)}")
    if amounts.is_told_known and amounts.unnamed:
        sentences.append(f"{shown(amounts.unnamed)} of it in accounts that no resource names")
    if amounts.is_told_known:
        sentences.append(
            f"Waldur's bills move by {amounts.moves:+,.2f}" if amounts.moves else "Waldur has the same"
        )
    yield "; ".join(sentences)


def _moved(now: Decimal, then: Decimal) -> str:
    if now == then:
        return "the same"
    share = f" ({(then - now) / now:+.2%})" if now else ""
    return f"{then - now:+,.2f}{share}"


def _say(out: Console, sentence: str, *, style: str = "") -> None:
    out.print(Text(sentence, style=style), soft_wrap=True)
