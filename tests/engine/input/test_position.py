"""The position of a feed: values that transitions leave alone."""

from __future__ import annotations

from lockstep._engine.input.batch import Position


def test_steps_are_counted_from_the_beginning_of_their_epoch() -> None:
    """A pass may span epochs, and the feed is ahead of the steps."""
    first = Position().begin_pass().begin_epoch().advance(3).advance(2)
    assert (first.batches, first.after_steps(4)) == (5, 4)
    second = first.end_epoch().begin_epoch().advance(4)
    assert (second.batches, second.after_steps(1)) == (9, 6)
    assert second.end_epoch().after_steps(1) == 9


def test_an_interrupted_epoch_goes_on_where_it_was() -> None:
    before = Position(batches=7, skipped=3)
    position = before.begin_epoch()
    assert position.after_steps(3) == 7 and position.advance(2).after_steps(5) == 9
    assert position.end_epoch().skipped == 0
    assert before == Position(batches=7, skipped=3)


def test_the_first_end_tells_how_long_a_pass_is() -> None:
    ended = Position(batches=5).end_pass(single_pass=True)
    assert (ended.pass_length, ended.exhausted) == (5, True)
    assert Position(batches=2, pass_length=5).end_pass(single_pass=False).pass_length == 5
    assert ended.rewind().pass_length == 5 and ended.rewind().batches == 0
