"""DescribeUserScramCredentials: describes the SCRAM mechanisms and iteration counts of users."""

from collections import Counter

from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode
from ottla.model.explanations import Explanations
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.node.network.dispatch import RequestContext
from ottla.node.network.steps import Answer, StepPace, Steps
from ottla.wire.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
)
from ottla.wire.messages.describe_user_scram_credentials_response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


class DescribeScramCredentialsApi:
    """Handler of DescribeUserScramCredentials, version 0. Salts and keys are never sent to a
    client."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def handle(
        self, context: RequestContext, request: DescribeUserScramCredentialsRequest
    ) -> Answer:
        """Answer the request with the SCRAM mechanisms and iteration counts of the named users, or
        of all users if none is named."""
        return _answer(self._metadata.image, request)


def _answer(
    image: MetadataImage, request: DescribeUserScramCredentialsRequest
) -> Steps[DescribeUserScramCredentialsResponse]:
    pace = StepPace()
    explanations = Explanations()
    known = image.scram_credentials
    asked: Counter[str] = Counter()
    for one in request.users or ():
        asked[one.name] += 1
        if pace.is_due():
            yield
    results = []
    for name in asked or sorted({user for users in known.values() for user in users}):
        result = DescribeUserScramCredentialsResult(user=name, error_message=None)
        results.append(result)
        result.credential_infos = [
            CredentialInfo(mechanism=number, iterations=users[name].iterations)
            for number, users in known.items()
            if name in users
        ]
        code, message = ErrorCode.NONE, ""
        if asked[name] > 1:
            code = ErrorCode.DUPLICATE_RESOURCE
            message = f"Cannot describe SCRAM credentials for the same user twice: {name}"
        elif not result.credential_infos:
            code = ErrorCode.RESOURCE_NOT_FOUND
            message = f"Attempt to describe a user credential that does not exist: {name}"
        if code:
            result.credential_infos = []
            result.error_code = code
            result.error_message = explanations.of(message)
        if pace.is_due():
            yield
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)
