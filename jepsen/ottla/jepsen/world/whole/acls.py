"""Test subject of the simulator: clients that create and delete ACLs while faults happen.

Invariant: AcknowledgedEntriesStay. An ACL whose creation was acknowledged is in every later
metadata image of every broker until it is deleted, and in no image once its deletion was
acknowledged.

A request without a response may still be carried out, so its ACL is not used again. The ACLs are in
force: they authorize all requests of all clients.
"""

from collections.abc import Iterable
from typing import ClassVar, NoReturn

import trio

from ottla.client.admin_parts.admin_acls import creation_of
from ottla.client.network.connection import BrokerConnection, open_connection
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.history import ClientHistory
from ottla.jepsen.world.whole.machine import Machine, SharedWorld
from ottla.jepsen.world.whole.whole_cluster import WholeCluster
from ottla.jepsen.world.whole.workload import ClientWorkload, WorkloadPlan, ignoring_faults
from ottla.metadata.acl_table import AclTable
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.model.security.acls import (
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.settings.security.authorizer import AUTHORIZER_CLASS, STANDARD_AUTHORIZER
from ottla.wire.messages.create_acls_request import CreateAclsRequest
from ottla.wire.messages.create_acls_response import CreateAclsResponse
from ottla.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.delete_acls_response import DeleteAclsResponse

INVARIANT = "AcknowledgedEntriesStay"
WRITERS = 2
INTERVAL_S = 0.1
ENTRIES_MAX = 3
"""Maximum number of ACLs that one request of a simulated client creates."""

PATIENCE_S = 8.0
LOOK_S = 0.05


class AclHistory:
    """Record of the acknowledged ACL changes, against which the metadata images of the brokers are
    checked."""

    def __init__(self) -> None:
        self._unseen: dict[AclEntry, bool] = {}
        """Acknowledged ACL changes that no checked metadata image contains yet. The value is True
        if the ACL must exist."""
        self._seen: dict[AclEntry, tuple[int, bool]] = {}
        """Last acknowledged state of each ACL: the offset of a metadata image that contains an
        acknowledged change, and whether the ACL exists in that image."""
        self._created: dict[AclEntry, int] = {}
        """For each ACL, the offset of a metadata image that contained it."""

    @property
    def unseen(self) -> list[str]:
        """Texts of the ACLs with an acknowledged change that no checked metadata image contains
        yet."""
        return [
            f"{entry.resource_name} {'created' if is_there else 'deleted'}"
            for entry, is_there in self._unseen.items()
        ]

    @property
    def standing(self) -> list[AclEntry]:
        """The ACLs that are known to exist, because their creation was acknowledged."""
        return [entry for entry, (_, is_there) in self._seen.items() if is_there]

    def begins_deletion(self, entry: AclEntry) -> None:
        """Record that the deletion of an ACL was requested. The ACL may then be missing."""
        del self._seen[entry]

    def acknowledged(self, entry: AclEntry, *, is_there: bool) -> None:
        """Record that a node acknowledged the creation (`is_there` is True) or deletion of an
        ACL."""
        self._unseen[entry] = is_there

    def look(self, name: str, offset: int, acls: AclTable) -> None:
        """Compare the metadata image of the node `name` at `offset` with all known ACL changes.
        Raises Violation if the image lacks an ACL, or has an ACL that was deleted."""
        for entry, is_there in list(self._unseen.items()):
            # An image older than the creation also lacks the ACL.
            is_late = is_there or offset >= self._created[entry]
            if is_late and (entry in acls.ids) == is_there:
                del self._unseen[entry]
                self._seen[entry] = offset, is_there
                if is_there:
                    self._created[entry] = offset
        for entry, (seen_at, is_there) in self._seen.items():
            if offset >= seen_at and (entry in acls.ids) != is_there:
                raise Violation(
                    INVARIANT,
                    f"{name} at {offset} {'lacks' if is_there else 'has'} {entry.resource_name}, "
                    f"{'created' if is_there else 'deleted'} at {seen_at} or before",
                )


class AclWorkload(ClientWorkload):
    """The clients of `ClientWorkload`, and two clients that create and delete ACLs."""

    def __init__(
        self,
        world: SharedWorld,
        cluster: SimulatedCluster,
        history: ClientHistory,
        plan: WorkloadPlan,
    ) -> None:
        super().__init__(world, cluster, history, plan)
        self.book = AclHistory()
        self.operators += [
            self._machine(f"entries-{number}", self._change_entries) for number in range(WRITERS)
        ]

    async def unsettled(self) -> list[str]:
        """Return the ACLs with an acknowledged change that no metadata image contains yet."""
        return self.book.unseen

    async def _change_entries(self, machine: Machine, is_stopping: trio.Event) -> None:
        chance = self._chance(machine)
        while not is_stopping.is_set():
            await trio.sleep(INTERVAL_S * (1 + 4 * chance.random()))
            if self.is_quiet:
                continue
            # One attempt each: a second one could be carried out after the ACL's deletion.
            with ignoring_faults(), trio.fail_after(PATIENCE_S):
                async with open_connection(*self._address(chance)) as connection:
                    standing = self.book.standing
                    if standing and chance.below(3) == 0:
                        await self._delete(connection, chance.pick(standing))
                    else:
                        await self._create(connection, chance)

    def _address(self, chance: Chance) -> tuple[str, int]:
        """Return the address (host and port) of the node that gets the next ACL request."""
        return chance.pick(self._cluster.bootstrap)

    async def _create(self, connection: BrokerConnection, chance: Chance) -> None:
        entries = [self._entry(chance) for _ in range(1 + chance.below(ENTRIES_MAX))]
        request = CreateAclsRequest(creations=[creation_of(one) for one in entries])
        answer = await connection.request(request, CreateAclsResponse)
        self._check_codes(one.error_code for one in answer.results)
        for entry, result in zip(entries, answer.results, strict=True):
            if result.error_code == ErrorCode.NONE:
                self.book.acknowledged(entry, is_there=True)

    async def _delete(self, connection: BrokerConnection, entry: AclEntry) -> None:
        self.book.begins_deletion(entry)
        unwanted = DeleteAclsFilter(
            resource_type_filter=entry.resource_type,
            resource_name_filter=entry.resource_name,
            pattern_type_filter=entry.pattern_type,
            principal_filter=None,
            host_filter=None,
            operation=AclOperation.ANY,
            permission_type=AclPermission.ANY,
        )
        request = DeleteAclsRequest(filters=[unwanted])
        (result,) = (await connection.request(request, DeleteAclsResponse)).filter_results
        # Nothing is found if a broker had to forward the request a second time.
        codes = {result.error_code, *(one.error_code for one in result.matching_acls)}
        self._check_codes(codes)
        if codes == {ErrorCode.NONE}:
            self.book.acknowledged(entry, is_there=False)

    def _check_codes(self, codes: Iterable[int]) -> None:
        """Check the error codes in a response to an ACL request. This class accepts every code; a
        subclass may refuse some."""

    def _entry(self, chance: Chance) -> AclEntry:
        return AclEntry(
            resource_type=chance.pick((ResourceType.TOPIC, ResourceType.GROUP)),
            resource_name=self._life("entry"),
            pattern_type=chance.pick((PatternType.LITERAL, PatternType.PREFIXED)),
            principal=f"User:{chance.pick(('al', 'bo', '*'))}",
            host="*",
            operation=chance.pick((AclOperation.READ, AclOperation.ALL)),
            permission=chance.pick((AclPermission.ALLOW, AclPermission.DENY)),
        )


class EntryWatch:
    """Observer that compares each metadata image of a broker with the acknowledged ACL changes."""

    def __init__(self, cluster: SimulatedCluster, book: AclHistory, rare: RareStates) -> None:
        self._cluster = cluster
        self._book = book
        self._rare = rare
        self._looked_at: dict[NodeId, MetadataImage] = {}

    async def run(self) -> NoReturn:
        """Compare the metadata images of the brokers with the acknowledged ACL changes,
        repeatedly."""
        while True:
            for node, broker in self._cluster.brokers.items():
                image = broker.member.image
                if image is not self._looked_at.get(node) or self._book.unseen:
                    self._looked_at[node] = image
                    self._book.look(f"broker {node}", image.provenance.offset, image.acls)
                    if len(image.acls):
                        self._rare.sometimes("a broker authorizes by ACLs")
            await trio.sleep(LOOK_S)


class AclsOfCluster(WholeCluster):
    """Search engine that simulates whole nodes and clients, with any fault, and ACLs that are
    created and deleted."""

    subject = "acls"
    is_light = True
    workload: type[AclWorkload] = AclWorkload
    settings: ClassVar[dict[str, str]] = {
        AUTHORIZER_CLASS: STANDARD_AUTHORIZER,
        # So every request is authorized by the ACLs, and none of them is about a client.
        "allow.everyone.if.no.acl.found": "true",
    }
    required: tuple[str, ...] = (
        "a broker authorizes by ACLs",
        "another controller is active",
        "all of a kind are killed",
        "a connection breaks",
    )

    def watch_more(
        self,
        nursery: trio.Nursery,
        cluster: SimulatedCluster,
        workload: ClientWorkload,
        rare: RareStates,
    ) -> None:
        """Start the observer that compares every metadata image with the acknowledged ACL
        changes."""
        assert isinstance(workload, AclWorkload)
        nursery.start_soon(EntryWatch(cluster, workload.book, rare).run)
