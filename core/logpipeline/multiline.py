"""Events of several lines: a stack trace is dozens of lines, and its reader wants one event.

Rules are data: `Joiner` follows them line by line, and `logpipeline_spark.events` makes SQL of them
that decides the same. A line is judged by its own text and that of the two lines before it, never
by later lines: a program that follows a log knows at once whether a line begins an event.

Expressions are in what RE2, Java and Python read alike: no lookaround, no `.`, and none of `\\s`,
`\\w`, `\\d` and `\\b`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

# A StackOverflowError prints 1024 frames for each of its causes; a dump of a busy Go program has
# some thousand lines.
EVENT_LINES_MAX = 5_000
# As much as the longest line may have: what reads lines reads events. The line that passes it is
# the event's last, so that an event is at most twice as long.
EVENT_BYTES_MAX = 1_000_000

# All presets at once.
AUTO = "auto"
# The kind of a line that none of the expressions finds.
OTHER = "other"
BLANK = "blank"
_BLANK = (BLANK, r"^[ \t]*\r?$")
# A trace joins the line before it where that one reports a failure. So an exception stands with
# the line that logged it, and one that nothing caught does not stand with whatever came before.
ALARM = "alarm"
_ALARM = (
    ALARM,
    r"^[EFW][0-9]{4} |(^|[^A-Za-z])(WARN|WARNING|ERR|ERROR|SEVERE|CRIT|CRITICAL|FATAL|PANIC"
    r"|EXCEPTION|[Ww]arn|[Ww]arning|[Ee]rror|[Ss]evere|[Cc]ritical|[Ff]atal|[Pp]anic"
    r"|[Ee]xception)([^A-Za-z]|$)",
)


@dataclass(frozen=True, slots=True)
class Join:
    """A line of *kind* continues an event whose last line is of a kind in *after*, or whose last
    line but one is of a kind in *over_blank* and whose last is blank.
    """

    kind: str
    after: tuple[str, ...] = ()
    over_blank: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """Kinds of lines, and how they are joined. The kind of a line is the first of *kinds* whose
    expression finds something in it. Kinds in *closed* look like many an ordinary line: they
    continue what a line of another kind began, and nothing else.
    """

    kinds: tuple[tuple[str, str], ...]
    joins: tuple[Join, ...]
    closed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The size of an event; a line that continues a full one begins another."""

    lines: int = EVENT_LINES_MAX
    bytes: int = EVENT_BYTES_MAX


LIMITS = Limits()


class Joiner:
    """Decides of the lines of one source, in their order, which of them begin an event. With
    several *rules* a line continues an event where one of them says so.

    Raises:
        ValueError: an expression is none that Python knows.
    """

    def __init__(self, rules: Sequence[Rules], limits: Limits = LIMITS) -> None:
        self._machines = [_Machine(each) for each in rules]
        self._limits = limits
        # Of the event, all of its parts together: where it is full does not depend on where it was
        # full before, so that SQL can count it as well.
        self._lines = 0
        self._bytes = 0
        self._last_bytes = 0

    def begins(self, line: str) -> bool:
        """Return whether *line*, which has no newline, begins an event."""
        # All of them have to see each line.
        found = [machine.continues(line) for machine in self._machines]
        continues = any(found)
        if not continues:
            self._lines = self._bytes = 0
        begins = not continues or self._is_full()
        self._last_bytes = len(line.encode(errors="replace")) + 1
        self._lines += 1
        self._bytes += self._last_bytes
        return begins

    def _is_full(self) -> bool:
        most = self._limits
        former = self._bytes - self._last_bytes
        return self._lines % most.lines == 0 or self._bytes // most.bytes > former // most.bytes


