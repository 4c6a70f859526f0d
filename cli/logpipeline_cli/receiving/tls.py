"""TLS of receivers: the certificate that they show, and which clients they take."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

# So soon a certificate that was renewed is shown. Looking costs two calls to the system.
LOOK_S = 15.0

log = logging.getLogger(__name__)


class BadCertificate(Exception):
    """A file of TLS cannot be used; the message names it."""


class ServerTls:
    """The context of a server that shows *certificate* (PEM) with *key*, which may stand in the
    same file, and takes only clients with a certificate of *client_authority*, if there is one.

    Raises:
        BadCertificate: a file cannot be read, or is something else.
    """

    def __init__(
        self, certificate: Path, key: Path | None = None, client_authority: Path | None = None
    ) -> None:
        self._certificate = certificate
        self._key = key
        self._seen = self._files()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._load(self.context)
        if client_authority is not None:
            try:
                self.context.load_verify_locations(client_authority)
            except OSError as error:
                raise BadCertificate(f"{client_authority}: {_said(error)}") from error
            self.context.verify_mode = ssl.CERT_REQUIRED

    def look(self) -> None:
        """Show the certificate that the files hold now, if they are others, to new connections.

        Raises:
            BadCertificate: they cannot be used; the former certificate is shown.
        """
        found = self._files()
        if found == self._seen:
            return
        # One that fails half way leaves a context without a key.
        self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        self._load(self.context)
        self._seen = found
        log.info("the certificate is read anew", extra={"path": str(self._certificate)})

    async def keep_looking(self) -> None:
        """Look every `LOOK_S` seconds, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                self.look()
            except BadCertificate as error:
                # One of two files may be written before the other.
                log.warning("the former certificate is shown", extra={"error": str(error)})

    def _load(self, context: ssl.SSLContext) -> None:
        try:
            context.load_cert_chain(self._certificate, self._key)
        except OSError as error:
            files = " and ".join(str(path) for path in (self._certificate, self._key) if path)
            raise BadCertificate(f"{files}: {_said(error)}") from error

    def _files(self) -> list[tuple[int, int, int]]:
        found = []
        for path in filter(None, (self._certificate, self._key)):
            try:
                status = path.stat()
            except OSError as error:
                raise BadCertificate(f"{path}: {_said(error)}") from error
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
        return found


def _said(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"no certificate and key that belong together, in PEM ({error.reason or error})"
    return error.strerror or str(error)
