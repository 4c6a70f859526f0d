"""What programs write when they fail, as they write it, and what looks alike and is none of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import chain

import pyarrow as pa
from hypothesis import strategies as st

from logpipeline.multiline import LIMITS, Joiner, Limits, Rules
from logpipeline_spark.events import COLUMNS
from logpipeline_spark.lines.schema import LINES
from tables.made import BEGIN, LIFE, STREAM

# One event each, by preset.
TRACES: dict[str, tuple[str, ...]] = {
    "java": (
        # Nested causes and suppressed ones, common frames left out.
        "2026-11-24 10:00:00.123 ERROR 7 --- [exec-1] c.e.shop.Cart : checkout failed\n"
        'org.springframework.dao.DataAccessException: query failed; nested: "x"\n'
        "\tat org.springframework.jdbc.core.JdbcTemplate.execute(JdbcTemplate.java:392)\n"
        "\tat com.example.shop.Cart.lambda$checkout$0(Cart.java:17) ~[app.jar:1.2]\n"
        "\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
        "\tSuppressed: java.io.IOException: close failed\n"
        "\t\tat com.example.shop.Pool.close(Pool.java:5)\n"
        "\t\t... 23 more\n"
        "\tCaused by: java.lang.IllegalStateException\n"
        "\t\tat com.example.shop.Pool.check(Pool.java:9)\n"
        "\t\t... 1 common frames omitted\n"
        "Caused by: java.sql.SQLException: deadlock\n"
        "\tat sun.reflect.NativeMethodAccessorImpl.invoke0(Native Method)\n"
        "\tat com.sun.proxy.$Proxy12.<init>(Unknown Source)\n"
        "\t[CIRCULAR REFERENCE: java.sql.SQLException: deadlock]\n"
        "\t... suppressed 5 lines",
        # With a carriage return, nothing before it, and nothing said.
        "java.lang.NullPointerException\r\n\tat com.example.Main.main(Main.java:3)\r",
        'Exception in thread "main" java.lang.StackOverflowError\n'
        "\tat com.example.Main.f(Main.java:3)\n"
        "\tat com.example.Main.f(Main.java:3)",
        # A message of two lines.
        "com.fasterxml.jackson.databind.exc.MismatchedInputException: no content\n"
        ' at [Source: (String)"{"; line: 1, column: 2] (through reference chain: A["b"])\n'
        "\tat com.fasterxml.jackson.databind.JsonMappingException.from(X.java:1)",
        # Kotlin's coroutines, and an exception that is not called one.
        "com.example.Oops: boom\n"
        "\tat MainKt$main$1.invokeSuspend(Main.kt:5)\n"
        "\tat _COROUTINE._BOUNDARY._(CoroutineDebugging.kt:46)\n"
        "\t(Coroutine boundary)\n"
        "\tat app//kotlinx.coroutines.DispatchedTask.run(DispatchedTask.kt:108)\n"
        "Caused by: com.example.Oops: boom\n"
        "\tat MainKt.f(Main.kt:9)",
    ),
    "python": (
        "ERROR:root:no luck\n"
        "Traceback (most recent call last):\n"
        '  File "/app/shop.py", line 3, in <module>\n'
        "    pay(cart)\n"
        "    ~~~^^^^^^\n"
        '  File "/app/shop.py", line 9, in pay\n'
        "    return pay(\n"
        "        1,\n"
        "    )\n"
        "  [Previous line repeated 970 more times]\n"
        "KeyError: 'error'\n"
        "\n"
        "During handling of the above exception, another exception occurred:\n"
        "\n"
        "Traceback (most recent call last):\n"
        '  File "/app/shop.py", line 4, in <module>\n'
        "    raise shop.errors.PayError('x') from e\n"
        "shop.errors.PayError: x\n"
        "\n"
        "The above exception was the direct cause of the following exception:\n"
        "\n"
        "Traceback (most recent call last):\n"
        '  File "/app/shop.py", line 6, in <module>\n'
        "KeyboardInterrupt",
        '  File "/app/x.py", line 1\n'
        '    print "x"\n'
        "    ^^^^^^^^^\n"
        "SyntaxError: Missing parentheses in call to 'print'. Did you mean print(...)?",
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/app/x.py", line 1, in <module>\n'
        "  |     raise ExceptionGroup('eg', [a, b])\n"
        "  | ExceptionGroup: eg (2 sub-exceptions)\n"
        "  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n"
        '    |   File "/app/x.py", line 1, in f\n'
        "    | ValueError: 1\n"
        "    | \n"
        "    | During handling of the above exception, another exception occurred:\n"
        "    | \n"
        "    | TypeError: 1\n"
        "    +---------------- 2 ----------------\n"
        "    | ValueError: 2\n"
        "    +------------------------------------",
        "2026-11-24 10:00:00,1 [CRITICAL] app: stopped\n"
        "Traceback (most recent call last):\n"
        '  File "x.py", line 1, in <module>\n'
        "main.<locals>.MyError: x\r",
    ),
    "go": (
        "panic: a [recovered]\n"
        "\tpanic: runtime error: invalid memory address\n"
        "[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x48]\n"
        "\n"
        "goroutine 1 gp=0xc000002380 m=0 mp=0x5 [running, locked to thread]:\n"
        "panic({0x48ae60, 0xc000012}?)\n"
        "\t/usr/local/go/src/runtime/panic.go:884 +0x213\n"
        "main.(*T).f(0xc000, {0x1, 0x2})\n"
        "\t/app/main.go:9 +0x1d\n"
        "...additional frames elided...\n"
        "created by main.main in goroutine 1\n"
        "\t/app/main.go:5 +0x3f\n"
        "\n"
        "goroutine 18 [chan receive, 2 minutes]:\n"
        "net/http.(*conn).serve(0x1, {0x7, 0xc0})\n"
        "\t/usr/local/go/src/net/http/server.go:1 +0x1\n"
        "exit status 2",
        "runtime: goroutine stack exceeds 1000000000-byte limit\n"
        "runtime: sp=0xc0200e1390 stack=[0xc0200e0000, 0xc0400e0000]\n"
        "fatal error: stack overflow\n"
        "\n"
        "runtime stack:\n"
        "runtime.throw({0x4a, 0xe})\n"
        "\t/usr/local/go/src/runtime/panic.go:1077 +0x5c\n"
        "\n"
        "rax    0x0\n"
        "rip    0x4653e1\n"
        "\n"
        "goroutine 1 [running]:",
        "2026/11/24 10:00:00 http: panic serving 127.0.0.1:5: boom\n"
        "goroutine 7 [running]:\n"
        "net/http.(*conn).serve.func1()\n"
        "\t/usr/local/go/src/net/http/server.go:1868 +0xb9",
        '2026-11-24T10:00:00.000Z\tERROR\tapp/main.go:12\tno luck\t{"a": 1}\n'
        "main.main\n"
        "\t/app/main.go:12\n"
        "runtime.main\n"
        "\t/usr/local/go/src/runtime/proc.go:267",
    ),
    "node": (
        "/app/x.js:10\n"
        "    throw new Error('x');\n"
        "    ^\n"
        "\n"
        "Error: ENOENT: no such file or directory, open 'x'\n"
        "    at Object.openSync (node:fs:601:3)\n"
        "    at new Foo (/app/x.js:1:2)\n"
        "    at Object.bar [as baz] (/app/x.js:1:2)\n"
        "    at async Promise.all (index 0)\n"
        "    at eval (eval at <anonymous> (/app/x.js:1:1), <anonymous>:1:1)\n"
        "    at file:///app/x.mjs:3:7\n"
        "    at Array.map (<anonymous>) {\n"
        "  errno: -2,\n"
        "  [cause]: TypeError: y is no function\n"
        "      at f (file.js:1:2)\n"
        "      ... 7 lines matching cause stack trace ...\n"
        "      at async g (file.js:1:2) {\n"
        "    code: 'Y'\n"
        "  }\n"
        "}\n"
        "\n"
        "Node.js v20.11.0",
        '{"level":"error","msg":"no luck"}\n'
        "TypeError [ERR_INVALID_ARG_TYPE]: x\n"
        "    at fn (file.js:1:2)\n"
        "    at process.processTicksAndRejections (node:internal/process/task_queues:95:5)",
    ),
    "ruby": (
        "app.rb:3:in `foo': undefined method `bar' for nil:NilClass (NoMethodError)\n"
        "\n"
        "    nil.bar\n"
        "       ^^^^\n"
        "Did you mean?  baz\n"
        "\tfrom <internal:kernel>:187:in `loop'\n"
        "\t ... 10067 levels...\n"
        "\tfrom app.rb:10:in `<main>'\n"
        "app.rb:2:in 'Integer#/': divided by 0 (ZeroDivisionError)\n"
        "\tfrom app.rb:2:in 'Object#f'",
        "E, [2026-11-24T10:00:00.1 #7] ERROR -- : boom (RuntimeError)\n"
        "app/models/cart.rb:3:in `pay'\n"
        "/usr/lib/ruby/3.0.0/irb.rb:10:in `block in main'",
    ),
    "dotnet": (
        "[10:00:00 ERR] no luck\n"
        "System.InvalidOperationException: outer\n"
        " ---> System.ArgumentException: inner (Parameter 'x')\n"
        "   at Shop.Cart.<>c__DisplayClass1_0.<<Pay>b__0>d.MoveNext() in /src/Cart.cs:line 5\n"
        "   --- End of inner exception stack trace ---\n"
        "   at Shop.Cart.Pay[T](T x, Int32 y) in C:\\src\\Cart.cs:line 7\n"
        "--- End of stack trace from previous location ---\n"
        "   at Shop.Program.Main(String[] args)",
        "Unhandled exception. System.NullReferenceException: no object\n   at Shop.Program.Main()",
        "fail: Microsoft.AspNetCore.Server.Kestrel[13]\n"
        "      Connection id 0HM: an unhandled exception was thrown.\n"
        "      System.Exception: boom\n"
        "       ---> System.IO.IOException: x\n"
        "         at Shop.Cart.Pay() in /src/Cart.cs:line 5\n"
        "         --- End of inner exception stack trace ---",
    ),
}
# Lines that are events of their own, whatever preset is asked for.
ORDINARY = """\
2026-11-24 10:00:00 INFO started
{
  "level": "info",
  "frames": [
    "at home (again)"
  ]
}
apiVersion: v1
metadata:
  name: web
    labels:
      app: web
