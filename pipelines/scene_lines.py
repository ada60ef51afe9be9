"""Where the keys of a TOML file stand: its parser gives values without lines, and an error should name one."""

from __future__ import annotations

import re

Path = tuple["str | int", ...]

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\[\]]+?)\s*(\]\]?)")
_KEY = re.compile(r"""^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_INNER = re.compile(r"([A-Za-z0-9_-]+)\s*=")
_STRINGS = re.compile(r'"(?:\\.|[^"\\])*"|\'[^\']*\'')


class Lines:
    """Line numbers by path, such as ("objects", 0, "pins", 1, "box"), of a text that is valid TOML."""

    def __init__(self, text: str) -> None:
        self._found: dict[Path, int] = {}
        self._counts: dict[Path, int] = {}
        self._scan(text)

    def line(self, path: Path) -> int:
        """The line of a key; of what holds it where it is not written (1 for the whole file)."""
        for length in range(len(path), 0, -1):
            head = path[:length]
            if head in self._found:
                line = self._found[head]
                inner = [self._found.get((*head, "*", key)) for key in path[length:] if isinstance(key, str)]
                return next((found for found in reversed(inner) if found is not None), line)
        return 1

    def _scan(self, text: str) -> None:
        table: Path = ()
        key: Path = ()
        depth, fence = 0, ""
        for number, raw in enumerate(text.splitlines(), 1):
            if fence:  # inside a multi-line string
                fence = "" if fence in raw else fence
                continue
            line = _STRINGS.sub('""', raw).split("#", 1)[0]
            if depth == 0 and (header := _HEADER.match(line)):
                table = self._header(_HEADER.match(raw) or header, number)
                continue
            inner = line
            if depth == 0 and (match := _KEY.match(raw)):
                key = (*table, *_names(match.group(1)))
                self._found.setdefault(key, number)
                inner = line.split("=", 1)[1] if "=" in line else ""
            for match in _INNER.finditer(inner):
                self._found.setdefault((*key, "*", match.group(1)), number)
            depth = max(depth + sum(line.count(c) for c in "[{") - sum(line.count(c) for c in "]}"), 0)
            fence = next((mark for mark in ('"""', "'''") if raw.count(mark) == 1), "")

    def _header(self, match: re.Match[str], number: int) -> Path:
        *outer, last = _names(match.group(2))
        path: Path = ()
        for name in outer:
            path = (*path, name)
            if path in self._counts:
                path = (*path, self._counts[path] - 1)
        path = (*path, last)
        if match.group(1) == "[[":
            self._counts[path] = self._counts.get(path, 0) + 1
            self._found.setdefault(path, number)
            path = (*path, self._counts[path] - 1)
        self._found[path] = number
        return path


def _names(dotted: str) -> list[str]:
    return [part.strip().strip("\"'") for part in re.split(r"\.(?=(?:[^\"']|\"[^\"]*\"|'[^']*')*$)", dotted)]
