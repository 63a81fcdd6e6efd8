import java.util.Map;
import java.util.SplittableRandom;
import org.apache.kafka.clients.producer.ProducerInterceptor;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/**
 * Gives each record of Kafka's ProducerPerformance, which has no option for keys, a key of 16
 * decimal digits: uniform over the first `bench.keys` numbers, like the keys of the other loads.
 */
public class KeyedRecords implements ProducerInterceptor<byte[], byte[]> {
    private final SplittableRandom random = new SplittableRandom(1);
    private int keys = 1_000_000;

    @Override
    public void configure(Map<String, ?> configs) {
        Object given = configs.get("bench.keys");
        if (given != null) {
            keys = Integer.parseInt(given.toString());
        }
    }

    @Override
    public ProducerRecord<byte[], byte[]> onSend(ProducerRecord<byte[], byte[]> record) {
        byte[] key = new byte[16];
        int number = random.nextInt(keys);
        for (int at = key.length - 1; at >= 0; at--) {
            key[at] = (byte) ('0' + number % 10);
            number /= 10;
        }
        return new ProducerRecord<>(record.topic(), key, record.value());
    }

    @Override
    public void onAcknowledgement(RecordMetadata metadata, Exception exception) {}

    @Override
    public void close() {}
}
