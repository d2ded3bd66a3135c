"""Writes partitions as the code of format 1 left them: idle units have an expiry time, and no index lists them."""

import redis

from storage.redis.keys import RedisKeys

_WAITS = '[21000,"deadline",0,"sequence:3","SEQUENCE",1,700]'


def leave_as_format_1(client: redis.Redis, keys: RedisKeys, *idle_units: str, ttl_ms: int = 14_999_999) -> None:
    """Leave a waiting unit `w`, one pending notification, and these idle units."""
    header = {"format": 1, "token": "t2", "commit": 1, "history": '[["t1",1]]', "next_offset": 9, "highest_number": 1}
    header |= {"heal_offset": 5, "source": "topic-id", "waiting": 1, "pending": 1, "attempt": "attempt-1"}
    client.hset(keys.header, mapping=header)
    client.hset(keys.pending, "1", "one")
    client.hset(keys.waiting, "w", _WAITS)
    client.hset(*keys.units(["w"]), mapping={"state": "state of w", "data": "data of w", "7": "seven"})
    leaving = client.pipeline(transaction=False)
    for unit in idle_units:
        leaving.hset(*keys.units([unit]), mapping={"state": f"state of {unit}", "data": f"data of {unit}"})
        leaving.pexpire(*keys.units([unit]), ttl_ms)
    leaving.execute()