def events_of(
    lines: Iterable[str], rules: Sequence[Rules], limits: Limits = LIMITS
) -> Iterator[list[str]]:
    """Yield the events of one source, each as its *lines*.

    Raises:
        ValueError: an expression is none that Python knows.
    """
    joiner = Joiner(rules, limits)
    event: list[str] = []
    for line in lines:
        if joiner.begins(line) and event:
            yield event
            event = []
        event.append(line)
    if event:
        yield event


class _Machine:
    """Follows one set of rules through the lines of one source."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._kinds = [(kind, _compiled(pattern)) for kind, pattern in rules.kinds]
        # The kinds of the last two lines.
        self._before: tuple[str | None, str | None] = (None, None)
        # Whether what runs up to the last line was begun by more than a closed kind.
        self._is_open = False

    def continues(self, line: str) -> bool:
        kind = next((kind for kind, pattern in self._kinds if pattern.search(line)), OTHER)
        continues = self._is_open and any(self._joins(join, kind) for join in self._rules.joins)
        self._is_open = continues or kind not in self._rules.closed
        self._before = (self._before[1], kind)
        return continues

    def _joins(self, join: Join, kind: str) -> bool:
        older, former = self._before
        is_over_blank = former == BLANK and older in join.over_blank
        return kind == join.kind and (former in join.after or is_over_blank)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        # As RE2 and Java: letters and digits are those of ASCII.
        return re.compile(pattern, re.ASCII)
    except re.error as error:
        raise ValueError(f"the pattern {pattern!r} has a mistake, correct it: {error}") from None


def chosen(names: Sequence[str] = (), begin: str | None = None) -> tuple[Rules, ...]:
    """Return the rules of the presets *names*, of which AUTO means all, and those of an own
    expression: an event begins at each line that *begin* finds something in. Where neither is
    given, all presets are meant.

    Raises:
        ValueError: one of *names* is neither a preset nor AUTO.
    """
    if unknown := [name for name in names if name not in (*PRESETS, AUTO)]:
        raise ValueError(f"there is no preset {unknown[0]!r}: take {', '.join(PRESETS)} or {AUTO}")
    is_all = AUTO in names or (not names and begin is None)
    presets = tuple(PRESETS) if is_all else tuple(dict.fromkeys(names))
    own = () if begin is None else (_from(begin),)
    return (*(PRESETS[name] for name in presets), *own)


def _from(begin: str) -> Rules:
    return Rules(kinds=(("begin", begin),), joins=(Join(OTHER, after=("begin", OTHER)),))


# Also Kotlin and Scala. A frame is so plain that it joins whatever is before it: the first line of
# an exception of one's own, or the second line of its message, looks like any line.
_JAVA = Rules(
    kinds=(
        # Jackson's messages have a second line that begins with ` at [Source: `.
        ("frame", r"^[ \t]+at ([A-Za-z_$<][^ ()]*\(|\[Source: )"),
        ("note", r"^[ \t]+(\.\.\. ([0-9]+|suppressed [0-9]+) [a-z]|\(Coroutine boundary\))"),
        ("cause", r"^[ \t]*(Caused by: |Suppressed: |Wrapped by: |\[CIRCULAR REFERENCE)"),
        ("thread", r'^Exception in thread "'),
        (
            "head",
            r"^[a-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_$]+)*"
            r"\.[A-Za-z0-9_$]*(Exception|Error|Throwable|Failure)[A-Za-z0-9_$]*(:|\r?$)",
        ),
        _ALARM,
    ),
    joins=(
        Join("frame", after=("frame", "note", "cause", "thread", "head", ALARM, OTHER)),
        Join("note", after=("frame", "note", "cause")),
        Join("cause", after=("frame", "note", "cause", "thread", "head", ALARM)),
        Join("head", after=(ALARM,)),
    ),
    closed=("note",),
)
_PYTHON = Rules(
    kinds=(
        _BLANK,
        # logging's own format; without this it would look like the last line of a traceback.
        (ALARM, r"^(WARNING|ERROR|CRITICAL):"),
        ("record", r"^(DEBUG|INFO):"),
        ("traceback", r"^ *(\+ Exception Group )?Traceback \(most recent call last\):"),
        ("chain", r"^(During handling of the above exc|The above exception was the direct cause)"),
        ("file", r'^ +File "[^"]*", line [0-9]+'),
        # Of a group of exceptions: its last line, then all others.
        ("end", r"^ +\+-+\r?$"),
        ("bar", r"^ +(\||\+-)"),
        ("code", r"^(    +[^ ]|  \[Previous line repeated )"),
        ("error", r"^[A-Za-z_][A-Za-z0-9_.<>]*(:|\r?$)"),
        _ALARM,
    ),
    joins=(
        Join("traceback", after=("chain", ALARM), over_blank=("chain",)),
        Join("chain", after=("error", "end"), over_blank=("error", "end")),
        Join("file", after=("traceback", "file", "code", "bar")),
        Join("code", after=("file", "code", "bar")),
        Join("bar", after=("traceback", "file", "code", "bar")),
        Join("end", after=("bar",)),
        Join("error", after=("traceback", "file", "code", "bar")),
        Join(BLANK, after=("error", "end", "chain")),
    ),
    # A SyntaxError of the program itself has no `Traceback`: a file opens an event, too.
    closed=("end", "bar", "code", "error", BLANK),
)
_GO = Rules(
    kinds=(
        _BLANK,
        ("panic", r"^(panic|fatal error|SIG[A-Z]+): |^unexpected fault address "),
        ("runtime", r"^runtime: "),
        ("signal", r"^\[signal SIG"),
        ("goroutine", r"^(goroutine [0-9]+ [^\[]*\[[^\]]+\]|runtime stack):"),
        ("created", r"^created by [^ ]"),
        ("elided", r"^\.\.\.([0-9]+|additional) frames elided"),
        ("exit", r"^exit status [0-9]+"),
        # Where a frame is, and all but the first line of what a panic says.
        ("tab", r"^\t+[^\t]"),
        ("state", r"^(PC=0x|[a-z][a-z0-9]+ +0x[0-9a-f]+\r?$)"),
        ("call", r"^[A-Za-z_][^ \t]*\("),
        # A frame of zap and of pkg/errors, without arguments.
        ("place", r"^[A-Za-z_][^ \t:(]*\.[^ \t:]+\r?$"),
        _ALARM,
    ),
    joins=(
        Join("panic", after=("runtime",)),
        Join("runtime", after=("runtime",)),
        Join("signal", after=("panic", "tab")),
        Join(
            "goroutine",
            after=("panic", "signal", "tab", ALARM),
            over_blank=("panic", "signal", "tab", "state"),
        ),
        Join("call", after=("goroutine", "tab", "elided")),
        Join("created", after=("tab", "elided")),
        Join("elided", after=("tab",)),
        Join("exit", after=("tab", "state")),
        Join("tab", after=("panic", "tab", "call", "created", "place", "goroutine")),
        Join("state", after=("panic", "signal", "state"), over_blank=("tab",)),
        Join("place", after=(ALARM, "tab")),
        Join(BLANK, after=("panic", "signal", "tab", "state")),
    ),
    closed=(
        *("signal", "created", "elided", "exit", "tab", "state", "call", "place"),
        BLANK,
    ),
)
_NODE_FRAME = (
    r"^ +at ((async )?(new )?[^0-9 ()][^ ()]* (\[as [^ ]*\] )?"
    r"\(([^\r]*:[0-9]+|<anonymous>|index [0-9]+|native)"
    r"|(async )?[^0-9 ()][^ ()]*:[0-9]+:[0-9]+|<anonymous>)"
)
_NODE = Rules(
    kinds=(
        _BLANK,
        # An error's own properties follow, within braces.
        ("brace", _NODE_FRAME + r"[^\r]* \{\r?$"),
        ("frame", _NODE_FRAME),
        ("note", r"^ +\.\.\. [0-9]+ lines matching"),
        # What nothing caught: the file, its line, a mark below it, and then the error.
        ("place", r"^(node:[^ :]*|[^ ]*\.[cm]?[jt]sx?):[0-9]+\r?$"),
        ("mark", r"^ *\^+\r?$"),
        ("version", r"^Node\.js v[0-9]"),
        ("close", r"^ *\}\r?$"),
        ("head", r"^(Uncaught )?[A-Za-z0-9_]*(Error|Exception)( \[[A-Z0-9_]+\])?(:|\r?$)"),
        ("property", r"^ +[^ ]"),
        _ALARM,
    ),
    joins=(
        Join("brace", after=("frame", "note", "head", "property", "close", ALARM, OTHER)),
        Join("frame", after=("frame", "brace", "note", "head", "property", "close", ALARM, OTHER)),
        Join("note", after=("frame",)),
        Join("property", after=("brace", "property", "frame", "close", "place")),
        Join("close", after=("brace", "property", "frame", "close")),
        Join(OTHER, after=("place",)),
        Join(ALARM, after=("place",)),
        Join("mark", after=("property", ALARM, OTHER)),
        Join("head", after=("mark", ALARM), over_blank=("mark",)),
        Join("version", over_blank=("frame", "close")),
        Join(BLANK, after=("mark", "frame", "close")),
    ),
    closed=("note", "mark", "version", "close", "property", BLANK),
)
_RUBY = Rules(
    kinds=(
        _BLANK,
        # The exception: the place where it was raised, and then its message. A frame below it is a
        # place alone.
        ("head", r"^[^ \t]+:[0-9]+:in ['`][^']*': "),
        ("frame", r"^[ \t]*(from )?[^ \t]+:[0-9]+:in ['`]"),
        ("note", r"^[ \t]+\.\.\. [0-9]+ levels\.\.\."),
        ("hint", r"^Did you mean\? "),
        ("mark", r"^ *\^+\r?$"),
        _ALARM,
    ),
    joins=(
        # The exception that caused the one before.
        Join("head", after=("frame",)),
        Join("frame", after=("head", "frame", "note", "hint", "mark", ALARM, OTHER)),
        Join("note", after=("frame",)),
        Join("hint", after=("head", "mark"), over_blank=("mark",)),
        # Ruby shows the code below the message.
        Join(OTHER, over_blank=("head", "hint")),
        Join(ALARM, over_blank=("head", "hint")),
        Join("mark", after=(ALARM, OTHER)),
        Join(BLANK, after=("head", "hint", "mark")),
    ),
    closed=("note", "hint", "mark", BLANK),
)
_DOTNET = Rules(
    kinds=(
        ("frame", r"^[ \t]+at [A-Za-z_<][^ ()]*\("),
        ("inner", r"^ *(---> |<---|--- End of )"),
        # The console's logger writes all but a record's first line further to the right.
        ("record", r"^(trce|dbug|info|warn|fail|crit): "),
        ("text", r"^      +[^ ]"),
        (
            "head",
            r"^(Unhandled [Ee]xception[.:] )?([A-Z][A-Za-z0-9_]*\.)+"
            r"[A-Za-z0-9_`]*(Exception|Error)[A-Za-z0-9_]*(:| |\r?$)",
        ),
        _ALARM,
    ),
    joins=(
        Join("frame", after=("frame", "inner", "text", "head", ALARM, OTHER)),
        Join("inner", after=("frame", "inner", "text", "head", ALARM)),
        Join("text", after=("record", "text")),
        Join("head", after=(ALARM,)),
    ),
    closed=("inner", "text"),
)
PRESETS = {
    "java": _JAVA,
    "python": _PYTHON,
    "go": _GO,
    "node": _NODE,
    "ruby": _RUBY,
    "dotnet": _DOTNET,
}
