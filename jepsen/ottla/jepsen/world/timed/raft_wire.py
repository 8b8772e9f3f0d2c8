"""What members of a quorum say to each other, carried by the world's network."""

from collections.abc import Mapping
from itertools import count

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.timed.net import Net
from ottla.jepsen.world.timed.raft_node import RaftNode
from ottla.jepsen.world.timed.timeline import MS, Timeline
from ottla.model.ids import NodeId
from ottla.raft.effects import Outgoing
from ottla.raft.events import Event, RequestFailed, RequestReceived, ResponseReceived
from ottla.raft.messages import Response
from ottla.rpc.quorum_codec import CONVERSATIONS

CODEC_SHARE = 0.1
"""Messages that go through the real codec; the others save the time."""


class RaftWire:
    """Carries requests of raft; the asker hears exactly one of an answer and a failure."""

    def __init__(
        self,
        timeline: Timeline,
        net: Net,
        nodes: Mapping[NodeId, RaftNode],
        codec_chance: Chance,
    ) -> None:
        self._timeline = timeline
        self._net = net
        self._nodes = nodes
        self._codec_chance = codec_chance
        self._tokens = count(1)

    def send(self, sender: RaftNode, outgoing: Outgoing) -> None:
        """Carry a request to where it belongs, and what comes of it back."""
        incarnation = sender.incarnation
        receiver = self._nodes[outgoing.to]
        conversation = CONVERSATIONS[type(outgoing.request)]
        is_coded = self._codec_chance.chance(CODEC_SHARE)
        is_settled = False
        request = outgoing.request
        if is_coded:
            data = conversation.write_request(request).SerializeToString()
            request = conversation.read_request(conversation.method.decode_request(data))

        def settle(event: Event) -> None:
            nonlocal is_settled
            if not is_settled and sender.incarnation == incarnation:
                is_settled = True
                sender.ask(event)

        def fail() -> None:
            settle(RequestFailed(request_id=outgoing.request_id))

        def answer(response: Response) -> None:
            found = response
            if is_coded:
                data = conversation.write_response(found).SerializeToString()
                found = conversation.read_response(conversation.method.decode_response(data))
            event = ResponseReceived(request_id=outgoing.request_id, response=found)
            self._net.send(receiver.node_id, sender.node_id, lambda: settle(event))

        def arrive() -> None:
            if not receiver.is_up:
                self._net.send(receiver.node_id, sender.node_id, fail)
                return
            receiver.ask(RequestReceived(token=next(self._tokens), request=request), answer)

        self._timeline.later(outgoing.timeout_ms * MS, fail)
        self._net.send(sender.node_id, outgoing.to, arrive)
