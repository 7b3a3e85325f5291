"""DescribeCluster: one broker that is everything."""

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka.messages import DescribeClusterRequest
from tests.delivery.dialects.kafka.desk import Desk


@pytest.mark.parametrize("version", range(3))
def test_tells_the_one_broker(version: int) -> None:
    desk = Desk()
    answer = desk.ask(DescribeClusterRequest(), version)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert (answer.cluster_id, answer.controller_id) == (desk.broker.cluster_id, 1)
    (broker,) = answer.brokers
    assert (broker.broker_id, broker.host, broker.port, broker.rack, broker.is_fenced) == (
        1,
        "127.0.0.1",
        9092,
        None,
        False,
    )
    assert answer.cluster_authorized_operations == -(2**31)
    assert answer.endpoint_type == 1


def test_operations_when_they_are_asked_for() -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert Desk().ask(request).cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    "endpoint_type, error, message",
    [
        (
            2,
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            (
                "The request was sent to an endpoint of type BROKER, "
                "but we wanted an endpoint of type CONTROLLER"
            ),
        ),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "Unsupported endpoint type 3"),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "Unsupported endpoint type 0"),
    ],
)
def test_there_is_no_other_endpoint(endpoint_type: int, error: ErrorCode, message: str) -> None:
    answer = Desk().ask(DescribeClusterRequest(endpoint_type=endpoint_type))
    assert (answer.error_code, answer.error_message) == (error, message)
    assert (answer.cluster_id, answer.controller_id, answer.brokers) == ("", -1, [])
