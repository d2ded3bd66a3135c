"""The scripts that run inside the Redis server: each is atomic there and answers in one round trip.

All of them begin with the server's time and the header; a verdict comes first in what they answer, the server's time in
milliseconds second. Numbers stay texts unless they are compared: a Lua number is exact only up to 2^53. An error in the middle
undoes nothing, so what can fail comes first: in `COMMIT` a first write of a kind that a full memory denies, in `TAKE` one of
each command that a user may lack the right to. The header's commit number is written last.
"""

from enum import StrEnum
from hashlib import sha1

_TIME = """
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stored = call('HMGET', KEYS[1], 'token', 'commit', 'attempt')

-- Lua gives a call some 8000 values at most.
local function in_parts(command, key, values, from, to)
  for first = from, to, 2000 do
    call(command, key, unpack(values, first, math.min(first + 1999, to)))
  end
end
"""

# ARGV: token, commit, when we last heard of the server, how long ago that may be.
_OWNED = """
if stored[1] ~= ARGV[1] or stored[2] ~= ARGV[2] then return {'lost', now, stored[1], stored[2], stored[3]} end
if now - ARGV[3] > tonumber(ARGV[4]) then return {'silent', now} end
"""


class Verdict(StrEnum):
    """`DONE`: it was done before. `LOST`: the header is another; it follows. `SILENT`: we were away for too long.
    `TORN`: a unit that waits is not there; its key follows.
    """

    OK = "ok"
    DONE = "done"
    LOST = "lost"
    SILENT = "silent"
    TORN = "torn"


FULFILLED = (Verdict.OK.encode(), Verdict.DONE.encode())
"""What was asked for was done, now or before."""


class Script:
    """A script and the digest by which a server that has seen it knows it."""

    def __init__(self, *parts: str) -> None:
        self.text = "".join(parts)
        self.sha = sha1(self.text.encode(), usedforsecurity=False).hexdigest()


# KEYS: header, waiting, pending. Answers what the header holds, and how much waits and is pending.
LOOK = Script(
    _TIME,
    "return {'ok', now, call('HGETALL', KEYS[1]), call('HLEN', KEYS[2]), call('HLEN', KEYS[3])}",
)

# KEYS: header, a key that nothing is kept under. One of each command that a user may lack the right to, the one
# that leaves something last: nothing changes.
_PROBE = """
local nothing = KEYS[2]
call('HSCAN', nothing, '0', 'COUNT', '1')
call('HGETALL', nothing)
call('HKEYS', nothing)
call('HLEN', nothing)
call('HEXISTS', nothing, 'x')
call('PTTL', nothing)
call('PERSIST', nothing)
call('PEXPIREAT', nothing, string.format('%.0f', now + 1000))
call('UNLINK', nothing)
call('HDEL', nothing, 'x')
call('HSET', nothing, 'x', '1')
call('UNLINK', nothing)
"""

PROBE = Script(_TIME, _PROBE, "return {'ok', now}")

# KEYS: as PROBE. ARGV: token and commit as they were looked at, format, token, history.
TAKE = Script(
    _TIME,
    _PROBE,
    """
    if (stored[1] or '') ~= ARGV[1] or (stored[2] or '') ~= ARGV[2] then
      return {'lost', now, stored[1], stored[2], stored[3]}
    end
    call('HSET', KEYS[1], 'format', ARGV[3], 'token', ARGV[4], 'commit', '0', 'history', ARGV[5])
    return {'ok', now}
    """,
)

# KEYS: header. Only whether it is still ours.
HEAR = Script(_TIME, _OWNED, "return {'ok', now}")

# KEYS: header, a hash. ARGV from 5: cursor, count. Some of its fields and the next cursor; a field may come twice.
SCAN = Script(
    _TIME,
    _OWNED,
    """
    local found = call('HSCAN', KEYS[2], ARGV[5], 'COUNT', ARGV[6])
    return {'ok', now, found[1], found[2]}
    """,
)

# KEYS: header, waiting, units. ARGV from 5: grace, length of the units' prefix, bytes that are enough.
# The fields of each unit, none for one that is not there; of fewer units than asked for where their bytes are enough.
LOAD = Script(
    _TIME,
    _OWNED,
    """
    local grace, prefix, enough = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
    local units, bytes = {}, 0
    for i = 3, #KEYS do
      local key = KEYS[i]
      local left = call('PTTL', key)
      local fields = {}
      if left >= 0 and left < grace then
        call('UNLINK', key)
      elseif left ~= -2 then
        fields = call('HGETALL', key)
        for j = 2, #fields, 2 do bytes = bytes + #fields[j] end
      elseif call('HEXISTS', KEYS[2], string.sub(key, prefix + 1)) == 1 then
        return {'torn', now, key}
      end
      units[i - 2] = fields
      if bytes >= enough then break end
    end
    return {'ok', now, units}
    """,
)

# KEYS: header, waiting, pending, units. ARGV from 5: number, attempt, next offset, highest number, heal offset, source,
# published, how long an idle unit is kept, length of the units' prefix, how many fields are added to what is pending; those
# fields; for each unit when it changed, its index entry or nothing, how many fields go and how many come, and these.
COMMIT = Script(
    _TIME,
    """
    local is_ours = stored[1] == ARGV[1]
    local is_done = is_ours and stored[2] == ARGV[5] and stored[3] == ARGV[6]
    if not is_done and not (is_ours and stored[2] == ARGV[2]) then
      return {'lost', now, stored[1], stored[2], stored[3]}
    end
    if now - ARGV[3] > tonumber(ARGV[4]) then return {'silent', now} end
    -- A write even if it is done: from Redis 7.2 on, WAIT waits for the last write of its own connection only.
    call('HSET', KEYS[1], 'token', ARGV[1])
    if is_done then return {'done', now} end

    local published, keep, prefix = tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])
    local at = 15 + ARGV[14]
    in_parts('HSET', KEYS[3], ARGV, 15, at - 1)
    local left = {}
    for _, number in ipairs(call('HKEYS', KEYS[3])) do
      if tonumber(number) <= published then left[#left + 1] = number end
    end
    in_parts('HDEL', KEYS[3], left, 1, #left)

    local idle, waiting = {}, {}
    for i = 4, #KEYS do
      local key, unit = KEYS[i], string.sub(KEYS[i], prefix + 1)
      local changed_at, waits, gone, came = tonumber(ARGV[at]), ARGV[at + 1], ARGV[at + 2] + 0, ARGV[at + 3] + 0
      at = at + 4
      in_parts('HDEL', key, ARGV, at, at + gone - 1)
      at = at + gone
      in_parts('HSET', key, ARGV, at, at + came - 1)
      at = at + came
      if waits == '' then
        idle[#idle + 1] = unit
        call('PEXPIREAT', key, string.format('%.0f', math.max(changed_at, now) + keep))
      else
        waiting[#waiting + 1] = unit
        waiting[#waiting + 1] = waits
        call('PERSIST', key)
      end
    end
    in_parts('HDEL', KEYS[2], idle, 1, #idle)
    in_parts('HSET', KEYS[2], waiting, 1, #waiting)

    call('HSET', KEYS[1], 'next_offset', ARGV[7], 'highest_number', ARGV[8], 'heal_offset', ARGV[9], 'source', ARGV[10],
      'waiting', call('HLEN', KEYS[2]), 'pending', call('HLEN', KEYS[3]), 'attempt', ARGV[6], 'commit', ARGV[5])
    return {'ok', now}
    """,
)
