"""Which values are refused, key by key, and with which text."""

import pytest

from notification_service.configuration.schema import SCHEMA
from notification_service.connectors.jms.settings import QueueParts
from notification_service.connectors.mqtt.settings import TopicFilters
from notification_service.events.mapped import PlaceText
from resequencer.keys.list_types import Choices, Durations, Names, Networks, Statuses, Urls, Wholes
from resequencer.keys.value_types import (
    Choice,
    Duration,
    FilePath,
    FirstNumber,
    Foreign,
    Location,
    Number,
    Object,
    OptionOrForeign,
    PerSecond,
    SecretText,
    Size,
    Switch,
    Text,
    TopicName,
    Url,
    Whole,
)

KEYS, CLIENTS = SCHEMA.keys, SCHEMA.open_sections
P = "payment-status-notification"
R = f"{P}.resequencer"
I = "ipf.processing-data.ingress"  # noqa: E741 (short, as P and R are)

WRONG = {
    Choice: ["5", "true", "null", "[kafka]", "nonsense", '""', "{ a = 1 }", "3s"],
    Foreign: ["5", "true", "[a]", "nonsense", '""', "{ a = 1 }", "3s", '"a.b:"', '":C"', '"a b:C"'],
    OptionOrForeign: ["5", "true", "[a]", "nonsense", '""', "{ a = 1 }", "3s", '"a.b:"', '":C"', '"a b:C"'],
    FirstNumber: ["2", "true", "null", "[0]", "-1", "1.5", '""', "{ a = 1 }", "3s", "first"],
    Text: ["5", "true", "null", "[a]", '"a\\nb"', "3s", "{ a = 1 }"],
    TopicName: ["5", "true", "null", "[a]", '"a\\nb"', "3s", "{ a = 1 }", '"."', '".."', "a/b", '"a b"', "x" * 250],
    SecretText: ["5", "true", "null", "[a]", "3s", "{ a = 1 }"],
    Url: ["5", "true", "null", "localhost", '"ftp://localhost"', '"redis://"', '"http://"', "[a]", "{ a = 1 }"],
    Choices: ["release", "[explode]", "[release, release]", "[[release]]", "{ a = 1 }", "5"],
    Names: ["5", "BusinessData", "null", "[1]", "[[A]]", '[" "]', "[A, A]", "['A, B']", "{ a = 1 }"],
    Switch: ["5", "null", "[true]", "yes", '""', "3s", "{ a = 1 }"],
    Urls: ["5", "true", "null", "[1]", "[localhost]", '["ftp://a"]', '["http://me:secret@a"]', "{ a = 1 }"],
    Networks: ["5", "true", "null", "[1]", "[localhost]", '["10.0.0.1/8"]', "{ a = 1 }"],
    FilePath: ["5", "true", '""', '" "', "[a]", "3s", "{ a = 1 }", "x" * 256, "x/" * 2_001],
    Location: ["5", "true", '""', '" "', "[a]", "3s", '"://x"', '"h dfs://x"', '"hdfs://"', "x" * 256, "{ a = 1 }"],
    Duration: ["30", "true", "soon", "-1s", "100us", "1.0005s", "3x", "[3s]", "1000000d", '"3 s s"', "3 months", "{ a = 1 }"],
    Durations: ["5", "3s", "[5]", "[soon]", "[-1s]", "[1000000d]", "null", "{ a = 1 }", "[[1s]]", '""', "[1s, 3x]"],
    Size: ["512m", "true", "[]", "big", "-1", "1.3B", "[1M]", "99999G", "0", "{ a = 1 }"],
    Whole: ["1.5", "true", "[]", "many", "-1", "[1]", "1e99", "99999999999999999999999", '"1 0"', "3s", "{ a = 1 }", "9" * 400],
    PerSecond: ["50", "true", '"50"', '"0/s"', '"-1/s"', '"50/m"', "[1]", "3s", "{ a = 1 }"],
    Object: ["5", "true", "null", "text", "[a]", "3s", "{ a = 3s }", "{ a = [{ b = 1 day }] }", f'{{ a = "{"x" * 100_000}" }}'],
    Wholes: ["5", "[-1]", "[1.5]", "[a]", "[1, 1]", "null", "{ a = 1 }", "[null]", "[[1]]"],
    TopicFilters: [
        "5",
        "T",
        "null",
        "[]",
        "[5]",
        "[[T]]",
        "[T, T]",
        '[""]',
        '["a/#/b"]',
        '["a+"]',
        '["$share/g/T"]',
        "{ a = 1 }",
    ],
    QueueParts: [
        "5",
        "EVENTS",
        "null",
        "[EVENTS]",
        "[{}]",
        '[{ queue = "a b" }]',
        "[{ queue = A, select = B }]",
        "[{ queue = 5 }]",
        "{ queue = A }",
        "[{ queue = A, exclusive = 5 }]",
        "[{ queue = A, selector = 5 }]",
        '[{ queue = A, selector = "a\\nb" }]',
    ],
    PlaceText: ["5", "true", "nonsense", '""', '"value:a..b"', "{ a = 1 }", "3s"],
    Statuses: ["404", "[99]", "[600]", "[404, 404]", "[a]", "null", "{ a = 1 }"],
    Number: ["true", "null", "some", "-0.5", "[1]", "1e99", '"nan"', "inf", "3s", "{ a = 1 }", "9" * 400],
}


