"""What a failed test says of lockstep: by rules, each with its reason."""

from __future__ import annotations

import re
from typing import Any

from lockstep.compat.tensorflow._missing import ADVICE
from tests.conformance.shim import GRAPH

# In the order of the table.
VERDICTS = ("passes", "words", "internal", "refused", "differs", "timeout", "skipped")
# Lines of a test on the way to its error that only TensorFlow's own parts have.
_INTERNAL_LINES = (
    (re.compile(r"\.graph\b|graph_def\b"), "graphs"),
    (re.compile(r"\bgen_\w+_ops\.|_variant_tensor|\braw_ops\."), "kernels"),
    (re.compile(r"get_concrete_function|function_def|\.captures\b|\.inputs\b\[|as_graph_element"), "functions' graphs"),
    # Those of a test itself, `self._name` and `cls._name`, are its own.
    (
        re.compile(r"(?:\b(?!(?:self|cls)\b)\w+|\]|(?<!super\()\))\._(?!asdict|replace|fields|make)[a-z]\w*"),
        "private attributes",
    ),
    (re.compile(r"\.eval\(\)|initializer\.run\(\)"), "sessions"),
    (re.compile(r"\.as_cluster_def\("), "messages of protobuf"),
    (re.compile(r"\bcontext\.context\(\)|\bserver_lib\.Server|_pywrap\w*|pywrap_"), "the runtime"),
)
_MISSING = re.compile(r"\btf\.([\w.]+) is not available")
# What strategies say of names that they do not have: "... has no attribute 'x'. Use y."
_ADVISED = re.compile(r"object has no attribute '\w+'\. [A-Z]")
_PRIVATE = re.compile(r"has no attribute '_\w|unexpected keyword argument '_\w")
_SHORTENED = (
    (re.compile(r"0x[0-9a-f]+"), "0x"),
    (re.compile(r"variable(_\d+)?\b"), "variable"),
    (re.compile(r"\b\d+(\.\d+)?(e-?\d+)?\b"), "N"),
)


def judge(result: dict[str, Any]) -> tuple[str, str]:
    """Returns a test's verdict and the reason, or the words that failures of one cause share."""
    outcome = result["outcome"]
    if outcome in ("pass", "skip", "timeout"):
        return {"pass": "passes", "skip": "skipped", "timeout": "timeout"}[outcome], result.get("why", "")
    if result.get("absent"):
        kind, name = result["absent"]
        if kind == "missing":
            return _missing_name(name)
        return "internal", {"graph": f"graphs: {name}", "processes": "several processes"}.get(kind, name)
    missing = _MISSING.search(result.get("why", ""))
    if missing:
        name = missing[1].replace("compat.v1.", "v1.")
        if name in GRAPH or name.rpartition(".")[0] in GRAPH:
            return "internal", f"graphs: tf.{missing[1]}"
        return _missing_name(f"tf.{missing[1]}")
    if _PRIVATE.search(result.get("why", "")):
        return "internal", "private attributes"
    lines = result.get("lines") or [""]
    # What the test's own last line asks for; a base of tests may be below it.
    for line in lines[-2:]:
        for pattern, reason in _INTERNAL_LINES:
            if pattern.search(line):
                return "internal", reason
    if "UnsupportedError" in result.get("kinds", (result["error"],)) or _ADVISED.search(result["why"]):
        return "refused", shorten(result["why"])
    if result.get("expected_other") or "assertRegexMatch(" in lines[-1]:
        return "words", f"{result['error']}: {shorten(result['why'])}"
    return "differs", f"{result['error']}: {shorten(result['why'])}"


def _missing_name(name: str) -> tuple[str, str]:
    """Returns "refused" for a name of which lockstep says what to use instead, else "differs"."""
    parts = name.split(".")
    is_advised = any(".".join(parts[:end]) in ADVICE for end in range(2, len(parts) + 1))
    return "refused" if is_advised else "differs", f"missing: {name}"


def shorten(words: str) -> str:
    """Returns an error's first words, without what differs from one failure of its cause to the next."""
    for pattern, instead in _SHORTENED:
        words = pattern.sub(instead, words)
    return words[:110]
