"""Reads and writes prototxt, protobuf's text format, as trees. Needs neither Caffe nor protobuf.

    net = parse(Path("net.prototxt").read_text(), "net.prototxt")
    for layer in net.messages("layer"):
        print(layer.value("name"), layer.message("data_param").value("batch_size"))
    print(text(net))

It knows no schema: which names there are, and of what kind, is Caffe's to say. Lists are repeated
fields, as in protobuf: ``dim: [1, 2]`` is ``dim: 1 dim: 2``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

DEEPEST = 100  # As in protobuf.


class ParseError(ValueError):
    """Says file and line."""


@dataclass(frozen=True)
class Word:
    """What stands without quotes: a number, true or false, one of an enumeration's names."""

    text: str


@dataclass
class Field:
    name: str
    value: "str | Word | Message"
    line: int = field(default=0, compare=False)


@dataclass
class Message:
    """Fields in their order; a name may be there several times."""

    fields: list[Field] = field(default_factory=list)

    def values(self, name: str) -> list[Any]:
        """Of all fields of that name; words as Python has them: 1, 0.5, True, "LMDB"."""
        return [_python(each.value) for each in self.fields if each.name == name]

    def value(self, name: str, default: Any = None) -> Any:
        found = self.values(name)
        return found[-1] if found else default

    def messages(self, name: str) -> list["Message"]:
        return [value for value in self.values(name) if isinstance(value, Message)]

    def message(self, name: str) -> "Message":
        """The last of that name; an empty one, which is not part of this, if there is none."""
        found = self.messages(name)
        return found[-1] if found else Message()

    def line(self, name: str) -> int:
        """Where it is; 0: nowhere."""
        return next((each.line for each in self.fields if each.name == name), 0)

    def add(self, name: str, value: Any) -> "Message":
        """At the end. Texts are written with quotes, Words without."""
        self.fields.append(Field(name, _tree(value)))
        return self

    def remove(self, *names: str) -> "Message":
        self.fields = [each for each in self.fields if each.name not in names]
        return self


def parse(content: str, name: str = "prototxt") -> Message:
    """Raises ParseError. `name` is for its sentences."""
    tokens = _Tokens(content, name)
    return _message(tokens, _Token("sign", "", 1), 0)


def text(message: Message, indent: str = "") -> str:
    """One field to a line."""
    lines = []
    for each in message.fields:
        if isinstance(each.value, Message):
            inside = text(each.value, indent + "  ")
            lines.append(f"{indent}{each.name} {{\n{inside}{indent}}}\n")
        else:
            value = each.value.text if isinstance(each.value, Word) else _quoted(each.value)
            lines.append(f"{indent}{each.name}: {value}\n")
    return "".join(lines)


def _python(value: "str | Word | Message") -> Any:
    if not isinstance(value, Word):
        return value
    if value.text in ("true", "false"):
        return value.text == "true"
    for kind in (int, float):
        try:
            return kind(value.text.removesuffix("f") if kind is float else value.text)
        except ValueError:
            continue
    return value.text


def _tree(value: Any) -> "str | Word | Message":
    if isinstance(value, str | Word | Message):
        return value
    return Word(str(value).lower() if isinstance(value, bool) else repr(value))


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


_TOKEN = re.compile(
    r"""(?P<blank>\s+|\#[^\n]*)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<word>[\w.+-]+)
    |(?P<sign>[{}<>\[\]:,;])""",
    re.ASCII | re.VERBOSE,
)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_BRACKETS = {"{": "}", "<": ">"}


class _Tokens:
    """One token ahead."""

    def __init__(self, content: str, name: str):
        self._name = name
        self._tokens = self._read(content)
        self.next = next(self._tokens)

    def take(self) -> _Token:
        taken = self.next
        if taken.kind != "end":
            self.next = next(self._tokens)
        return taken

    def skip(self, *signs: str) -> bool:
        """Whether one of them was there."""
        there = self.next.kind == "sign" and self.next.text in signs
        if there:
            self.take()
        return there

    def error(self, line: int, what: str) -> ParseError:
        return ParseError(f"{self._name}:{line}: {what}")

    def _read(self, content: str) -> Iterator[_Token]:
        position, line = 0, 1
        while position < len(content):
            found = _TOKEN.match(content, position)
            if found is None:
                if content[position] in "\"'":
                    raise self.error(line, "a string that does not end on its line")
                raise self.error(line, f"{content[position]!r} where nothing of its kind can be")
            if found.lastgroup != "blank":
                yield _Token(str(found.lastgroup), found[0], line)
            line += found[0].count("\n")
            position = found.end()
        yield _Token("end", "the end of the text", line)


