"""Requests that change settings, split between this broker, which refuses some of the resources,
and the controller, which decides on the others. Pure."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ottla.model.errors import RefusedError
from ottla.node.admin.merged_results import merged
from ottla.wire.codec_types import Message
from ottla.wire.messages.alter_configs_request import AlterConfigsRequest
from ottla.wire.messages.alter_configs_response import AlterConfigsResourceResponse as Replaced
from ottla.wire.messages.alter_configs_response import AlterConfigsResponse
from ottla.wire.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from ottla.wire.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse as Altered,
)
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse

ChangeRequest: TypeAlias = IncrementalAlterConfigsRequest | AlterConfigsRequest


def split_changes(
    request: ChangeRequest, refused: Mapping[int, RefusedError]
) -> tuple[ChangeRequest, Callable[[Any], Message]]:
    """Return the request without its refused resources (such as brokers), and a function that adds
    the errors of these resources to the response.

    The function takes None for the response if no resource is left.
    """
    resources: list[Any] = list(request.resources)
    left = [one for index, one in enumerate(resources) if index not in refused]
    is_replaced = isinstance(request, AlterConfigsRequest)
    outcome = Replaced if is_replaced else Altered
    rest: ChangeRequest = type(request)(resources=left, validate_only=request.validate_only)
    ours = {
        index: outcome(
            error_code=refusal.code,
            error_message=refusal.message,
            resource_type=resources[index].resource_type,
            resource_name=resources[index].resource_name,
        )
        for index, refusal in refused.items()
    }

    def merge(answer: Any) -> Message:
        if answer is None:
            answer = AlterConfigsResponse() if is_replaced else IncrementalAlterConfigsResponse()
        answer.responses = merged(len(resources), ours, answer.responses)
        result: Message = answer
        return result

    return rest, merge
