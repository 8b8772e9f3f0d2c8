"""SCRAM credentials of users, set and deleted by AlterUserScramCredentials.

The salted password in a request is never stored; only the two keys derived from it are stored. Each
user in a request succeeds or fails separately. A user that occurs twice in a request fails, as in
Kafka, even if the mechanisms differ.
"""

from collections.abc import Mapping

from ottla.controller.decision import Context, Decision, Draft
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import (
    Record,
    remove_scram_credential_record,
    scram_credential_record,
)
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.explanations import Explanations
from ottla.model.limits import KIB
from ottla.model.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_BY_NUMBER,
    ScramCredential,
    ScramHash,
)
from ottla.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.messages.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

NAME_CHARS_MAX = 1_024
"""Maximum length in characters of the name of a user with a SCRAM credential. Every broker stores
the name in memory, and shows it with each connection of the user."""

SALT_BYTES_MAX = KIB
"""Maximum length in bytes of a SCRAM credential's salt. The broker sends the salt at every
login."""


def alter_user_scram_credentials(
    image: MetadataImage, context: Context, request: AlterUserScramCredentialsRequest
) -> Decision[AlterUserScramCredentialsResponse]:
    """Return the decision that sets and deletes SCRAM credentials.  Raises RefusedError if the
    client logged in by a delegation token."""
    if context.requester.is_token:
        # A token must not give its holder a password, which would outlast the token (KIP-554).
        raise RefusedError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    draft = Draft(image)
    asked: dict[str, Record] = {}
    refused: dict[str, RefusedError] = {}
    entries: list[ScramCredentialDeletion | ScramCredentialUpsertion] = []
    entries += request.deletions
    entries += request.upsertions
    for one in entries:
        if one.name in refused:
            continue
        if asked.pop(one.name, None) is not None:
            refused[one.name] = RefusedError(
                ErrorCode.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            )
            continue
        try:
            asked[one.name] = _record(image, one)
        except RefusedError as refusal:
            refused[one.name] = refusal
    draft.add(asked.values())
    results = [AlterUserScramCredentialsResult(user=name, error_message=None) for name in asked]
    results += _refusals(refused)
    return draft.decision(AlterUserScramCredentialsResponse(results=results), is_atomic=True)


def _refusals(refused: Mapping[str, RefusedError]) -> list[AlterUserScramCredentialsResult]:
    explanations = Explanations()
    return [
        AlterUserScramCredentialsResult(
            user=name, error_code=refusal.code, error_message=explanations.of(refusal.message)
        )
        for name, refusal in refused.items()
    ]


def _record(
    image: MetadataImage, asked: ScramCredentialDeletion | ScramCredentialUpsertion
) -> Record:
    """Return the metadata record that sets or deletes one SCRAM credential. Raises RefusedError if
    the requested deletion or update is invalid."""
    hashing = _checked_mechanism(asked.name, asked.mechanism)
    if isinstance(asked, ScramCredentialDeletion):
        if asked.name not in image.scram_credentials.get(hashing.number, {}):
            raise RefusedError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
        return remove_scram_credential_record(asked.name, hashing.number)
    if asked.iterations < ITERATIONS_MIN:
        raise _unacceptable("Too few iterations")
    if asked.iterations > ITERATIONS_MAX:
        raise _unacceptable("Too many iterations")
    salt, salted = bytes(asked.salt), bytes(asked.salted_password)
    if not 0 < len(salt) <= SALT_BYTES_MAX:
        raise _unacceptable(f"The salt must have 1 to {SALT_BYTES_MAX} bytes")
    if len(salted) != hashing.size:
        raise _unacceptable(f"The salted password must have {hashing.size} bytes")
    credential = ScramCredential.from_salted(hashing, salted, salt, asked.iterations)
    return scram_credential_record(asked.name, hashing.number, credential)


def _checked_mechanism(name: str, number: int) -> ScramHash:
    if not name:
        raise _unacceptable("Username must not be empty")
    if len(name) > NAME_CHARS_MAX:
        raise _unacceptable(f"Username must not be longer than {NAME_CHARS_MAX} characters")
    hashing = SCRAM_BY_NUMBER.get(number)
    if hashing is None:
        raise RefusedError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return hashing


def _unacceptable(message: str) -> RefusedError:
    return RefusedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
