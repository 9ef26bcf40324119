# SPDX-License-Identifier: MIT
"""What is said once is said again only where it has changed, or was over in between."""

from __future__ import annotations

from agent.core.said import Said


def test_the_same_words_are_news_once() -> None:
    said = Said()
    assert said.news("order", "it waits", "it is held", "it waits") == ["it waits", "it is held"]
    assert said.news("order", "it is held", "it waits") == []
    assert said.news("another order", "it waits") == ["it waits"]


def test_only_what_is_new_is_news_and_what_comes_back_is_news_again() -> None:
    said = Said()
    said.news("order", "a", "b")
    assert said.news("order", "b", "c") == ["c"]
    assert said.news("order", "a", "b", "c") == ["a"]
    assert said.news("order") == []
    assert said.news("order", "a") == ["a"]


def test_of_many_subjects_the_newest_are_known() -> None:
    said = Said(subjects_at_most=2)
    for subject in ("one", "two", "one", "three"):
        said.news(subject, "x")
    assert said.news("one", "x") == []
    assert said.news("two", "x") == ["x"]