def _message(tokens: _Tokens, opening: _Token, depth: int) -> Message:
    """After its opening bracket, to the closing one; if there is none, to the end."""
    closing = _BRACKETS.get(opening.text)
    if depth > DEEPEST:
        raise tokens.error(opening.line, f"more than {DEEPEST} messages in each other")
    message = Message()
    while not tokens.skip(closing) if closing else tokens.next.kind != "end":
        if tokens.next.kind == "end":
            raise tokens.error(opening.line, f"there is no '{closing}' for what begins here")
        message.fields += _field(tokens, depth)
        tokens.skip(",", ";")
    return message


def _field(tokens: _Tokens, depth: int) -> list[Field]:
    name = tokens.take()
    if name.kind != "word" or not _NAME.fullmatch(name.text):
        raise tokens.error(name.line, f"{name.text} where a field's name was expected")
    colon = tokens.skip(":")
    if not colon and tokens.next.text not in ("{", "<"):
        what = f"after '{name.text}' there is {tokens.next.text}, and neither ':' nor '{{'"
        raise tokens.error(name.line, what)
    values = _list(tokens, depth) if tokens.skip("[") else [_value(tokens, depth)]
    return [Field(name.text, value, name.line) for value in values]


def _list(tokens: _Tokens, depth: int) -> list[str | Word | Message]:
    values: list[str | Word | Message] = []
    while not tokens.skip("]"):
        if values and not tokens.skip(","):
            line = tokens.next.line
            raise tokens.error(line, f"{tokens.next.text} in a list where ',' or ']' was expected")
        values.append(_value(tokens, depth))
    return values


def _value(tokens: _Tokens, depth: int) -> str | Word | Message:
    token = tokens.take()
    if token.kind == "string":
        # Strings that follow each other are one.
        parts = [token]
        while tokens.next.kind == "string":
            parts.append(tokens.take())
        content = b"".join(_unquoted(tokens, part) for part in parts)
        return content.decode("utf-8", "surrogateescape")
    if token.kind == "word":
        # A minus may stand by itself.
        alone = token.text == "-" and tokens.next.kind == "word"
        return Word(token.text + tokens.take().text if alone else token.text)
    if token.text in ("{", "<"):
        return _message(tokens, token, depth + 1)
    raise tokens.error(token.line, f"{token.text} where a value was expected")


_ESCAPE = re.compile(rb"\\([0-7]{1,3}|[xX][0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS = {
    b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v",
    b"\\": b"\\", b"?": b"?", b"'": b"'", b'"': b'"',
}  # fmt: skip


def _unquoted(tokens: _Tokens, string: _Token) -> bytes:
    def meant(found: re.Match[bytes]) -> bytes:
        escape = found[1]
        if escape[:1] in b"01234567":
            return bytes([int(escape, 8) & 0xFF])
        if len(escape) > 1:
            code = int(escape[1:], 16)
            wide = escape[:1] == b"u"
            return chr(code).encode("utf-8", "surrogatepass") if wide else bytes([code])
        if escape not in _LETTERS:
            what = escape.decode(errors="replace")
            raise tokens.error(string.line, f"'\\{what}' in a string stands for nothing")
        return _LETTERS[escape]

    return _ESCAPE.sub(meant, string.text[1:-1].encode("utf-8", "surrogateescape"))


def _quoted(value: str) -> str:
    """In plain ASCII, whatever it holds."""
    content = value.encode("utf-8", "surrogateescape")
    plain = {byte: chr(byte) for byte in range(0x20, 0x7F)} | {0x22: '\\"', 0x5C: "\\\\"}
    return '"' + "".join(plain.get(byte, f"\\{byte:03o}") for byte in content) + '"'
