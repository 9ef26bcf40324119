# SPDX-License-Identifier: MIT
"""Print what `usage-check` found: a table for each component in Waldur's units, under it for each account where its
figures differ and why in TRES-seconds, then the sums and what they mean for bills.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from agent.cli.console import console
from agent.cli.options import number
from agent.cli.usage.table import GAP, NAME_AT_LEAST, UNKNOWN, exact, formatted, say, shortened
from agent.core.printable import printable
from agent.core.usage import UsageSource
from agent.plan.usage.check import OF_SOURCE, AccountCheck, Amounts, CountedBy, Seconds
from agent.plan.usage.figures import Measure
from agent.run.usage.check import Checked

TITLES = {
    CountedBy.REFERENCE: "reference",
    CountedBy.REQUESTED: "requested",
    CountedBy.ALLOCATED: "allocated",
    CountedBy.SUMMARY: "sreport",
}
NOTHING = "-"


def show(found: Checked, out: Console | None = None) -> None:
    """Print one offering."""
    out = out or console()
    say(
        out,
        f"{printable(found.name)}: {found.month} ({found.zone}) on cluster {printable(found.cluster)}",
        style="bold",
    )
    if found.charged:
        say(out, f"reported to Waldur is {printable(found.charged)}, whatever usage_source says")
    else:
        counted = "what jobs asked for" if found.source is UsageSource.REQUESTED else "what jobs were given"
        say(out, f"usage_source is {found.source}: reported to Waldur is {counted}")
        say(out, "reference: as waldur-site-agent counts, from the same jobs")
    for note in found.notes:
        say(out, printable(note))
    if not found.has_second_count:
        say(out, found.summary_unknown)
    elif found.summary_unknown:
        say(out, f"sreport: unknown: {printable(found.summary_unknown)}")
    if found.waldur:
        say(out, "Waldur: unknown, it did not answer")
    for measure in found.measures if found.comparison.lines else ():
        out.line()
        _show_component(out, found, measure)
    out.line()
    for sentence in sums(found):
        say(out, sentence)
    if found.commands:
        out.line()
        say(out, "to check by hand, one line for each run of a job:")
        for command in found.commands.values():
            say(out, f"  {command}")


def _show_component(out: Console, found: Checked, measure: Measure) -> None:
    say(out, f"{printable(measure.label)}, {printable(measure.unit)}", style="bold")
    rows = []
    for line in _with_total(found):
        amounts = line.amounts[measure.name]
        cells = [
            printable(line.account) or "all",
            *(formatted(amounts.amounts.get(way)) for way in _ways(found)),
        ]
        if not found.waldur:
            cells.append(NOTHING if amounts.reported is None else formatted(amounts.reported))
        rows.append(cells)
    # Of this component: an account may differ in another one only.
    reasons_of = {
        line.account: list(_reasons(found, line, line.amounts[measure.name], measure))
        for line in found.comparison.lines
    }
    titles = ["account", *_titles(found), ""]
    amounts_cells = sum(
        max(len(title), *(len(row[n]) for row in rows)) for n, title in enumerate(titles[1:-1], 1)
    )
    room = out.width - amounts_cells - GAP * len(titles) - 1
    names = min(max(len("account"), *(cell_len(row[0]) for row in rows)), max(NAME_AT_LEAST, room))
    short = shortened((row[0] for row in rows), names)
    lines = []
    for line, row in zip(_with_total(found), rows, strict=True):
        differs = reasons_of[line.account] if line.account in reasons_of else any(reasons_of.values())
        cells = [short[row[0]], *row[1:], "*" if differs else ""]
        lines.append(("" if line.account else "bold", [Text(cell) for cell in cells]))
    table = exact(titles, lines, {0: names, len(titles) - 1: 1}, left={0, len(titles) - 1})
    out.print(table, crop=False)
    for account, sentences in reasons_of.items():
        if sentences:
            say(out, f"  {printable(account)}:")
            for sentence in sentences:
                say(out, f"    {sentence}")


def _with_total(found: Checked) -> list[AccountCheck]:
    lines = list(found.comparison.lines)
    return [*lines, found.comparison.total] if len(lines) > 1 else lines


def _titles(found: Checked) -> list[str]:
    return [
        *("charged" if found.charged else TITLES[way] for way in _ways(found)),
        *(() if found.waldur else ("Waldur",)),
    ]


def _ways(found: Checked) -> list[CountedBy]:
    if found.charged:
        return [OF_SOURCE[found.source]]
    return [way for way in CountedBy if way is not CountedBy.SUMMARY or not found.summary_unknown]


def _reasons(found: Checked, line: AccountCheck, amounts: Amounts, measure: Measure) -> Iterator[str]:
    for tres in amounts.tres:
        seconds = line.seconds.get(tres)
        if seconds is not None:
            yield from reasons(seconds)
    if amounts.moves:
        had = "nothing yet of"
        if amounts.reported is not None:
            had = f"{abs(amounts.moves):,.2f} {'less' if amounts.moves > 0 else 'more'} than"
        how = "" if found.charged else f" ({found.source})"
        would = "that were used" if line.has_ended else "that would be reported"
        ended = ", and takes no more of a terminated resource: put it right there" if line.has_ended else ""
        yield f"Waldur has {had} the {formatted(amounts.next)} {printable(measure.unit)} {would}{how}{ended}"


def reasons(seconds: Seconds) -> Iterator[str]:
    """Yield where the counts of one TRES differ, by how much, and why."""
    unit = f"{seconds.tres}-seconds"
    if not seconds.as_asked:
        skipped = "runs of requeued jobs, or jobs that run and have counted on since"
        if seconds.requeues is not None and seconds.border is not None:
            parts = {
                f"{seconds.requeues:,} in earlier runs of requeued jobs": seconds.requeues,
                f"{seconds.border:,} in the last second of the month": seconds.border,
            }
            skipped = ", ".join(text for text, count in parts.items() if count)
        yield f"{_gap(seconds, CountedBy.REFERENCE, CountedBy.REQUESTED, unit)}: {skipped}"
    if not seconds.as_given:
        given = seconds.gap(CountedBy.REQUESTED, CountedBy.ALLOCATED) > 0
        why = (
            "jobs were given more than they asked for (whole nodes, cores by the task, what is kept while suspended)"
            if given
            else "jobs were given less than they asked for"
        )
        yield f"{_gap(seconds, CountedBy.REQUESTED, CountedBy.ALLOCATED, unit)}: {why}"
    if not seconds.as_summed:
        more = seconds.gap(CountedBy.ALLOCATED, CountedBy.SUMMARY) > 0
        why = (
            "idle reservations, or jobs that the rollup thinks run still"
            if more
            else "slurmdbd has not rolled up all of the month"
        )
        yield f"{_gap(seconds, CountedBy.ALLOCATED, CountedBy.SUMMARY, unit)}: {why}"


def _gap(seconds: Seconds, one: CountedBy, other: CountedBy, unit: str) -> str:
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
            f"{s.counts.get(CountedBy.ALLOCATED) or 0:,} {tres}-seconds"
            for tres, s in _first_cpu(seconds).items()
        ]
        yield f"AllocTRES equals sreport: yes, {', '.join(counts)}"
    else:
        wrong = [
            f"{tres} {s.gap(CountedBy.ALLOCATED, CountedBy.SUMMARY):+,} of "
            f"{s.counts.get(CountedBy.ALLOCATED) or 0:,} {tres}-seconds"
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
    other = CountedBy.ALLOCATED if configured is CountedBy.REQUESTED else CountedBy.REQUESTED
    before, now, then = (amounts.amounts.get(way) for way in (CountedBy.REFERENCE, configured, other))
    if now is None:
        yield f"{label}: {UNKNOWN}"
        return
    how = "charged" if found.charged else f"as configured ({configured})"
    sentences = [f"{label}: {formatted(now)} {unit} {how}"]
    if found.charged:
        before = then = None
    if before is not None:
        sentences.append(f"the reference counts {_moved(now, before)}")
    if then is not None:
        sentences.append(f"with `usage_source: {other}` it would be {_moved(now, then)}")
    if amounts.is_reported_known and amounts.unnamed:
        sentences.append(f"{formatted(amounts.unnamed)} of it in accounts that no resource names")
    if amounts.is_reported_known:
        sentences.append(
            f"Waldur's bills move by {amounts.moves:+,.2f}" if amounts.moves else "Waldur has the same"
        )
    yield "; ".join(sentences)


def _moved(now: Decimal, then: Decimal) -> str:
    if now == then:
        return "the same"
    share = f" ({(then - now) / now:+.2%})" if now else ""
    return f"{then - now:+,.2f}{share}"