@pytest.mark.parametrize("number", range(max(map(len, WRONG.values()))))
def test_a_wrong_value_is_refused_for_every_key_with_its_full_path_and_what_is_expected(refused, number):
    wrong = {path: WRONG[type(takes)][number] for path, takes in KEYS.items() if number < len(WRONG[type(takes)])}
    wrong = {path: value for path, value in wrong.items() if value != "null" or not getattr(KEYS[path], "null", "")}
    problems = refused("\n".join(f"{path} = {value}" for path, value in wrong.items()))
    assert set(problems) == set(wrong)
    assert all("expected" in problem for problem in problems.values())


def test_null_is_refused_for_every_key_where_it_means_nothing(loaded, refused):
    may_be_null = {path for path, takes in KEYS.items() if "null" in takes.expects}
    loaded("\n".join(f"{path} = null" for path in may_be_null))
    assert set(refused("\n".join(f"{path} = null" for path in KEYS))) == set(KEYS) - may_be_null


@pytest.mark.slow
def test_every_key_when_mistyped_is_refused_with_its_value_and_the_nearest_known_key(refused):
    mistyped = {path[:-2] + path[-1]: path for path in KEYS}
    problems = refused("\n".join(f'{each} = "some value"' for each in mistyped))
    assert set(problems) == set(mistyped)
    for each, problem in problems.items():
        assert problem.endswith(f"the nearest known key is {mistyped[each]}")
        assert "some value" in problem or "***" in problem


def test_a_known_key_in_the_wrong_place_is_refused_with_its_right_place(refused):
    assert f"{R}.strategy" in refused(f"{P}.strategy = SEQUENCE")[f"{P}.strategy"]
    assert f"{R}.strategy" in refused("strategy = SEQUENCE")["strategy"]
    assert f"{R}.strategy" in refused("payment-status-notifcation.resequencer.strategy = SEQUENCE").popitem()[1]


def test_a_mistyped_option_is_refused_with_the_nearest_one(refused):
    assert "did you mean SEQUENCE?" in refused(f"{R}.strategy = SEQENCE")[f"{R}.strategy"]


KAFKA = f"{I}.transport = kafka\n{P}.transport = kafka\n"
INPUT, OUTPUT, DEAD = f"{I}.kafka.consumer.topic", f"{P}.kafka.producer.topic", f"{P}.dead-letters.topic"


@pytest.mark.parametrize(
    ("key", "other", "why"),
    [
        (OUTPUT, INPUT, "the topic that the service reads"),
        (DEAD, INPUT, "the topic that the service reads"),
        (DEAD, OUTPUT, "so that readers could not tell dead letters from notifications"),
    ],
)
def test_input_output_and_dead_letters_are_three_topics(loaded, refused, key, other, why):
    same = f"{key} = same\n{other} = same\n"
    assert refused(KAFKA + same) == {key: f"is also {other}, {why}; name another one"}
    loaded(f"{same}{P}.transport = file\n{I}.transport = file")


def test_a_size_that_reads_as_minutes_is_refused_with_the_remedy(refused):
    path = f"{R}.stash-limit.bytes-per-worker"
    assert "512M (not 512m" in refused(f"{path} = 512m")[path]


