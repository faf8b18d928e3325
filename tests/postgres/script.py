"""How is a script for psql cut into what psql would send?

`Script.next` gives one text after the other, with the variables that were set, and says how it was ended; what psql
alone understands is done here (`\set`, `\getenv`, `\if`) or left out (`\d`, `\pset`, …). Whether lines after a COPY are
its data depends on the server's answer, so the reader asks for them (`copy_data`).

`tokens` is the same lexer on one statement; `digest` is what a statement is known by in the ledger.
"""

import dataclasses
import hashlib
import re
from collections.abc import Iterator

# Longest first where one begins like another. A block comment nests and a dollar quote ends as it begins: of both only
# the beginning is here.
TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<comment>--[^\n]*)
    |(?P<block>/\*)
    |(?P<dollar>\$(?:[^\W\d]\w*)?\$)
    |(?P<escaped>[eE]'(?:[^'\\]|\\.|'')*')
    |(?P<string>'(?:[^']|'')*')
    |(?P<quoted>"(?:[^"]|"")*")
    |(?P<word>[^\W\d][\w$]*)
    |(?P<number>\d[\w.]*)
    |(?P<cast>::|:=)
    |(?P<variable>:(?:'\w+'|"\w+"|\{\?\w+\}|\w+))
    |(?P<command>\\)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
ESCAPED = re.compile(r"'(?:[^'\\]|\\.|'')*'", re.DOTALL)
SPACE, WORD, OTHER = "space", "word", "other"
COMMENTS = ("comment", "block")
# What ends a statement as a semicolon does.
SENDING = ("g", "gx", "gset", "gexec", "gdesc", "crosstabview")


@dataclasses.dataclass(frozen=True)
class Token:
    kind: str
    text: str


@dataclasses.dataclass
class Text:
    """What psql would send, where it begins in the file, and what it was ended by: `;` or a command's name with its
    argument."""

    sql: str
    line: int
    ended_by: str = ";"
    argument: str = ""


def token_at(text: str, at: int, backslashes: bool = False) -> Token:
    """The token that begins at `at`. `backslashes`: they escape in plain strings, too (an old setting)."""
    if backslashes and text[at] == "'" and (found := ESCAPED.match(text, at)):
        return Token("string", found.group())
    found = TOKEN.match(text, at)
    kind, end = found.lastgroup, found.end()
    if kind == "block":
        end = block_end(text, at)
    elif kind == "dollar":
        closing = text.find(found.group(), end)
        end = closing + len(found.group()) if closing >= 0 else len(text)
    return Token(kind, text[at:end])


def block_end(text: str, at: int) -> int:
    depth = 0
    for mark in re.compile(r"/\*|\*/").finditer(text, at):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(text)


def tokens(sql: str) -> Iterator[Token]:
    at = 0
    while at < len(sql):
        token = token_at(sql, at)
        at += len(token.text)
        yield token


def bare(sql: str) -> str:
    """Without comments, and with one blank for white space outside of strings."""
    out: list[str] = []
    for token in tokens(sql):
        text = " " if token.kind in (SPACE, *COMMENTS) else token.text
        if text != " " or (out and out[-1] != " "):
            out.append(text)
    return "".join(out).strip(" ;")


def digest(sql: str) -> str:
    return hashlib.sha256(bare(sql).encode(errors="surrogateescape")).hexdigest()[:12]


