"""From a frame to its handler, and from an answer to its bytes.

This file alone decides which handler a frame reaches, and what happens to one that reaches none:
the connection is closed, except for ApiVersions, which answers in its oldest form so that the
client can step down to a version that we know.
"""

from typing import Any

from headwater.base.errors import ErrorCode, MalformedMessageError
from headwater.delivery.broker.broker import Broker
from headwater.delivery.dialects.kafka import api_18_api_versions, registry
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.server.connection import Connection
from headwater.delivery.server.throttle import Cost
from headwater.delivery.wire.kafka import apis, framing


class Dispatcher:
    """Finds the handler of each request and encodes its answer."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._quotas = broker.quotas

    def dispatch(self, connection: Connection, frame: memoryview) -> None:
        """Handle one request.

        Raises:
            MalformedMessageError: The frame is no request that this broker serves.
        """
        try:
            header, position = framing.decode_header(frame)
            module = registry.APIS.get(header.api_key)
            version = header.api_version
            if module is None or not module.VERSIONS[0] <= version <= module.VERSIONS[1]:
                raise apis.UnsupportedApiError(  # noqa: TRY301 - same answer as for unknown keys
                    header.api_key, version, header.correlation_id
                )
        except apis.UnsupportedApiError as error:
            if error.api_key != apis.API_VERSIONS:
                raise MalformedMessageError(error.message) from error
            self._answer_in_oldest_form(connection, error.correlation_id)
            return
        request, _ = apis.codec(header.api_key, version).decode_request(frame, position)
        call = Call(self._broker, connection, header)
        connection.add(call)
        if self._quotas.watching:
            cost = Cost(self._quotas, header.api_key, header.client_id, len(frame))
            call.cost = cost
            if cost.throttle_ms:
                # From now on, and once more when it is answered: what was sent ahead has to wait.
                connection.mute(cost.throttle_ms)
            module.handle(call, request)
            cost.handled()
        else:
            module.handle(call, request)

    def encode(self, call: Call, response: Any) -> list[Any]:  # noqa: ANN401 - any message class
        """Return the answer's frame as parts."""
        return framing.encode_response(call.header, response)

    def _answer_in_oldest_form(self, connection: Connection, correlation_id: int) -> None:
        header = framing.RequestHeader(apis.API_VERSIONS, 0, correlation_id, None)
        call = Call(self._broker, connection, header)
        connection.add(call)
        call.reply(api_18_api_versions.response(ErrorCode.UNSUPPORTED_VERSION))
