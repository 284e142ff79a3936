from __future__ import annotations

import pytest

from lockstep.cluster_resolver import ClusterSpec
from lockstep.cluster_resolver._address import is_unknown, join_address, split_address, unknown_address
from lockstep.errors import ClusterSpecError

GOOD = [
    "localhost:1",
    "host1:65535",
    "HOST-1.example.com:2222",
    "host.example.com.:2222",
    "my_service_1:2222",
    "10.0.0.1:2222",
    "4e5f6a7b8c9d:2222",
    "[::1]:2222",
    "[fe80::1%eth0]:2222",
    "[2001:db8::7]:80",
]

# What is wrong, a part of the rule, and the correct example.
BAD = [
    (1, "string", '"host1:2222"'),
    (None, "string", '"host1:2222"'),
    (b"host1:2222", "string", '"host1:2222"'),
    (["host1:2222"], "string", '"host1:2222"'),
    (" host1:2222", "whitespace", '"host1:2222"'),
    ("host1:2222\n", "whitespace", '"host1:2222"'),
    ("host 1:2222", "whitespace", '"host1:2222"'),
    ("host1:\u00a02222", "whitespace", '"host1:2222"'),
    ("grpc://host7:2222", "scheme", '"host7:2222"'),
    ("http://host7:2222/", "scheme", '"host7:2222"'),
    ("host7", "port", '"host7:2222"'),
    ("", "port", '"host1:2222"'),
    ("10.0.0.7", "port", '"10.0.0.7:2222"'),
    ("host7:", "65535", '"host7:2222"'),
    ("host7:0", "65535", '"host7:2222"'),
    ("host7:65536", "65535", '"host7:2222"'),
    ("host7:-1", "65535", '"host7:2222"'),
    ("host7:+1", "65535", '"host7:2222"'),
    ("host7:0x50", "65535", '"host7:2222"'),
    ("host7:http", "65535", '"host7:2222"'),
    ("host7:02222", "65535", '"host7:2222"'),
    ("host7:22.5", "65535", '"host7:2222"'),
    ("host7:２２２２", "65535", '"host7:2222"'),
    ("host7:" + "9" * 5000, "65535", '"host7:2222"'),
    (":2222", "host before the port", '"localhost:2222"'),
    ("::1:2222", "brackets", '"[::1]:2222"'),
    ("fe80::1", "brackets", '"[fe80::1]:2222"'),
    ("[::1]", "brackets", '"[::1]:2222"'),
    ("[::g]:2222", "brackets", '"[::1]:2222"'),
    ("[]:2222", "brackets", '"[::1]:2222"'),
    ("[::1%a/b]:2222", "brackets", '"[::1]:2222"'),
    ("256.0.0.1:2222", "IPv4", '"host1:2222"'),
    ("host7:1:2222", "letters", '"host1:2222"'),
    ("user@host:2222", "letters", '"host1:2222"'),
    ("hö:2222", "letters", '"host1:2222"'),
    ("\ud800:2222", "letters", '"host1:2222"'),
    ("ho\0st:2222", "letters", '"host1:2222"'),
    ("-h:2222", "letters", '"host1:2222"'),
    ("a..b:2222", "letters", '"host1:2222"'),
    ("x" * 64 + ":2222", "letters", '"host1:2222"'),
    ("x." * 200 + "x:2222", "letters", '"host1:2222"'),
]


@pytest.mark.parametrize("address", GOOD)
def test_legal_addresses_are_kept_as_written(address: str) -> None:
    assert ClusterSpec({"worker": [address]}).task_address("worker", 0) == address


@pytest.mark.parametrize(("address", "rule", "example"), BAD)
def test_illegal_address_names_field_value_and_example(address: object, rule: str, example: str) -> None:
    with pytest.raises(ClusterSpecError) as caught:
        ClusterSpec({"worker": ["ok:1", address]})  # pyright: ignore[reportArgumentType]
    field, received, correct = str(caught.value).split("\n")
    assert field.startswith('cluster["worker"][1] ')
    assert rule in field
    assert received.startswith(f"Received: {address!r}"[:40])
    assert correct == f"Correct example: {example}"
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("host1:2222", "host1:2222"),
        ("host1:2222", "HOST1:2222"),
        ("host1.example:2222", "host1.example.:2222"),
        ("[::1]:2222", "[0:0:0:0:0:0:0:1]:2222"),
        ("[fe80::A]:2222", "[fe80::a]:2222"),
    ],
)
def test_an_address_is_used_once(first: str, second: str) -> None:
    with pytest.raises(ClusterSpecError, match="no two tasks may share") as caught:
        ClusterSpec({"worker": [first], "ps": ["other:1", second]})
    assert 'cluster["ps"][1]' in str(caught.value)
    assert 'cluster["worker"][0]' in str(caught.value)
    assert repr(second) in str(caught.value)


def test_one_host_may_have_several_ports() -> None:
    assert ClusterSpec({"worker": ["h:1", "h:2"], "ps": ["[::1]:1", "[::1]:2"]})


@pytest.mark.parametrize(("host", "address"), [("h", "h:7"), ("::1", "[::1]:7"), ("10.0.0.1", "10.0.0.1:7")])
def test_split_and_join_are_inverse(host: str, address: str) -> None:
    assert join_address(host, 7) == address
    assert split_address(address) == (host, 7)


def test_unknown_addresses_are_legal_different_and_recognised() -> None:
    spec = ClusterSpec({"worker": [unknown_address("worker", 0), unknown_address("worker", 1), "h:1"]})
    assert [is_unknown(str(address)) for address in spec.job_tasks("worker")] == [True, True, False]