class Script:
    def __init__(self, text: str, variables: dict[str, str]):
        self.text, self.at, self.variables = text, 0, dict(variables)
        # As the server's standard_conforming_strings says; the reader keeps it.
        self.backslashes = False
        # Of each open \if: is what follows read, and was there a branch that was?
        self.branches: list[tuple[bool, bool]] = []

    def next(self) -> Text | None:
        """The next text to send; `None` at the end of the file."""
        sql: list[str] = []
        words: list[str] = []
        depth = body = 0
        begin = None
        while self.at < len(self.text):
            token = token_at(self.text, self.at, self.backslashes)
            if begin is None and token.kind not in (SPACE, *COMMENTS):
                begin = self.at
            self.at += len(token.text)
            if token.kind == "command":
                name, argument = self.command()
                if name == ";":
                    sql.append(";")
                elif name in SENDING and "".join(sql).strip():
                    if self.is_read():
                        return Text("".join(sql).strip(), self.line(begin), name, argument)
                    sql, begin = [], None
                elif name == "q" or name == "quit":
                    if self.is_read():
                        self.at = len(self.text)
                elif begin is not None and not "".join(sql).strip():
                    begin = None
                continue
            if token.kind == "variable":
                sql.append(self.variable(token.text))
                continue
            if token.kind == WORD:
                words.append(token.text.upper())
                body += self.body_step(words, body)
            elif token.kind == OTHER and token.text in "()":
                depth = max(0, depth + (1 if token.text == "(" else -1))
            if token.kind == OTHER and token.text == ";" and depth == 0 and body == 0:
                text = "".join(sql).strip()
                if bare(text) and self.is_read():
                    return Text(text, self.line(begin))
                sql, words, begin = [], [], None
                continue
            if sql or token.kind not in (SPACE, *COMMENTS):
                sql.append(token.text)
        return None

    @staticmethod
    def body_step(words: list[str], body: int) -> int:
        """Semicolons between BEGIN ATOMIC and its END are the function's own."""
        if words[0] != "CREATE" or not {"FUNCTION", "PROCEDURE"} & set(words[1:4]):
            return 0
        if words[-1] == "BEGIN" or (words[-1] == "CASE" and body):
            return 1
        return -1 if words[-1] == "END" and body else 0

    def line(self, at: int | None) -> int:
        return self.text.count("\n", 0, at or 0) + 1

    def is_read(self) -> bool:
        return all(taken for taken, _ in self.branches)

    def copy_data(self) -> bytes:
        """The lines up to a lone `\\.`, which is read, too."""
        start = self.text.find("\n", self.at) + 1
        end = re.compile(r"^\\\.[ \t]*$", re.MULTILINE).search(self.text, start)
        data, self.at = (self.text[start : end.start()], end.end()) if end else (self.text[start:], len(self.text))
        return data.encode(errors="surrogateescape")

    def command(self) -> tuple[str, str]:
        """Reads a command behind its backslash, and does it if it is one of variables or branches."""
        if self.text.startswith(";", self.at):
            self.at += 1
            return ";", ""
        found = re.compile(r"(\w+\+?|[^\w\s])?([^\n]*)").match(self.text, self.at)
        name, rest = found.group(1) or "", found.group(2)
        # Two backslashes end a command; what stands behind them is SQL again.
        cut = rest.find("\\")
        self.at = found.start(2) + (cut + 2 if rest[cut : cut + 2] == "\\\\" else cut if cut >= 0 else len(rest))
        argument = rest[:cut].strip() if cut >= 0 else rest.strip()
        if name in ("if", "elif", "else", "endif"):
            self.branch(name, argument)
        elif name == "set" and self.is_read():
            parts = argument.split(None, 1)
            if parts:
                self.variables[parts[0]] = self.value(parts[1] if len(parts) > 1 else "")
        elif name == "unset" and self.is_read():
            self.variables.pop(argument, None)
        return name, argument

    def branch(self, name: str, argument: str) -> None:
        is_true = self.value(argument).lower() in ("t", "true", "on", "1", "yes")
        if name == "if":
            self.branches.append((is_true, is_true))
        elif self.branches:
            _, was_taken = self.branches.pop()
            if name == "elif":
                self.branches.append((is_true and not was_taken, is_true or was_taken))
            elif name == "else":
                self.branches.append((not was_taken, True))

    def value(self, text: str) -> str:
        """The words of \\set, put together without blanks, as psql does."""
        words = re.findall(r"'(?:[^']|'')*'|:'\w+'|[^\s']+", text)
        return "".join(
            word[1:-1].replace("''", "'") if word.startswith("'") else re.sub(r":'?\w+'?", self.replaced, word)
            for word in words
        )

    def replaced(self, found: re.Match) -> str:
        return self.variable(found.group())

    def variable(self, text: str) -> str:
        """What stands for `:name`, `:'name'`, `:"name"`; the text itself if there is no such variable."""
        if text.startswith(":{?"):
            return "TRUE" if text[3:-1] in self.variables else "FALSE"
        name = text[1:].strip("'\"")
        if name not in self.variables:
            return text
        value = self.variables[name]
        if text[1] == "'":
            return "'" + value.replace("'", "''") + "'"
        return '"' + value.replace('"', '""') + '"' if text[1] == '"' else value
