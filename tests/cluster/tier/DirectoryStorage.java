import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/** Plug-in for Kafka that copies segments to the directory `dir`, a folder for each partition. */
public class DirectoryStorage implements RemoteStorageManager {
    private Path directory;

    @Override
    public void configure(Map<String, ?> configs) {
        directory = Path.of((String) configs.get("dir"));
    }

    @Override
    public void close() {
    }

    private Path file(RemoteLogSegmentMetadata segment, String kind) {
        TopicPartition partition = segment.remoteLogSegmentId().topicIdPartition().topicPartition();
        return directory.resolve(partition.toString())
            .resolve(segment.remoteLogSegmentId().id() + "." + kind);
    }

    private Path index(RemoteLogSegmentMetadata segment, IndexType type) {
        return file(segment, type.name().toLowerCase());
    }

    @Override
    public Optional<CustomMetadata> copyLogSegmentData(
        RemoteLogSegmentMetadata segment, LogSegmentData data) throws RemoteStorageException {
        try {
            Files.createDirectories(file(segment, "log").getParent());
            Files.copy(data.offsetIndex(), index(segment, IndexType.OFFSET));
            Files.copy(data.timeIndex(), index(segment, IndexType.TIMESTAMP));
            Files.copy(data.producerSnapshotIndex(), index(segment, IndexType.PRODUCER_SNAPSHOT));
            if (data.transactionIndex().isPresent()) {
                Files.copy(data.transactionIndex().get(), index(segment, IndexType.TRANSACTION));
            }
            byte[] epochs = new byte[data.leaderEpochIndex().remaining()];
            data.leaderEpochIndex().duplicate().get(epochs);
            Files.write(index(segment, IndexType.LEADER_EPOCH), epochs);
            Files.copy(data.logSegment(), file(segment, "log"));
            return Optional.empty();
        } catch (IOException failed) {
            throw new RemoteStorageException(failed);
        }
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start)
        throws RemoteStorageException {
        return fetchLogSegment(segment, start, Integer.MAX_VALUE - 1);
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start, int last)
        throws RemoteStorageException {
        try (FileChannel channel = FileChannel.open(file(segment, "log"))) {
            long end = Math.min(channel.size(), last + 1L);
            ByteBuffer found = ByteBuffer.allocate((int) Math.max(0, end - start));
            while (found.hasRemaining() && channel.read(found, start + found.position()) >= 0) {
            }
            return new ByteArrayInputStream(found.array());
        } catch (NoSuchFileException missing) {
            throw new RemoteResourceNotFoundException(missing);
        } catch (IOException failed) {
            throw new RemoteStorageException(failed);
        }
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType type)
        throws RemoteStorageException {
        try {
            return new ByteArrayInputStream(Files.readAllBytes(index(segment, type)));
        } catch (NoSuchFileException missing) {
            throw new RemoteResourceNotFoundException(missing);
        } catch (IOException failed) {
            throw new RemoteStorageException(failed);
        }
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment)
        throws RemoteStorageException {
        try {
            for (IndexType type : IndexType.values()) {
                Files.deleteIfExists(index(segment, type));
            }
            Files.deleteIfExists(file(segment, "log"));
        } catch (IOException failed) {
            throw new RemoteStorageException(failed);
        }
    }
}
