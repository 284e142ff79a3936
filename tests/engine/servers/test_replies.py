"""Replies of a connection: the one to a push that goes ahead comes with the next."""

from __future__ import annotations

import pytest

from lockstep._engine.servers.messages import ProtocolError
from lockstep._engine.servers.replies import Replies
from lockstep._engine.servers.requests import Pull, Push, Reply, Request

AHEAD = Request(Push(0, 7), None, 1.0, is_ahead=True)


def exchange(push: Push | None, pull: Pull | None, seconds: float) -> Reply:
    """Replies as a server of generation 0, with a version for pulls and a staleness for pushes."""
    assert seconds == 1.0
    request = push or pull
    assert request is not None
    if request.generation:
        return Reply(0, status="superseded")
    return Reply(5 if pull else 4, push is not None, push.ticket if push else 0)


def test_one_reply_answers_a_push_and_the_pull_after_it() -> None:
    replies = Replies(exchange)
    assert replies.reply_to(AHEAD) is None
    reply = replies.reply_to(Request(None, Pull(0), 1.0))
    assert reply is not None
    assert (reply.version, reply.applied, reply.staleness) == (5, True, 7)
    reply = replies.reply_to(Request(None, Pull(0), 1.0))
    assert reply is not None
    assert (reply.applied, reply.staleness) == (False, 0), "it is given once"


def test_the_reply_to_a_push_can_be_asked_for_alone() -> None:
    replies = Replies(exchange)
    replies.reply_to(AHEAD)
    reply = replies.reply_to(Request(None, None, 1.0))
    assert reply is not None
    assert (reply.version, reply.applied, reply.staleness) == (4, True, 7)
    with pytest.raises(ProtocolError, match="has not come"):
        replies.reply_to(Request(None, None, 1.0))


def test_a_push_of_another_generation_is_the_reply_to_what_follows() -> None:
    replies = Replies(exchange)
    assert replies.reply_to(Request(Push(1, 7), None, 1.0, is_ahead=True)) is None
    reply = replies.reply_to(Request(None, Pull(0), 1.0))
    assert reply is not None
    assert reply.status == "superseded"


def test_a_push_that_does_not_go_ahead_is_answered_at_once() -> None:
    reply = Replies(exchange).reply_to(Request(Push(0, 3), Pull(0), 1.0))
    assert reply is not None
    assert (reply.version, reply.applied, reply.staleness) == (5, True, 3)
