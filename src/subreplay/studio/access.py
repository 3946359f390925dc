"""Decide which requests the server answers: of this page, from this address, with the token."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

MOST_BYTES: Final = 512 * 1024  # of a request
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every answer: nothing is fetched from elsewhere, no script is inline, and nothing is cached."""
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True)
class Access:
    """The addresses under which the server is known, and the token that requests must carry.

    ``origins`` are scheme, host and port. Another ``Host`` is refused, so that a page of another site cannot reach the
    server by a name that it resolves to the loopback address. ``token`` is None if a proxy authenticates users.
    """

    origins: frozenset[str]
    token: str | None = field(default=None, repr=False)

    @classmethod
    def create(cls, host: str, port: int, public_url: str | None) -> Access:
        """Allow the loopback names and ``host``, or only the address at which a proxy serves the page."""
        if public_url is not None:
            parts = urlsplit(public_url)
            return cls(frozenset([f"{parts.scheme}://{parts.netloc}"]))
        names = {*LOOPBACK, *([] if host in ("0.0.0.0", "::") else [f"[{host}]" if ":" in host else host])}
        at = "" if port == 80 else f":{port}"  # which browsers leave out
        return cls(frozenset(f"http://{name}{at}" for name in names), secrets.token_urlsafe(24))

    def refuse(self, host: str | None, origin: str | None, token: str | None, *, needs_token: bool) -> str | None:
        """Return why a request is refused; None if it is answered.

        A request that needs the token also needs an origin, which browsers send with every POST.
        """
        if host is None or host not in {urlsplit(one).netloc for one in self.origins}:
            return "This address is not the one of the studio. Open the address that the command printed."
        if origin is not None and origin not in self.origins:
            return "This request comes from another site."
        if not needs_token:
            return None
        if origin is None:
            return "This request does not name its origin."
        if self.token is not None and not secrets.compare_digest((token or "").encode(), self.token.encode()):
            return "The token is missing or wrong. Open the address that the command printed."
        return None

    def build_url(self, host: str, port: int, public_url: str | None) -> str:
        """Return the address to open. The token is in the fragment, which browsers do not send."""
        if public_url is not None:
            return public_url
        name = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        return f"http://{name}:{port}/#token={self.token}"