\tafter a tab
\t\tand after two
at 10:00:05 done
  at 10:00:05 done
    at the end of line 7:3
 id | name
----+------
 | a | b
 +---+---+
    | c
done.
Caused by: the weather
File "x", line 3
Step 2 : RUN make
 ---> Running in 0d1e2f
... 3 more
  ... 3 more files
  ... 4 more files
goroutines: 7
main.go: ok
error
   ^ here
java.lang is a package
exit status 0
"""
FRAGMENTS = sorted(
    {line for texts in TRACES.values() for text in texts for line in text.split("\n")}
    | set(ORDINARY.split("\n"))
    | {"grün at 10", "   ", "x" * 40}
)


def lines_of(*texts: str) -> list[str]:
    """Return the lines of *texts*, one after the other."""
    return [line for text in texts for line in text.split("\n")]


# Lines at random, and traces that are cut anywhere.
_PIECES = st.one_of(
    st.sampled_from(FRAGMENTS).map(lambda line: [line]),
    st.tuples(
        st.sampled_from([lines_of(text) for texts in TRACES.values() for text in texts]),
        st.integers(0, 20),
        st.integers(1, 20),
    ).map(lambda cut: cut[0][cut[1] : cut[1] + cut[2]]),
)
SOME_LINES = st.lists(_PIECES, max_size=6).map(lambda pieces: list(chain(*pieces)))
# Which source a line is of: stdout and stderr of a container, a file, a rotated file, the same file
# of another host, and what another client sent.
SOURCES: tuple[dict[str, object], ...] = (
    {"source": "shop/cart-1/uid/cart/0", "pod": "cart-1", "fd": "stdout"},
    {"source": "shop/cart-1/uid/cart/0", "pod": "cart-1", "fd": "stderr"},
    {"source": "/var/log/app.log"},
    {"source": "/var/log/app.log", "generation": "h"},
    {"source": "/var/log/app.log", "host": "web2"},
    {"source": None, "generation": None, "offset": None},
)


@st.composite
def some_rows(draw: st.DrawFn) -> list[dict[str, object]]:
    """Lines of several sources in between one another; some were sent again later than others."""
    kept = {number: draw(SOME_LINES) for number in draw(st.sets(st.sampled_from(range(6))))}
    order = draw(st.permutations([n for n, lines in kept.items() for _ in lines]))
    seqs = draw(st.permutations(range(1, len(order) + 1))) if draw(st.booleans()) else None
    rows = []
    for place, number in enumerate(order):
        seq = seqs[place] if seqs else place + 1
        level = draw(st.sampled_from([None, None, "info", "error"]))
        # Messages of the other client have two lines.
        said = {"offset": place * 100, "event_ts": BEGIN + timedelta(seconds=place), "level": level}
        of = {"seq": seq // 2, "idx": seq % 2} if number == 5 else {}
        rows.append(row_of(seq, kept[number].pop(0), **(said | of | SOURCES[number])))
    return rows


def row_of(seq: int, text: str, /, **more: object) -> dict[str, object]:
    """Return the row of one line, which is a message; *more* says of which source."""
    said: dict[str, object] = {
        "stream": STREAM,
        "incarnation": LIFE,
        "seq": seq,
        "idx": 0,
        "ts": BEGIN,
        "host": "web1",
        "source": "/var/log/app.log",
        "generation": "g",
        "offset": seq * 100,
        "line": text,
    }
    return said | more


def table_of(rows: Sequence[dict[str, object]]) -> pa.Table:
    """Return *rows* as a table of lines."""
    return pa.Table.from_pylist(list(rows), schema=LINES)


def joined(
    rows: Sequence[dict[str, object]], rules: Sequence[Rules], limits: Limits = LIMITS
) -> list[dict[str, object]]:
    """Return the events of *rows* as a `Joiner` has them, sorted."""
    sources: dict[tuple[object, ...], list[dict[str, object]]] = {}
    for row in table_of(rows).to_pylist():
        message = row["seq"] if row["source"] is None else None
        key = (row["host"], row["source"], row["generation"], row["fd"], message)
        sources.setdefault(key, []).append(row)
    found: list[dict[str, object]] = []
    for lines in sources.values():
        lines.sort(key=lambda row: (row["offset"] or 0, row["seq"], row["idx"]))
        joiner = Joiner(rules, limits)
        for row in lines:
            line = row["line"]
            if joiner.begins(str(line)):
                found.append({name: row[name] for name in COLUMNS} | {"text": line, "lines": 1})
            else:
                event = found[-1]
                event["level"] = event["level"] or row["level"]
                event["text"] = f"{event['text']}\n{line}"
                event["lines"] = int(str(event["lines"])) + 1
    return by_key(found)


def by_key(events: Iterable[dict[str, object]]) -> list[dict[str, object]]:
    """Return *events* in the order of their first lines."""
    return sorted(events, key=lambda event: (event["seq"], event["idx"], str(event["source"])))
