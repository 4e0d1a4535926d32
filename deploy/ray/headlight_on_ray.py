"""headlight as an application of Ray Serve: `serve run headlight_on_ray:build threads=2`, or serve.yaml."""

from fastapi import FastAPI
from ray import serve
from ray.exceptions import TaskCancelledError
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.app import create_app
from service.lifecycle import ServiceState
from service.process import keep_freed_memory, limit_products, set_environment
from service.settings import Settings, SettingsError
from service.telemetry.logs import set_up_logs

# More than ever wait in a replica: by default 65,536 tokens may, and a short sentence has sixteen. So it is
# the replica that refuses, by tokens and with a problem document. With Ray's default of 5 batches stay empty.
_MAX_ONGOING = 4096
# For what Ray does itself between a replica's last answer and its end.
_MARGIN_S = 5.0


class Replica:
    """What Ray asks of a replica, beside its answers."""

    app: "BehindProxy"

    def check_health(self) -> None:
        """Raise what /readyz would answer; Ray replaces the replica when it does so three times running."""
        self.app.state.check_ready()


class BehindProxy:
    """ASGI middleware: what differs where it is not a client that asks, but Ray's proxy.

    The proxy adds X-Request-ID to every answer, with the id that we were given: ours would be a second one.
    Pieces of long answers are views of arrays, which cannot be sent to another process. And that a client has
    gone before its request was complete comes as an error.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app: ASGIApp = app
        self.state: ServiceState = app.state.service
        self.routes = app.routes
        """Read by Ray, whose own metrics then name them."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

        async def send_to_proxy(message: Message) -> None:
            if message["type"] == "http.response.start":
                del MutableHeaders(scope=message)["X-Request-ID"]
            elif isinstance(piece := message.get("body"), memoryview):
                message["body"] = piece.tobytes()
            await send(message)

        async def receive_to_the_end() -> Message:
            try:
                return await receive()
            except TaskCancelledError:
                return {"type": "http.disconnect"}

        await self._app(scope, receive_to_the_end, send_to_proxy)


def build(settings: Settings) -> serve.Application:
    """Make the application of these settings, of which the environment gives those that are not named.

    Settings are read here, once, and go to every replica. Raises SettingsError.
    """
    if settings.threads is None:
        raise SettingsError("HEADLIGHT_THREADS must be a number on Ray: the cores that a replica reserves.")

    def start() -> BehindProxy:
        """Build the app, in the process of its replica."""
        set_up_logs(settings.log_level, settings.log_format)
        set_environment()
        limit_products()
        keep_freed_memory()
        return BehindProxy(create_app(settings, wait=True))

    deployment = serve.deployment(
        name="headlight",
        ray_actor_options={
            "num_cpus": settings.threads,
            "num_gpus": 1 if settings.device.startswith("cuda") else 0,
        },
        max_ongoing_requests=_MAX_ONGOING,
        max_queued_requests=_MAX_ONGOING,
        backpressure_config={"status_code": 429, "retry_after_s": 1.0},
        health_check_period_s=2.0,
        # Every accepted request is answered, with 504 where nothing else is left, before a replica ends.
        graceful_shutdown_timeout_s=max(settings.request_timeout_s, settings.drain_timeout_s) + _MARGIN_S,
        graceful_shutdown_wait_loop_s=0.5,
        logging_config={"enable_access_log": False},  # ours says more
    )
    return deployment(serve.ingress(start)(Replica)).bind()