@pytest.mark.slow
@pytest.mark.parametrize("value", ["5", "null", "[a]", "text"])
@pytest.mark.parametrize("section", [P, R, f"{P}.storage", f"{P}.storage.redis", f"{I}.kafka", CLIENTS[0]])
def test_a_value_in_place_of_a_section_is_refused(refused, section, value):
    assert "keys are expected" in refused(f"{section} = {value}")[section]


@pytest.mark.parametrize(
    "text",
    [
        f'{P}.transport = "fi\u200ble"',
        f'{P}.transport = "fi\\u2028le"',
        f'{P} {{ "tr\u0007ansport" = file }}',
        f'{P}.storage.redis.url = "\x9b2J"',
    ],
)
def test_a_refusal_shows_what_cannot_be_printed_escaped_and_on_one_line(refused_text, text):
    assert refused_text(text).isprintable()


def test_all_problems_are_reported_at_once(refused):
    problems = refused(
        f"{R} {{ stratgy = SEQUENCE, idle-timeout = 1s, max-attempts = many }}\n"
        f"{P} {{ further-transports = [kafka], http.port = 70000 }}"
    )
    assert set(problems) == {
        f"{R}.stratgy",
        f"{R}.idle-timeout",
        f"{R}.max-attempts",
        f"{P}.further-transports",
        f"{P}.http.port",
    }


CONSUMER = CLIENTS[0]
MAP = f"{I}.events.mapped"
MAPPED = f"{I}.events.format = mapped\n{P}.handler = pass-through\n{MAP}"
FILES = f"{I}.transport = file\n{P}.transport = file\n"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (f"{R} {{ idle-timeout = 2s }}", f"{R}.idle-timeout"),
        (f"{R} {{ processing-timeout = 31s }}", f"{R}.idle-timeout"),
        (f"{R} {{ processing-timeout = 5s, handling-limit = 4s }}", f"{R}.handling-limit"),
        (f"{R} {{ handling-limit = 5m }}", f"{R}.handling-limit"),
        (f"{CONSUMER}.max.poll.interval.ms = 60000", f"{R}.handling-limit"),
        (f"{R} {{ stash-timeout = 0s }}", f"{R}.stash-timeout"),
        (f"{R} {{ stash-timeout = lerned }}", f"{R}.stash-timeout"),
        (f"{R} {{ idle-timeout = learned }}", f"{R}.idle-timeout"),
        (f"{R} {{ learned-timeout {{ at-least = 11m }} }}", f"{R}.learned-timeout.at-least"),
        (f"{R} {{ strategy = FULL_PAIN001_AND_CUSTOM_DATA, pds-data-keys = [A] }}", f"{R}.custom-data-keys"),
        (f"{R} {{ strategy = FULL_PAIN001_AND_PDS_DATA, custom-data-keys = [A] }}", f"{R}.pds-data-keys"),
        (f"{R} {{ acknowledge = when-handled }}", f"{R}.acknowledge"),
        (f"{R} {{ acknowledge = when-handled, storage-type = redis }}", f"{R}.acknowledge"),
        (f"{FILES}{R} {{ acknowledge = when-handled, storage-type = none }}", f"{R}.acknowledge"),
        (f"{FILES}{P}.worker.count = 2", f"{P}.worker.count"),
        (f"{R}.retention = 29s", f"{R}.retention"),
        (f"{R}.stash-limit.bytes-per-worker = 4M", f"{R}.stash-limit.bytes-per-worker"),
        (f"{R}.stash-limit.bytes-per-unit = 9M", f"{R}.stash-limit.bytes-per-unit"),
        (f"{R}.stash-limit.bytes-per-unit = 513M", f"{R}.stash-limit.bytes-per-unit"),
        (f"{R} {{ max-attempts = 100 }}", f"{R}.max-attempts"),
        (f"{P}.file.keep-notifications = 3", f"{P}.file.keep-notifications"),
        (f"{I}.file.archive-every = 10m", f"{I}.file.archive-every"),
        (f"{P}.orders {{ enabled = true, topic = IPF_PROCESSING_DATA }}", f"{P}.orders.topic"),
        (f"{P}.orders {{ enabled = true, topic = A, outcomes-topic = A }}", f"{P}.orders.topic"),
        (f"{P}.aggregation {{ enabled = true, facts.topic = IPF_PROCESSING_DATA_ORDERS }}", f"{P}.aggregation.facts.topic"),
        (
            f"{P}.delivery.events.topic = A\n{P}.aggregation {{ enabled = true, facts.topic = A }}",
            f"{P}.aggregation.facts.topic",
        ),
        (
            f'{I}.file.directory = "x/in"\n{P}.aggregation {{ enabled = true, facts.directory = "x/in" }}',
            f"{P}.aggregation.facts.directory",
        ),
        (f"{P}.delivery.events.topic = IPF_PROCESSING_DATA", f"{P}.delivery.events.topic"),
        (f"{P}.delivery.events.topic = IPF_PROCESSING_DATA_ORDERS", f"{P}.delivery.events.topic"),
        (f"{P}.http {{ auth = basic, approval = [release] }}", f"{P}.http.approval"),
        (f"{P}.http {{ auth = basic, approval = [edit, release] }}", f"{P}.http.approval"),
        (f"{P}.http {{ auth = none, approval = [edit] }}", f"{P}.http.approval"),
        (f"{P}.orders {{ enabled = true, outcomes-topic = IPF_PROCESSING_DATA_DEAD_LETTERS }}", f"{P}.orders.outcomes-topic"),
        (f"{R}.strategy = WINDOW", f"{R}.order-by"),
        (f'{MAPPED} {{ id = "header:id" }}\n{R}.strategy = WINDOW', f"{R}.strategy"),
        (f'{MAPPED} {{ time = "header:t", id = key }}\n{R} {{ strategy = WINDOW, order-by = sequence }}', f"{R}.strategy"),
        (f"{R}.strategy = PREVIOUS", f"{R}.strategy"),
        (f'{MAPPED} {{ id = "header:id" }}\n{R}.strategy = PREVIOUS', f"{R}.strategy"),
        *(
            (f'{MAPPED} {{ previous = "header:p", sequence = "header:n", id = {each} }}\n{R}.strategy = PREVIOUS', f"{MAP}.id")
            for each in ("null", "position", "digest")
        ),
    ],
)
def test_an_impossible_constraint_is_refused(refused, text, path):
    assert list(refused(text)) == [path]


