"""The table of APIs, beside what other implementations know of Kafka 4.3."""

import importlib
import warnings
from typing import Any

import pytest

from headwater.delivery.wire.kafka import messages
from headwater.delivery.wire.kafka.apis import APIS, UnsupportedApiError, codec
from tests.delivery.wire.kio_oracle import oracle

PRODUCE, FETCH, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 18, 22
# A broker names these only if a plugin receives telemetry.
TELEMETRY = {71, 72}

EVERY_VERSION = [
    pytest.param(api.key, version, id=f"{api.name}-{version}")
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
]


def kafka_python_versions() -> object:
    """Return kafka-python's table of the APIs of a Kafka 4.3 broker."""
    with warnings.catch_warnings():
        # kafka-python reads its schemas through a deprecated function.
        warnings.simplefilter("ignore", DeprecationWarning)
        module: Any = importlib.import_module("kafka.protocol.broker_version_data")
    table: object = module.BROKER_API_VERSIONS[4, 3]
    return table


def test_keys_and_versions_are_those_of_kafka_4_3() -> None:
    ours = {
        key: (api.advertised_min_version, api.max_version)
        for key, api in APIS.items()
        if key not in TELEMETRY
    }
    assert ours == kafka_python_versions()


@pytest.mark.parametrize("key, version", EVERY_VERSION)
def test_headers_are_those_of_kio(key: int, version: int) -> None:
    api = APIS[key]
    request = oracle(api.request, version).entity
    response = oracle(api.response, version).entity
    assert request.__header_schema__.__version__ == api.request_header_version(version)
    assert response.__header_schema__.__version__ == api.response_header_version(version)
    assert request.__flexible__ == api.is_flexible(version)


def test_classes_belong_to_their_api() -> None:
    assert APIS[FETCH].request is messages.FetchRequest
    assert APIS[FETCH].response is messages.FetchResponse
    assert {api.request.__schema__.api_key for api in APIS.values()} == set(APIS)


def test_requests_and_responses_have_the_same_versions() -> None:
    for api in APIS.values():
        assert api.request.__schema__.versions == api.response.__schema__.versions


def test_api_versions_keeps_the_oldest_response_header() -> None:
    assert APIS[API_VERSIONS].is_flexible(4)
    assert APIS[API_VERSIONS].request_header_version(4) == 2
    assert APIS[API_VERSIONS].response_header_version(4) == 0


def test_produce_is_advertised_from_zero_but_readable_from_three() -> None:
    assert (APIS[PRODUCE].advertised_min_version, APIS[PRODUCE].min_version) == (0, 3)


def test_a_codec_is_made_once() -> None:
    assert codec(FETCH, 12) is codec(FETCH, 12)
    assert codec(FETCH, 12).decode_request is codec(FETCH, 12).decode_request


@pytest.mark.parametrize(
    "key, version", [(4, 0), (999, 0), (-1, 0), (PRODUCE, 2), (FETCH, 19), (INIT_PRODUCER_ID, 6)]
)
def test_what_is_not_there_is_refused_with_key_and_version(key: int, version: int) -> None:
    with pytest.raises(UnsupportedApiError) as caught:
        codec(key, version)
    assert (caught.value.api_key, caught.value.version) == (key, version)


def test_refusals_name_the_api() -> None:
    with pytest.raises(UnsupportedApiError, match="Fetch has no version 99, only 4 to 18"):
        codec(FETCH, 99)
    with pytest.raises(UnsupportedApiError, match="no API has the key 4"):
        codec(4, 0)
