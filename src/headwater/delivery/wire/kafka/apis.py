"""Kafka 4.3's APIs: keys, names, versions, headers and codecs.

This file alone decides which header goes with which version. Versions and fields come from
`messages.table`; which APIs a broker serves is decided elsewhere.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headwater.base.errors import HeadwaterError
from headwater.base.schema import Message
from headwater.base.schema import codec as message_codec
from headwater.delivery.wire.kafka import messages

PRODUCE = 0
API_VERSIONS = 18


class UnsupportedApiError(HeadwaterError):
    """No such API, or no such version of it.

    Attributes:
        api_key: The key that was asked for.
        version: The version that was asked for.
        correlation_id: The request's number, where there was a request: ApiVersions is answered
            even in a version nobody knows.
    """

    def __init__(self, api_key: int, version: int, correlation_id: int = 0) -> None:
        api = APIS.get(api_key)
        if api is None:
            super().__init__(f"no API has the key {api_key}")
        else:
            known = f"{api.min_version} to {api.max_version}"
            super().__init__(f"{api.name} has no version {version}, only {known}")
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id


@dataclass(frozen=True)
class Api:
    """One API of Kafka 4.3.

    Attributes:
        key: Its number.
        name: Its name in Kafka, such as ListOffsets.
        min_version: The oldest version that can be decoded.
        max_version: The newest stable version.
        first_flexible: The first version with compact lengths and tagged fields, if any.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    first_flexible: int | None

    @property
    def advertised_min_version(self) -> int:
        """The oldest version to name in ApiVersions.

        Older librdkafka stops compressing unless Produce starts at 0 (KAFKA-18659), though nobody
        accepts less than 3.
        """
        return 0 if self.key == PRODUCE else self.min_version

    @cached_property
    def request(self) -> type[Message]:
        """The request's class."""
        return messages.CATALOGUE.message(f"{self.name}Request")

    @cached_property
    def response(self) -> type[Message]:
        """The response's class."""
        return messages.CATALOGUE.message(f"{self.name}Response")

    def is_flexible(self, version: int) -> bool:
        """Return whether this version has compact lengths and tagged fields."""
        return self.first_flexible is not None and version >= self.first_flexible

    def request_header_version(self, version: int) -> int:
        """Return the version of the header before a request of this version."""
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """Return the version of the header before a response of this version.

        A client that asks for versions does not know yet what the broker can write, so that
        response keeps the oldest header.
        """
        return 1 if self.is_flexible(version) and self.key != API_VERSIONS else 0


def _read_apis() -> dict[int, Api]:
    apis = {}
    for name in messages.CATALOGUE.table.names():
        if not name.endswith("Request"):
            continue
        heading = messages.CATALOGUE.table.heading(name)
        assert heading.api_key is not None
        apis[heading.api_key] = Api(
            key=heading.api_key,
            name=name.removesuffix("Request"),
            min_version=heading.versions[0],
            max_version=heading.versions[-1],
            first_flexible=heading.first_flexible,
        )
    return apis


APIS = _read_apis()
"""Every API that a Kafka 4.3 broker answers, by key."""


class ApiCodec:
    """All that is needed to talk one version of one API; compiled when it is first needed."""

    def __init__(self, api: Api, version: int) -> None:
        self.api = api
        self.version = version
        self.request_header_version = api.request_header_version(version)
        self.response_header_version = api.response_header_version(version)

    @cached_property
    def decode_request(self) -> Callable[..., tuple[Any, int]]:
        """``decode_request(buffer, pos=0) -> (request, end)``."""
        return message_codec(self.api.request, self.version).decode

    @cached_property
    def encode_request(self) -> Callable[[Any], list[Any]]:
        """``encode_request(request) -> parts``."""
        return message_codec(self.api.request, self.version).encode_parts

    @cached_property
    def decode_response(self) -> Callable[..., tuple[Any, int]]:
        """``decode_response(buffer, pos=0) -> (response, end)``."""
        return message_codec(self.api.response, self.version).decode

    @cached_property
    def encode_response(self) -> Callable[[Any], list[Any]]:
        """``encode_response(response) -> parts``."""
        return message_codec(self.api.response, self.version).encode_parts


_CODECS: dict[tuple[int, int], ApiCodec] = {}


def codec(api_key: int, version: int) -> ApiCodec:
    """Return the codec of one version of one API; the same object every time.

    Raises UnsupportedApiError if there is no such API or version.
    """
    found = _CODECS.get((api_key, version))
    if found is None:
        api = APIS.get(api_key)
        if api is None or not api.min_version <= version <= api.max_version:
            raise UnsupportedApiError(api_key, version)
        found = _CODECS[api_key, version] = ApiCodec(api, version)
    return found
