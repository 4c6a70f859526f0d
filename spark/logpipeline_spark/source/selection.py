"""Which streams are read, as the server has them now, and which root their subjects have. Who names
a pipeline or a pattern gets streams that are added later, too.
"""

from __future__ import annotations

import re

from logpipeline.streamstate import StreamState
from logpipeline.subjects import Names, Subjects, meet, root_of
from logpipeline_spark.errors import Refused
from logpipeline_spark.source.client import Client
from logpipeline_spark.source.options import PARTITIONS_MAX, SourceOptions

SHOWN_MAX = 10

States = dict[str, StreamState]


def look(client: Client, options: SourceOptions) -> States:
    """Return what each stream of *options* is now.

    Raises:
        Refused: there is none, or one of them cannot be read as the options say.
    """
    if options.is_fixed:
        seen = {stream: client.state(stream) for stream in options.streams}
    elif options.base:
        seen = _numbered(client, options.base)
    else:
        seen = _matching(client, options.pattern)
    for stream, state in seen.items():
        _root(options, stream, state)
    return seen


def roots(options: SourceOptions, seen: States) -> dict[str, str]:
    """Return the root of each stream's subjects; empty for messages, which are not taken apart.

    Raises:
        Refused: the options name another one, or none where the stream does not say which.
    """
    return {stream: _root(options, stream, state) for stream, state in seen.items()}


def _numbered(client: Client, base: str) -> States:
    names = Names(subject="", stream_base=base)
    seen: States = {}
    for number in range(PARTITIONS_MAX):
        stream = names.stream(number)
        state = client.find(stream)
        if state is None:
            break
        seen[stream] = state
    if not seen:
        raise Refused(
            f"stream {names.stream(0)} does not exist at {client.servers}; check the option "
            "'pipeline', or give 'stream' and 'partitions' where the LogPipeline names its streams "
            "itself: `logpipeline stream options` prints what to write"
        )
    return seen


def _matching(client: Client, pattern: str) -> States:
    names = client.names()
    found = [name for name in names if re.fullmatch(pattern, name)]
    # A stream may be deleted between the two questions.
    states = {name: client.find(name) for name in found}
    seen = {name: state for name, state in states.items() if state is not None}
    if not seen:
        raise Refused(
            f"option 'subscribePattern': {pattern!r} matches the whole name of no stream at "
            f"{client.servers}; there are {_shown(names) or 'none'}"
        )
    return seen


def _root(options: SourceOptions, stream: str, state: StreamState) -> str:
    if options.format != "lines":
        return ""
    roots = {root_of(subject) for subject in state.subjects}
    if options.subject:
        if state.subjects and not any(
            _is_stored(options.subject, subject) for subject in state.subjects
        ):
            raise Refused(
                f"stream {stream} stores {_shown(state.subjects)}, and nothing of the option "
                f"'subject', {options.subject!r}; {_instead(roots)}"
            )
        return options.subject
    (root, *more) = roots or {None}
    if root is None or more:
        raise Refused(
            f"stream {stream} stores {_shown(state.subjects) or 'what other streams have'}, which "
            "does not say what its subjects begin with; give the option 'subject', such as logs "
            "where they are logs.p0.web1, or read 'format' messages"
        )
    return root


def _is_stored(root: str, subject: str) -> bool:
    """Return whether a stream of *subject* stores what is published below *root*."""
    if own := root_of(subject):
        return own == root
    return meet(subject, Subjects(root, 1).of_all())


def _instead(roots: set[str | None]) -> str:
    named = sorted(root for root in roots if root)
    if len(named) == 1:
        return f"write {named[0]!r}, or leave the option out"
    return "write what these begin with"


def _shown(names: tuple[str, ...] | list[str]) -> str:
    more = len(names) - SHOWN_MAX
    text = ", ".join(sorted(names)[:SHOWN_MAX])
    return f"{text} and {more} more" if more > 0 else text
