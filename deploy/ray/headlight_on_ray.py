"""headlight as a Ray Serve application: `serve run headlight_on_ray:build threads=2`, or serve.yaml."""

from fastapi import FastAPI
from ray import serve
from ray.exceptions import TaskCancelledError
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.app import create_app
from service.lifecycle import ServiceState
from service.settings import Settings, SettingsError
from service.system.process import keep_freed_memory, limit_products, set_environment
from service.telemetry.logs import set_up_logs

# About as many requests of 64 tokens as a replica of two cores answers in time, so that the replica refuses
# requests, by tokens and with a problem document. With Ray's default of 5, batches would stay nearly empty.
_MAX_ONGOING = 4096
# For Ray's own work between a replica's last response and its exit.
_MARGIN_S = 5.0


class Replica:
    """The interface that Ray calls on a replica, besides HTTP."""

    app: "BehindProxy"

    def check_health(self) -> None:
        """Raise if /readyz would fail; after three failures in a row, Ray replaces the replica."""
        self.app.state.check_ready()


class BehindProxy:
    """ASGI middleware that adapts the app to Ray's proxy.

    The proxy adds X-Request-ID to every response, with the id it passed to us: ours would be a duplicate.
    Pieces of long responses are memoryviews, which cannot be sent to another process. And a client that
    disconnects before its request is complete surfaces as an exception.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app: ASGIApp = app
        self.state: ServiceState = app.state.service
        self.routes = app.routes
        """Read by Ray for the route names in its own metrics."""

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
    """Build the application from these settings; the environment provides those not given.

    Settings are read here, once, and passed to every replica. Raises SettingsError.
    """
    if settings.threads is None:
        raise SettingsError(
            "HEADLIGHT_THREADS is auto: on Ray, set it to the number of cores that a replica reserves."
        )

    def start() -> BehindProxy:
        """Build the app in the replica's process."""
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
        # Every accepted request is answered, if only with a 504, before a replica exits.
        graceful_shutdown_timeout_s=max(settings.patience_s, settings.drain_timeout_s) + _MARGIN_S,
        graceful_shutdown_wait_loop_s=0.5,
        logging_config={"enable_access_log": False},  # our own log has more detail
    )
    return deployment(serve.ingress(start)(Replica)).bind()