def test_constraints_at_their_limit_hold(loaded):
    loaded(f"{R} {{ processing-timeout = 5s, handling-limit = 5s }}")
    loaded(f"{R}.handling-limit = 299s")
    loaded(f'{CONSUMER} {{ max.poll.interval.ms = "60001" }}')
    loaded(f"{FILES}{R} {{ handling-limit = 1h, storage-type = embedded }}")
    loaded(f"{R} {{ idle-timeout = 3s, retention = 3s }}")
    loaded(f"{R}.stash-limit.bytes-per-worker = 5M")
    loaded(f"{R}.stash-limit.bytes-per-unit = 10M")
    loaded(f"{R}.stash-limit.bytes-per-unit = 512M")
    loaded(f"{P}.worker.count = 2")
    loaded(f"{P}.orders {{ enabled = false, topic = A, outcomes-topic = A }}")
    loaded(f"{P}.orders {{ enabled = true, topic = A, outcomes-topic = B }}")
    loaded(f"{P}.aggregation {{ enabled = false, facts.topic = IPF_PROCESSING_DATA }}")
    loaded(f'{I}.file.directory = "x/in"\n{P}.aggregation {{ enabled = true, facts.directory = "x/facts" }}')
    loaded(f"{P}.http {{ auth = basic, approval = [edit] }}")
    loaded(f"{P}.http {{ auth = basic, approval = [edit, release] }}\n{P}.orders.enabled = true")
    loaded(f"{P}.file {{ rotate-at = 1M, keep-notifications = 1 }}")
    loaded(f'{MAPPED} {{ previous = "header:p", id = "header:id" }}\n{R}.strategy = PREVIOUS')
    loaded(f"{I}.events.format = cloudevents\n{P}.handler = pass-through\n{R}.strategy = PREVIOUS")


