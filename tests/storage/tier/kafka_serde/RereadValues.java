import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;

/** Reads values of the metadata topic in hex, a line each; writes them again, with their content. */
public class RereadValues {
    public static void main(String[] arguments) throws Exception {
        RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            RemoteLogMetadata read = serde.deserialize(HexFormat.of().parseHex(line));
            String again = HexFormat.of().formatHex(serde.serialize(read));
            System.out.println(again + "\t" + content(read));
        }
    }

    static String content(RemoteLogMetadata read) {
        if (read instanceof RemoteLogSegmentMetadata one) {
            return String.join(" ", id(one.remoteLogSegmentId()), "" + one.startOffset(),
                "" + one.endOffset(), "" + one.brokerId(), "" + one.maxTimestampMs(),
                "" + one.eventTimestampMs(), "" + one.segmentSizeInBytes(),
                new TreeMap<>(one.segmentLeaderEpochs()).toString().replace(" ", ""),
                custom(one.customMetadata()), "" + one.state().id(), "" + one.isTxnIdxEmpty());
        }
        RemoteLogSegmentMetadataUpdate one = (RemoteLogSegmentMetadataUpdate) read;
        return String.join(" ", id(one.remoteLogSegmentId()), "" + one.brokerId(),
            "" + one.eventTimestampMs(), custom(one.customMetadata()), "" + one.state().id());
    }

    static String id(RemoteLogSegmentId id) {
        TopicIdPartition partition = id.topicIdPartition();
        return partition.topic() + " " + partition.topicId() + " " + partition.partition() + " "
            + id.id();
    }

    static String custom(Optional<CustomMetadata> metadata) {
        return metadata.map(one -> "x" + HexFormat.of().formatHex(one.value())).orElse("none");
    }
}
