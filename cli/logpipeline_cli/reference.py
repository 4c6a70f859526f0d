"""Writes the reference of the command line (docs/cli.md) from the parser, so that the two agree."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from logpipeline_cli import arguments
from logpipeline_cli.arguments import kubectl
from logpipeline_cli.arguments.parser import PROGRAM, Command

_HEAD = f"""\
# The command `{PROGRAM}`

Made from the code by `make generate`.

Every command has `--help`. Commands find the pipeline that runs on this machine by themselves;
where none or several run, choose one with `-f FILE` or `--data DIR`.

| Exit code | Meaning |
| --- | --- |
| 0 | done; for `plan`: nothing to change |
| 1 | something failed, or a check found a problem; standard error says what |
| 2 | `plan` found something to change |
| 3 | `collect`: another process is this collector |
| 64 | the arguments are wrong |
| 130 | ended by Ctrl-C |
| 141 | the reader of its output (`head`) closed the pipe before all was written |

Control characters in log lines are shown escaped (`\\x1b`) unless `--raw` is given. CSV is escaped
on a terminal, and exact in a file or pipe.
"""


# Between the commands of one machine and those of a cluster.
_CLUSTER = f"""\
# In a cluster: `{kubectl.PROGRAM}`

The program `kubectl-logpipeline` comes with the package's extra `[kubernetes]`, is a plugin of
kubectl, and needs it. It uses the context and the namespace that kubectl would use, and in that
namespace the only LogPipeline, or the one that `--pipeline` names. Exit codes are those above.

| Command | Rights in the pipeline's namespace, besides getting and listing `logpipelines` |
| --- | --- |
| `status`, `top`, `console`, `losses`, `tail`, `plan` | get `services` and `configmaps`, \
get and list `pods`, create `pods/portforward`; and create `serviceaccounts/token` of \
`<name>-reader`, or get `secrets` |
| `losses --acknowledge`, `dlq` | get `secrets`, `services` and `configmaps`, get and list `pods`, \
create `pods/portforward` |
| `files`, `audit` | list `persistentvolumeclaims`, get and list `pods`, create `pods/exec` |
| `files` and `audit`, of collectors that are gone | besides: get `statefulsets`, \
create and delete `pods` |

The certificate of a managed server is checked by the ConfigMap `<name>-nats-ca`. A token of
`<name>-reader` gives read access to a managed server and its pipeline. Where that account does not
exist, or you may not create its tokens, the command logs in with the operator's password. With
`--nats URL` there is no port-forward; where the URL has a user and password, the command asks for
neither a token nor a Secret.
"""


def reference() -> str:
    """Return the reference as Markdown."""
    parts = [_HEAD, *_sections(arguments.build_parser(), arguments.COMMANDS)]
    parts += [_CLUSTER, *_sections(kubectl.build_parser(), kubectl.COMMANDS)]
    return "\n".join(parts)


def _sections(parser: argparse.ArgumentParser, commands: Iterable[Command]) -> Iterator[str]:
    parsers = _subparsers(parser)
    for command in commands:
        yield _section(parsers[command.name], command.description, command.example)
        for sub in _subparsers(parsers[command.name]).values():
            yield f"### `{sub.prog}`\n\n{_body(sub)}"


def _section(parser: argparse.ArgumentParser, description: str, example: str) -> str:
    text = " ".join(description.split())
    head = f"## `{parser.prog}`\n\n{text}\n\n```sh\n{example}\n```\n"
    return f"{head}\n{body}" if (body := _body(parser)) else head


def _body(parser: argparse.ArgumentParser) -> str:
    if _subparsers(parser):
        return ""
    rows = [f"| {words} | {meaning.replace('<', '&lt;')} |" for words, meaning in _options(parser)]
    if not rows:
        return "It has no options.\n"
    return "\n".join(("| Option | Meaning |", "| --- | --- |", *rows)) + "\n"


def _options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
        if action.choices is not None:
            value = "|".join(str(choice) for choice in action.choices)
        words = ", ".join(action.option_strings)
        if action.nargs != 0:
            words = f"{words} {value}".strip()
        needed = " (required)" if action.required else ""
        yield f"`{words}`".replace("|", "\\|"), f"{action.help}{needed}"


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}
