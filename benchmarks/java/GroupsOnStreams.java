import com.fasterxml.jackson.annotation.JsonInclude;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import java.io.IOException;
import java.math.BigDecimal;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The payments of a message on Kafka Streams, as one would write it there: a processor with a store of heads and one of members.
 *
 * <p>Counts change by the transition of a member, as in aggregation/payments; a head has no deadline here, and a report is not
 * compared with its schema. Arguments: brokers, application id, directory of the stores, topic of commands, topic of reports.
 * It writes "running" once its partitions are assigned, and ends when its input does.
 */
public final class GroupsOnStreams {
  private static final ObjectMapper JSON =
      new ObjectMapper()
          .configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false)
          .configure(SerializationFeature.FAIL_ON_EMPTY_BEANS, false)
          .setDefaultPropertyInclusion(JsonInclude.Include.NON_NULL);
  private static final Set<String> FINAL = Set.of("ACCC", "RJCT", "CANC");
  private static final String HEADS = "heads", MEMBERS = "members";

  public static final class Original {
    public String OrgnlMsgId, OrgnlMsgNmId, OrgnlCreDtTm, OrgnlNbOfTxs, OrgnlCtrlSum;
  }

  public static final class Instruction {
    public String OrgnlPmtInfId, OrgnlNbOfTxs, OrgnlCtrlSum;
  }

  public static final class Fact {
    public String unit, status, amount, currency, entity;
    public Original original;
    public Instruction instruction;
    public JsonNode initiatingParty;
  }

  public static final class Tally {
    public int count;
    public BigDecimal total = BigDecimal.ZERO;
    public int unknown;
  }

  public static final class Head {
    public String state = "open", entity;
    public Original message;
    public JsonNode party;
    public int total, members, done, reports;
    public long firstAt, lastAt;
    public Map<String, Tally> statuses = new TreeMap<>();
    public Map<String, Map<String, Integer>> instructions = new TreeMap<>();
  }

  public static final class Member {
    public String status, currency, instruction;
    public BigDecimal amount;
    public int partition;
    public long offset;
  }

  static final class Groups implements Processor<String, Fact, String, byte[]> {
    private ProcessorContext<String, byte[]> context;
    private KeyValueStore<String, Head> heads;
    private KeyValueStore<String, Member> members;

    @Override
    public void init(ProcessorContext<String, byte[]> given) {
      context = given;
      heads = given.getStateStore(HEADS);
      members = given.getStateStore(MEMBERS);
    }

    @Override
    public void process(Record<String, Fact> command) {
      Fact fact = command.value();
      if (fact == null || fact.original == null) {
        return;
      }
      var place = context.recordMetadata().orElseThrow();
      String group = command.key(), key = group + "/" + fact.unit;
      Member before = members.get(key);
      if (before != null && before.partition == place.partition() && place.offset() <= before.offset) {
        return;
      }
      Member after = next(before, fact);
      after.partition = place.partition();
      after.offset = place.offset();
      members.put(key, after);
      Head head = heads.get(group);
      if (head == null) {
        head = first(fact);
      }
      head.lastAt = context.currentSystemTimeMs();
      if (before != null) {
        count(head, before, -1);
      } else {
        head.members++;
      }
      count(head, after, 1);
      boolean isThrough = head.state.equals("open") && head.done == head.total && head.members == head.total;
      if (isThrough) {
        head.state = "complete";
        head.reports++;
      }
      heads.put(group, head);
      if (isThrough) {
        RecordHeaders headers = new RecordHeaders();
        headers.add("group-id", group.getBytes());
        headers.add("group-total", Integer.toString(head.total).getBytes());
        headers.add("group-report", Integer.toString(head.reports).getBytes());
        context.forward(new Record<>(who(head), report(group, head), command.timestamp(), headers));
      }
    }

    private Head first(Fact fact) {
      Head head = new Head();
      head.message = fact.original;
      head.party = fact.initiatingParty;
      head.entity = fact.entity;
      head.total = Integer.parseInt(fact.original.OrgnlNbOfTxs);
      head.firstAt = context.currentSystemTimeMs();
      return head;
    }

    private static Member next(Member before, Fact fact) {
      Member after = new Member();
      after.status = fact.status;
      after.amount = fact.amount == null ? null : new BigDecimal(fact.amount);
      after.currency = fact.currency;
      after.instruction = fact.instruction == null ? null : fact.instruction.OrgnlPmtInfId;
      if (before != null && after.amount == null) {
        after.amount = before.amount;
        after.currency = before.currency;
      }
      if (before != null && after.instruction == null) {
        after.instruction = before.instruction;
      }
      return after;
    }

    private static void count(Head head, Member member, int times) {
      Tally tally = head.statuses.computeIfAbsent(member.status, status -> new Tally());
      tally.count += times;
      if (member.amount == null) {
        tally.unknown += times;
      } else {
        tally.total = times > 0 ? tally.total.add(member.amount) : tally.total.subtract(member.amount);
      }
      if (tally.count == 0) {
        head.statuses.remove(member.status);
      }
      if (member.instruction != null) {
        Map<String, Integer> counts = head.instructions.computeIfAbsent(member.instruction, name -> new TreeMap<>());
        if (counts.merge(member.status, times, Integer::sum) == 0) {
          counts.remove(member.status);
        }
      }
      head.done += FINAL.contains(member.status) ? times : 0;
    }

    private static String who(Head head) {
      return head.party == null ? "NOTPROVIDED" : head.party.path("Nm").asText("NOTPROVIDED");
    }

    private byte[] report(String group, Head head) {
      Map<String, Object> header = new LinkedHashMap<>();
      header.put("MsgId", group + "-" + head.reports);
      header.put("CreDtTm", Instant.ofEpochMilli(context.currentSystemTimeMs()).toString());
      header.put("InitgPty", head.party);
      Map<String, Object> original = new LinkedHashMap<>();
      original.put("OrgnlMsgId", head.message.OrgnlMsgId);
      original.put("OrgnlMsgNmId", head.message.OrgnlMsgNmId);
      original.put("OrgnlCreDtTm", head.message.OrgnlCreDtTm);
      original.put("OrgnlNbOfTxs", head.message.OrgnlNbOfTxs);
      List<Map<String, Object>> perStatus = new ArrayList<>();
      head.statuses.forEach(
          (status, tally) -> {
            Map<String, Object> said = new LinkedHashMap<>();
            said.put("DtldNbOfTxs", Integer.toString(tally.count));
            said.put("DtldSts", status);
            said.put("DtldCtrlSum", tally.unknown > 0 ? null : tally.total.toPlainString());
            perStatus.add(said);
          });
      original.put("NbOfTxsPerSts", perStatus);
      return encoded(Map.of("CstmrPmtStsRpt", Map.of("GrpHdr", header, "OrgnlGrpInfAndSts", original)));
    }
  }

  private static byte[] encoded(Object value) {
    try {
      return JSON.writeValueAsBytes(value);
    } catch (IOException error) {
      throw new SerializationException(error);
    }
  }

  private static <T> Deserializer<T> decoder(Class<T> type) {
    return (topic, bytes) -> {
      try {
        return bytes == null ? null : JSON.readValue(bytes, type);
      } catch (IOException error) {
        throw new SerializationException(error);
      }
    };
  }

  private static <T> Serde<T> json(Class<T> type) {
    Serializer<T> serializer = (topic, value) -> value == null ? null : encoded(value);
    return Serdes.serdeFrom(serializer, decoder(type));
  }

  private static Topology topology(String commands, String reports) {
    var heads = Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(HEADS), Serdes.String(), json(Head.class));
    var members = Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(MEMBERS), Serdes.String(), json(Member.class));
    return new Topology()
        .addSource("commands", new StringDeserializer(), decoder(Fact.class), commands)
        .addProcessor("groups", Groups::new, "commands")
        .addStateStore(heads.withCachingEnabled(), "groups")
        .addStateStore(members.withCachingEnabled(), "groups")
        .addSink("reports", reports, new StringSerializer(), Serdes.ByteArray().serializer(), "groups");
  }

  public static void main(String[] arguments) throws IOException {
    Properties properties = new Properties();
    properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    properties.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
    properties.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
    properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    properties.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
    properties.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
    KafkaStreams streams = new KafkaStreams(topology(arguments[3], arguments[4]), properties);
    streams.setStateListener(
        (now, before) -> {
          if (now == KafkaStreams.State.RUNNING) {
            System.out.println("running");
          }
        });
    streams.setUncaughtExceptionHandler(
        error -> {
          error.printStackTrace();
          Runtime.getRuntime().halt(1);
          return null;
        });
    streams.start();
    System.in.read();
    streams.close();
  }
}
