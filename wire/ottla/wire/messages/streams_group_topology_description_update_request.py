"""StreamsGroupTopologyDescriptionUpdateRequest.

Generated from schemas/streams_group_topology_description_update.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct, fresh


class TopologyDescriptionNode(Struct):
    __slots__ = (
        "name",
        "node_type",
        "source_topics",
        "sink_topic",
        "stores",
        "successors",
    )

    def __init__(
        self,
        *,
        name: str = "",
        node_type: int = 0,
        source_topics: list[str] = EMPTY,
        sink_topic: str | None = None,
        stores: list[str] = EMPTY,
        successors: list[str] = EMPTY,
    ) -> None:
        self.name = name
        self.node_type = node_type
        self.source_topics = fresh(source_topics)
        self.sink_topic = sink_topic
        self.stores = fresh(stores)
        self.successors = fresh(successors)


class TopologyDescriptionSubtopology(Struct):
    __slots__ = (
        "subtopology_id",
        "nodes",
    )

    def __init__(
        self,
        *,
        subtopology_id: str = "",
        nodes: list[TopologyDescriptionNode] = EMPTY,
    ) -> None:
        self.subtopology_id = subtopology_id
        self.nodes = fresh(nodes)


class TopologyDescriptionGlobalStore(Struct):
    __slots__ = (
        "source",
        "processor",
    )

    def __init__(
        self,
        *,
        source: TopologyDescriptionNode | None = None,
        processor: TopologyDescriptionNode | None = None,
    ) -> None:
        self.source = TopologyDescriptionNode() if source is None else source
        self.processor = TopologyDescriptionNode() if processor is None else processor


class TopologyDescription(Struct):
    __slots__ = (
        "subtopologies",
        "global_stores",
    )

    def __init__(
        self,
        *,
        subtopologies: list[TopologyDescriptionSubtopology] = EMPTY,
        global_stores: list[TopologyDescriptionGlobalStore] = EMPTY,
    ) -> None:
        self.subtopologies = fresh(subtopologies)
        self.global_stores = fresh(global_stores)


class StreamsGroupTopologyDescriptionUpdateRequest(Message):
    __slots__ = (
        "group_id",
        "member_id",
        "topology_epoch",
        "topology_description",
    )
    API_KEY = 93
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "streams_group_topology_description_update"

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        topology_epoch: int = 0,
        topology_description: TopologyDescription | None = None,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.topology_epoch = topology_epoch
        self.topology_description = (
            TopologyDescription() if topology_description is None else topology_description
        )