@pytest.mark.parametrize("value", ["10s", "[a]", "{ a = [b] }"])
def test_a_kafka_option_that_is_no_plain_value_is_refused(refused, value):
    (path,) = refused(f"{CLIENTS[1]}.linger.ms = {value}")
    assert path.startswith(f"{CLIENTS[1]}.linger.ms")


@pytest.mark.parametrize(
    "text",
    [
        f"{P}.storage.infinispan.passwrd = s3cret",
        f"{P}.storage.infinispan.password = [s3cret]",
        f'{P}.storage.redis.url = "ftp://:s3cret@host"',
        f'{P}.storage.rediss.url = "redis://user:s3cret@host"',
        f'{P}.delivery.receivers.tracker.url = "htps://hooks.example/s3cret"',
        f'{P}.delivery.receivers.tracker.ulr = "https://hooks.example/s3cret"',
        f'{P}.delivery.ledger.url = "mysql://host/db?password=s3cret"',
        f"{CLIENTS[0]}.sasl.password = [s3cret]",
        f"{P}.api-token = s3cret",
        f'{P}.storage.infinispan.password = "s3cret',
        f"{P}.storage.infinispan.password = @s3cret",
    ],
)
def test_a_refusal_never_shows_a_secret(refused, text):
    assert "s3cret" not in str(refused(text))
    assert "s3cret" not in str(refused("", text))


RECEIVERS = f"{P}.delivery.receivers"


@pytest.mark.parametrize(
    ("text", "path", "problem"),
    [
        ('Tracker.url = "http://a"', "Tracker", "is no name of a receiver"),
        ("t.rate = 5/s", "t.url", "has no value; give the URL of the receiver"),
        ('t { url = "http://a", auth { user = me, token = x } }', "t.auth.user", "are both set"),
        ('t { url = "http://a", tls.key-file = "k.pem" }', "t.tls.key-file", "needs tls.certificate-file"),
        ('t { url = "http://a", retry.first = 10m }', "t.retry.first", "is more than retry.most"),
        ('t { url = "http://a", suspension.probe = 20m }', "t.suspension.probe", "is more than suspension.most"),
        ('t { url = "http://a", concurency = 5 }', "t.concurency", f"the nearest known key is {RECEIVERS}.t.concurrency"),
        ('t { url = "http://a", steps = verify }', "t.steps", "one of deliver, announce-deliver"),
        ("t = 5", "t", "stands where keys are expected"),
    ],
)
def test_a_receiver_is_refused_under_its_own_name(refused, text, path, problem):
    found = refused(f"{RECEIVERS} {{ {text} }}")
    assert problem in found[f"{RECEIVERS}.{path}"]


def test_no_file_is_deleted_before_a_live_receiver_has_it(refused, loaded):
    files = f"{P}.transport = file, {I}.transport = file, {P}.file {{ rotate-at = 1M, keep-notifications = 3 }}"
    live = f'{files}, {RECEIVERS}.t.url = "http://a"'
    assert "before it is delivered" in refused(live)[f"{RECEIVERS}.t.live"]
    assert loaded(f"{live}, {RECEIVERS}.t.live = false")
    assert loaded(f"{live}, {P}.transport = kafka, {I}.transport = kafka")


PASSES = f"{P} {{ handler = pass-through }}\nipf.processing-data.ingress.events.format = cloudevents\n{R}.strategy = SEQUENCE"


@pytest.mark.parametrize("key", ["statuses", "entities"])
def test_a_receiver_cannot_select_by_what_records_that_pass_through_do_not_have(loaded, refused, key):
    selects = f'{P}.delivery.receivers.r {{ url = "http://r", select.{key} = [ACSC] }}'
    assert "handler = pass-through makes none" in refused(f"{PASSES}\n{selects}")[f"{P}.delivery.receivers.r.select.{key}"]
    loaded(selects)


def test_groups_need_payments_but_stores_of_ones_own_do_not(loaded, refused):
    enabled = f"{P}.aggregation.enabled = true"
    assert "configure a store of your own" in refused(f"{PASSES}\n{enabled}")[f"{P}.aggregation.enabled"]
    assert "configure a store of your own" in refused(f"{P}.handler = pass-through\n{enabled}")[f"{P}.aggregation.enabled"]
    loaded(f'{PASSES}\n{enabled}\n{P}.aggregation.stores.jobs.apply = "own.jobs:apply"')
    loaded(enabled)
