"""The explorer as an anywidget: its page asks for maps by messages, and gets them as buffers."""

from collections.abc import Mapping
from typing import Any

import anywidget
import httpx
import traitlets

from headlight_client.client import Headlight
from headlight_client.notebook.assets import assets

_ASKED = ("/info", "/attention", "/similarity", "/tokenize", "/explain", "/predict", "/rerank")
"""The routes that the explorer asks."""
_HEADERS = ("content-type", "x-request-id", "retry-after", "retry-after-ms")


class ExplorerWidget(anywidget.AnyWidget):
    """The widget of an `Explorer`. Its traits are small: maps are no part of a saved notebook."""

    state = traitlets.Dict().tag(sync=True)
    """The fields of the explorer's links that differ from their initial values."""
    url = traitlets.Unicode().tag(sync=True)
    """The service, for the code that the explorer exports."""
    keyed = traitlets.Bool().tag(sync=True)
    """Whether requests have a key, which stays in the kernel."""

    def __init__(self, client: Headlight, state: Mapping[str, Any]) -> None:
        built = assets()
        self._esm, self._css = built.script, built.style
        connection = client._connection
        keyed = any(name.lower() == "authorization" for name in connection.headers)
        super().__init__(state=dict(state), url=connection.url.rstrip("/") + "/", keyed=keyed)
        self._client = client
        self.on_msg(self._answer)

    def _answer(self, _: Any, request: Mapping[str, Any], __: Any) -> None:
        """Send a request of the page to the service, and its response to the page, whatever its status."""
        answer: dict[str, Any] = {"id": request["id"]}
        buffers: list[bytes] = []
        try:
            response = self._response(request)
            headers = {name: response.headers[name] for name in _HEADERS if name in response.headers}
            answer |= {"status": response.status_code, "headers": headers}
            buffers = [response.content]
        except (httpx.HTTPError, ValueError) as error:
            answer["error"] = str(error) or type(error).__name__
        self.send(answer, buffers)

    def _response(self, request: Mapping[str, Any]) -> httpx.Response:
        """Raise ValueError for a route that the explorer does not ask, and httpx.HTTPError."""
        path = str(request["path"])
        if path.partition("?")[0] not in _ASKED:
            raise ValueError(f"The explorer does not ask {path}.")
        headers = {"Accept": request["accept"]} if request.get("accept") else {}
        http = self._client._sender.http
        body = request.get("body")
        if body is None:
            return http.get(path, headers=headers)
        return http.post(path, content=body, headers={**headers, "Content-Type": "application/json"})
