"""The explorer as an anywidget: its page asks for maps by messages, and gets them as buffers."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import anywidget
import httpx
import traitlets

from headlight_client.client import Headlight
from headlight_client.notebook.assets import assets
from headlight_client.notebook.fields import checked
from headlight_client.notebook.held import Keeper

_ASKED = ("/info", "/attention", "/encode", "/similarity", "/tokenize", "/explain", "/predict", "/rerank")
"""The routes that the explorer asks."""
_SAVED_ROUTES = ("/encode", "/similarity", "/explain", "/predict", "/rerank")
"""Those of them whose answers are saved beside the maps."""
_HEADERS = ("content-type", "x-request-id", "retry-after", "retry-after-ms")
_SETTLED_S = 1.0
"""What is saved is read anew once nothing else was chosen for so long."""


class ExplorerWidget(anywidget.AnyWidget):
    """The widget of an `Explorer`. Page and kernel both change `state`, and `observe` tells of either."""

    state = traitlets.Dict().tag(sync=True)
    """The fields of the explorer's links that differ from their initial values."""
    saved = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)
    """What the page shows where no kernel answers; None if nothing is embedded."""
    height = traitlets.Int(allow_none=True, default_value=None).tag(sync=True)
    """Pixels; None is as much as the page needs."""
    compact = traitlets.Bool().tag(sync=True)
    """Whether there is the view alone, without what is around it."""
    url = traitlets.Unicode().tag(sync=True)
    """The service, for the code that the explorer exports."""
    keyed = traitlets.Bool().tag(sync=True)
    """Whether requests have a key, which stays in the kernel."""

    def __init__(
        self,
        client: Headlight,
        state: Mapping[str, Any],
        *,
        embed: bool = False,
        height: int | None = None,
        compact: bool = False,
    ) -> None:
        """Raise ValueError for a field or a value that links do not have."""
        built = assets()
        self._esm, self._css = built.script, built.style
        connection = client._connection
        self._client = client
        self._keeper = Keeper(client) if embed else None
        self._later: asyncio.TimerHandle | None = None
        super().__init__(
            state=checked(state),
            saved=None if self._keeper is None else self._keeper.keep(state),
            height=height,
            compact=compact,
            url=connection.url.rstrip("/") + "/",
            keyed=any(name.lower() == "authorization" for name in connection.headers),
        )
        self.observe(self._keep_later, "state")
        self.on_msg(self._answer)

    @traitlets.validate("state")
    def _check_state(self, proposal: Mapping[str, Any]) -> dict[str, Any]:
        return checked(proposal["value"])

    def keep(self) -> None:
        """Have in `saved` what is shown now."""
        if self._keeper is not None:
            self.set_trait("saved", self._keeper.keep(self.state))

    def _keep_later(self, _: object = None) -> None:
        """Do so once nothing else is chosen; at once in a program without a loop."""
        if self._later is not None:
            self._later.cancel()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.keep()
        else:
            self._later = loop.call_later(_SETTLED_S, self.keep)

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
        if buffers and answer["status"] == httpx.codes.OK and request["path"] in _SAVED_ROUTES:
            self._save_answer(f"{request['path']} {request['body']}", buffers[0])

    def _save_answer(self, question: str, answer: bytes) -> None:
        if self._keeper is not None:
            self._keeper.add_answer(question, json.loads(answer))
            self._keep_later()

    def _response(self, request: Mapping[str, Any]) -> httpx.Response:
        """Raise ValueError for a route that the explorer does not ask, and httpx.HTTPError."""
        path = str(request["path"])
        if path.partition("?")[0] not in _ASKED:
            raise ValueError(f"The explorer does not use the route {path}.")
        headers = {"Accept": request["accept"]} if request.get("accept") else {}
        http = self._client._sender.http
        body = request.get("body")
        if body is None:
            return http.get(path, headers=headers)
        return http.post(path, content=body, headers={**headers, "Content-Type": "application/json"})
