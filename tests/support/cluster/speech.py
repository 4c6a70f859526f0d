"""How a pipeline's managed server is spoken to from a pod that has the right password."""

from __future__ import annotations

from cluster.pipelines import Pipeline

# Says the password in plain text, and prints what the server says to that.
SPEAKS_PLAIN = """
import json, pathlib, socket
folder = pathlib.Path("/etc/logpipeline/nats/user")
login = {{"user": (folder / "user").read_text(), "pass": (folder / "password").read_text()}}
with socket.create_connection(("{server}", 4222), 10) as server:
    server.recv(65536)
    try:
        words = json.dumps(login | {{"verbose": False}})
        server.sendall(f"CONNECT {{words}}\\r\\nPING\\r\\n".encode())
        print("answer:", server.recv(100))
    except ConnectionResetError:
        print("answer:", b"")
"""


def says_plain(pipeline: Pipeline) -> bool:
    """Return whether the server answers to a collector that speaks without TLS."""
    name = pipeline.name
    program = SPEAKS_PLAIN.format(server=f"{name}-nats")
    words = ("exec", pipeline.here, f"{name}-collector-0", "--", "python", "-c", program)
    said = pipeline.cluster.kubectl(*words).strip()
    assert said in ("answer: b''", r"answer: b'PONG\r\n'"), said
    return "PONG" in said
