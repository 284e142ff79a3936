"""The reference: a page for each public module, with every public name and an example of its use."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Names that lockstep/__init__.py forwards without importing them; their home has the docstring.
_FORWARDED = {"lockstep.function": "lockstep.training.function"}
# Other libraries' names: docs/tensorflow.md lists what is covered.
_LEFT_OUT = {"lockstep.compat"}


def public_names() -> dict[str, list[str]]:
    """Returns the public names of each public module, from the list that the tests hold the package to."""
    tree = ast.parse((ROOT / "tests/project/test_exported_names.py").read_text(encoding="utf-8"))
    values = [n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "PUBLIC"]
    return {module: names for module, names in ast.literal_eval(values[0]).items() if module not in _LEFT_OUT}


def documented(module: str, names: list[str], modules: dict[str, list[str]]) -> list[str]:
    """Returns the names of a module that are no modules themselves: what its page shows."""
    aliases = {"callbacks", "random"} if module == "lockstep" else set()
    parts = {f"{module}.{n}" for n in names} & {*modules, *_LEFT_OUT}
    return [n for n in names if f"{module}.{n}" not in parts and n not in aliases and not n.startswith("__")]


def source_of(name: str) -> str:
    """Returns the name at whose definition a public name is described."""
    return _FORWARDED.get(name, name)


def docstring(module: str) -> str:
    """Returns the docstring of a module, without importing it."""
    path = ROOT / "src" / Path(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""


def write(write_page: Callable[[str, str], None], snippets: dict[str, str], block_of: Callable[[str], str]) -> None:
    """Writes the pages of all public modules, and their list.

    Args:
        write_page: Takes the path of a page, and its text.
        snippets: An example for each public name.
        block_of: Returns the block that shows the definition of a name.
    """
    modules = public_names()
    rows = []
    for module in sorted(modules):
        names = documented(module, modules[module], modules)
        summary = docstring(module).partition("\n")[0]
        rows.append(f"| [`{module}`]({module}.md) | {summary} | {len(names)} |")
        parts = [f"# {module}\n\n{docstring(module)}\n"]
        for name in sorted(names, key=str.lower):
            full = f"{module}.{name}"
            parts.append(f"[](){{#{full}}}\n\n{block_of(source_of(full))}\n")
            if code := snippets.get(full):
                parts.append(f'??? example "Example: {name}"\n\n' + _indented(f"```python\n{code}```") + "\n")
        write_page(f"reference/{module}.md", "\n".join(parts))
    head = "# Reference\n\nEvery public name, by module. What is not here is private, and may change.\n\n"
    table = "| module | | names |\n|---|---|--:|\n" + "\n".join(rows) + "\n"
    write_page("reference/index.md", head + table)
    write_page("reference/.nav.yml", "nav:\n" + "".join(f"  - {m}.md\n" for m in ("index", *sorted(modules))))


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())
