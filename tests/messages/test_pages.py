"""Every error leads to a page, in the package and on the site."""

from __future__ import annotations

import functools
import importlib.metadata
import pickle
import re
import subprocess
import sys
import traceback
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

import lockstep as ls
from lockstep._launch import explain
from lockstep._launch.cli import main
from lockstep._messages import pages, reading
from lockstep._messages.search import MessageIndex
from lockstep._messages.sources import Message, messages
from lockstep.errors import ArgumentError, ClusterSpecError, DataNotFoundError, LockstepError

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def _every() -> Sequence[Message]:
    """Reads the messages of the whole source, once and only where a test asks for them."""
    return list(messages())


@functools.cache
def _index() -> MessageIndex:
    return MessageIndex(_every())


@pytest.fixture(autouse=True)
def _no_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(reading.SITE_VARIABLE, raising=False)
    monkeypatch.setattr(reading, "_packaged_site", lambda: "")


def test_the_source_has_messages_of_all_parts() -> None:
    assert len(_every()) > 1000
    assert {"cluster_resolver", "data", "distribute", "estimator", "training"} <= {
        m.module.split(".")[1] for m in _every()
    }


def test_every_error_leads_to_a_page_that_is_there() -> None:
    named = {m.page for m in _every()} | {*pages.OF_CLASSES.values(), *pages.OF_MODULES.values(), pages.GENERAL}
    assert named == set(reading.pages())


@pytest.mark.parametrize("page", reading.pages())
def test_a_page_has_a_title_causes_and_remedies(page: str) -> None:
    text = reading.text_of(page)
    assert text.startswith("# ")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows[0] == "| cause | remedy |"
    assert len(rows) >= 3


@pytest.mark.parametrize("module", pages.OF_MODULES)
def test_the_modules_of_the_table_exist(module: str) -> None:
    path = ROOT / "src" / "lockstep" / Path(*module.split("."))
    assert path.is_dir() or path.with_suffix(".py").exists()


def test_a_class_counts_before_its_module_and_the_longest_prefix_before_a_shorter_one() -> None:
    assert pages.page_of(ClusterSpecError, "lockstep.data._files.csv") == "cluster"
    assert pages.page_of(ArgumentError, "lockstep.data._files.csv") == "files"
    assert pages.page_of(ArgumentError, "lockstep.data._filesystem") == "datasets"
    assert pages.page_of(ArgumentError, "train") == pages.GENERAL


def test_the_page_is_that_of_the_module_that_raises() -> None:
    with pytest.raises(ArgumentError) as caught:
        ls.data.Dataset.range(8).batch(0)
    assert caught.value.page == "datasets"
    assert caught.value.__notes__ == ["Read on: lockstep explain datasets"]
    assert "explain" not in str(caught.value)
    assert traceback.format_exception(caught.value)[-1] == "Read on: lockstep explain datasets\n"


def test_errors_that_are_also_those_of_the_system_keep_their_form() -> None:
    error = DataNotFoundError("There is no file 'a'.")
    assert str(error) == "There is no file 'a'."
    assert error.page == "data-not-found"


def test_an_error_that_was_sent_keeps_its_page() -> None:
    with pytest.raises(ArgumentError) as caught:
        ls.data.Dataset.range(8).batch(0)
    received = pickle.loads(pickle.dumps(caught.value))
    assert (received.page, received.__notes__) == ("datasets", caught.value.__notes__)


def test_the_address_of_the_site_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(reading.SITE_VARIABLE, "https://docs.inside.example/lockstep")
    assert LockstepError("no").__notes__ == [
        "Read on: lockstep explain arguments (https://docs.inside.example/lockstep/messages/arguments/)"
    ]


def test_the_address_of_the_site_is_that_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    reading._packaged_site.cache_clear()
    urls = ["Homepage, https://home.example", "Documentation, https://docs.example/lockstep/"]
    monkeypatch.setattr(importlib.metadata, "metadata", lambda name: _Metadata(urls))
    try:
        assert reading.pointer("cluster").endswith("(https://docs.example/lockstep/messages/cluster/)")
    finally:
        reading._packaged_site.cache_clear()


class _Metadata:
    def __init__(self, urls: list[str]) -> None:
        self._urls = urls

    def get_all(self, name: str) -> list[str]:
        return self._urls if name == "Project-URL" else []


def test_explain_prints_a_page_and_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, expected in ((["explain", "cluster"], reading.text_of("cluster")), (["explain"], "peer ")):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0
        assert expected in capsys.readouterr().out


def test_explain_names_the_nearest_pages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explain", "clusters"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "Received: 'clusters'. The nearest are cluster" in said
    assert said.endswith("Read on: lockstep explain lockstep-run\n")


@pytest.mark.slow
def test_what_ends_a_program_is_printed_with_its_page(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import lockstep as ls\nls.distribute.MultiWorkerMirroredStrategy()\n")
    done = subprocess.run(
        [sys.executable, str(program)], env={"TF_CONFIG": "{", "PATH": ""}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1
    assert "Read on: lockstep explain cluster" in done.stderr.splitlines()[-1]


def _as_raised(message: Message) -> str:
    """Returns a text as a program sees it: with a value in each place for one."""
    return re.sub(r"<[a-z_0-9]+>", "'some/value-7'", message.text)


def _share_of_first(queries: list[tuple[str, Message]]) -> float:
    found = [_index().pages_for(query)[0] == message.page for query, message in queries]
    return sum(found) / len(found)


@pytest.mark.slow
def test_a_copy_of_a_message_or_of_its_first_sentence_finds_its_page_first() -> None:
    # What has hardly a word of its own, or stands in the source of two pages, could lead to either.
    pages_of = defaultdict[str, set[str]](set)
    for message in _every():
        pages_of[message.text.partition(". ")[0]].add(message.page)
    own = [re.sub(r"<[a-z_0-9]+>", "", m.text.partition(". ")[0]) for m in _every()]
    told = [m for m, words in zip(_every(), own, strict=True) if len(re.findall(r"[a-z]{2,}", words)) > 4]
    some = [m for m in told if len(pages_of[m.text.partition(". ")[0]]) == 1][::9]
    assert len(some) > 100
    assert _share_of_first([(_as_raised(m), m) for m in some]) == 1
    assert _share_of_first([(f"lockstep.errors.{m.kind}: {_as_raised(m)}", m) for m in some]) == 1
    assert _share_of_first([(_as_raised(m).partition(". ")[0], m) for m in some]) > 0.98


def test_words_that_no_message_has_find_nothing() -> None:
    assert _index().pages_for("qwertz uiop") == []


def test_explain_takes_a_copied_message(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # Read already, which takes seconds.
    monkeypatch.setattr(explain, "messages", _every)
    with pytest.raises(ArgumentError) as caught:
        ls.callbacks.RunReport("")
    with pytest.raises(SystemExit) as end:
        main(["explain", *str(caught.value).split()])
    assert not end.value.code
    out = capsys.readouterr()
    assert caught.value.page and out.out == reading.text_of(caught.value.page)
    assert f"This is the page {caught.value.page}" in out.err
