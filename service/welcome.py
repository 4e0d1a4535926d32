"""What a terminal shows once the service is ready: where to look, and a request to paste."""

import socket
import sys

from service.settings import Settings


def welcome(settings: Settings, listener: socket.socket) -> None:
    """Write the invitation to a terminal that shows the log; programs that read the log do not get it."""
    if sys.stderr.isatty() and settings.log_format == "text" and settings.log_level in ("debug", "info"):
        sys.stderr.write(invitation(settings, *listener.getsockname()[:2]))


def invitation(settings: Settings, host: str, port: int) -> str:
    """Return the addresses of what is served, as reached from the same machine, and a request to paste."""
    own = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    address = f"http://{own}:{port}"
    key = " -H 'Authorization: Bearer KEY'" if settings.secured else ""
    body = """-H 'Content-Type: application/json' -d '{"inputs": "Hello, world!", "dimensions": 3}'"""
    lines = [f"  {address}/docs       the routes"]
    if settings.explorer == "on":
        lines.append(f"  {address}/explorer   attention, in a browser")
    if "openai" in settings.other_protocols:
        lines.append(f"  {address}/v1         for clients of OpenAI")
    return "\n".join(["", *lines, "", f"  curl -s {address}/encode{key} {body}", "", ""])
