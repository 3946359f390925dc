"""A web server and a mail server of this machine that keep what they receive, and answer as a test wants."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass
class Receiver:
    """What a server received. ``answers`` are the codes of its first answers; the last one is repeated."""

    port: int = 0
    answers: Sequence[int] = (200,)
    delay: float = 0.0
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/services/T0/secret-part"

    @property
    def objects(self) -> list[Any]:
        """The bodies as JSON."""
        return [json.loads(body) for _, body in self.requests]


@contextmanager
def web_server(answers: Sequence[int] = (200,), delay: float = 0.0) -> Iterator[Receiver]:
    """A server that answers each POST after ``delay`` seconds; a redirection leads to itself."""
    received = Receiver(answers=answers, delay=delay)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.requests.append((dict(self.headers), body))
            code = received.answers[min(len(received.requests), len(received.answers)) - 1]
            time.sleep(received.delay)
            with suppress(OSError):  # the sender did not wait
                self.send_response(code)
                self.send_header("Location", received.url)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Mailbox:
    """What a mail server received: commands, and messages with their receivers."""

    port: int = 0
    refuses: str = ""
    tls: ssl.SSLContext | None = None
    mails: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)


def make_certificate(folder: Path) -> Path | None:
    """Make a certificate of this machine's address, with its key in the same file; None without openssl."""
    if shutil.which("openssl") is None:
        return None
    path, subject = folder / "server.pem", ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    kind = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command = ["openssl", "req", *kind, *subject, "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    path.write_text((folder / "key.pem").read_text() + (folder / "cert.pem").read_text())
    return path


@contextmanager
def mail_server(refuses: str = "", certificate: Path | None = None, starttls: bool = False) -> Iterator[Mailbox]:
    """A server that speaks as much SMTP as a message needs. It answers the command ``refuses`` with 550.

    With a certificate it speaks TLS: from the first byte, or after STARTTLS.
    """
    box = Mailbox(refuses=refuses)
    if certificate is not None:
        box.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        box.tls.load_cert_chain(certificate)
    listener = socket.create_server(("127.0.0.1", 0))
    box.port = listener.getsockname()[1]

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(ssl.SSLError):  # a client does not trust the certificate
                    if box.tls is not None and not starttls:
                        connection = box.tls.wrap_socket(connection, server_side=True)
                    _converse(connection, box)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield box
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _converse(connection: socket.socket, box: Mailbox, greets: bool = True) -> None:
    lines = connection.makefile("rb")
    receivers: list[str] = []

    def say(text: str) -> None:
        connection.sendall(f"{text}\r\n".encode())

    if greets:
        say("220 test")
    for raw in lines:
        line = raw.decode().strip()
        box.commands.append(line)
        verb = line.partition(" ")[0].upper()
        if verb == box.refuses:
            say("550 no")
        elif verb == "RCPT":
            receivers.append(line.partition("<")[2].partition(">")[0])
            say("250 ok")
        elif verb == "DATA":
            say("354 go on")
            body = []
            while (part := lines.readline()).strip(b"\r\n") != b".":
                body.append(part.decode())
            box.mails.append((tuple(receivers), "".join(body)))
            receivers = []
            say("250 ok")
        elif verb == "QUIT":
            say("221 bye")
            return
        elif verb == "EHLO":
            can_start = box.tls is not None and not isinstance(connection, ssl.SSLSocket)
            say("250-test\r\n250-STARTTLS\r\n250 AUTH PLAIN" if can_start else "250-test\r\n250 AUTH PLAIN")
        elif verb == "AUTH":
            say("235 ok")
        elif verb == "STARTTLS" and box.tls is not None:
            say("220 go on")
            _converse(box.tls.wrap_socket(connection, server_side=True), box, greets=False)
            return
        else:
            say("250 ok")


def unused_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
