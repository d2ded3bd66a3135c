"""The scripts that run inside the Redis server. Each is atomic and takes one round trip.

Each script reads the header first, and its answer begins with a verdict. No script uses the server's time. Numbers stay texts
unless they are compared, because a Lua number is exact only up to 2^53. An error in the middle rolls nothing back, so everything
that can fail comes first: in `COMMIT` a write of a kind that a server with full memory refuses, in `TAKE` one of each command
that the user may have no right to. The header's commit number is written last.
"""

from enum import StrEnum
from hashlib import sha1

_HEADER = """
local call = redis.call
local stored = call('HMGET', KEYS[1], 'token', 'commit', 'attempt')

-- Lua gives a call some 8000 values at most.
local function in_parts(command, key, values, from, to)
  for first = from, to, 2000 do
    call(command, key, unpack(values, first, math.min(first + 1999, to)))
  end
end
"""

# ARGV: token, commit.
_OWNED = """
if stored[1] ~= ARGV[1] or stored[2] ~= ARGV[2] then return {'lost', stored[1], stored[2], stored[3]} end
"""


class Verdict(StrEnum):
    """The result of a script.

    `DONE`: the commit was stored before. `LOST`: the header has another commit, which follows. `TORN`: the key of a waiting
    unit is missing; the key follows.
    """

    OK = "ok"
    DONE = "done"
    LOST = "lost"
    TORN = "torn"


FULFILLED = (Verdict.OK.encode(), Verdict.DONE.encode())
"""The verdicts of success: done now or before."""


class Script:
    """A script and its digest, by which a server that has loaded the script can run it.

    `by_digest` and `by_text` are the commands that run it.
    """

    by_digest = "EVALSHA"
    by_text = "EVAL"

    def __init__(self, *parts: str) -> None:
        self.text = "".join(parts)
        self.sha = sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class ReadOnlyScript(Script):
    """A script that the server keeps from writing. Its user needs no right to write. It needs Redis 7.0 or Valkey."""

    by_digest = "EVALSHA_RO"
    by_text = "EVAL_RO"


# KEYS: header, waiting, pending, idle. Returns the header's fields, and the counts of waiting, pending and idle entries.
LOOK = Script(
    _HEADER,
    "return {'ok', call('HGETALL', KEYS[1]), call('HLEN', KEYS[2]), call('HLEN', KEYS[3]), call('ZCARD', KEYS[4])}",
)

# KEYS: header, an unused key. Runs one of each command that the user may have no right to. Writes come last and are undone, so
# that nothing changes.
_PROBE = """
local nothing = KEYS[2]
call('SCAN', '0', 'COUNT', '1')
call('HSCAN', nothing, '0', 'COUNT', '1')
call('HGETALL', nothing)
call('HKEYS', nothing)
call('HLEN', nothing)
call('HEXISTS', nothing, 'x')
call('ZCARD', nothing)
call('ZSCORE', nothing, 'x')
call('ZRANGE', nothing, '-inf', '0', 'BYSCORE', 'LIMIT', '0', '1')
call('UNLINK', nothing)
call('HDEL', nothing, 'x')
call('ZREM', nothing, 'x')
call('HSET', nothing, 'x', '1')
call('UNLINK', nothing)
call('ZADD', nothing, '0', 'x')
call('UNLINK', nothing)
"""

PROBE = Script(_HEADER, _PROBE, "return {'ok'}")

# KEYS: as PROBE. ARGV: token and commit as read before, format, new token, history, the number of units in the index of idle
# units, empty if the index must be rebuilt.
TAKE = Script(
    _HEADER,
    _PROBE,
    """
    if (stored[1] or '') ~= ARGV[1] or (stored[2] or '') ~= ARGV[2] then
      return {'lost', stored[1], stored[2], stored[3]}
    end
    call('HSET', KEYS[1], 'format', ARGV[3], 'token', ARGV[4], 'commit', '0', 'history', ARGV[5], 'idle', ARGV[6])
    return {'ok'}
    """,
)

# KEYS: header, a hash. ARGV from 3: cursor, count. Returns the next cursor and some fields of the hash; one may come twice.
SCAN = Script(
    _HEADER,
    _OWNED,
    """
    local found = call('HSCAN', KEYS[2], ARGV[3], 'COUNT', ARGV[4])
    return {'ok', found[1], found[2]}
    """,
)

# KEYS: header, waiting, idle, units. ARGV from 3: length of the units' prefix, byte limit of the answer.
# Returns the fields of each unit, none for an unknown unit, and stops after the unit that reaches the limit. Also returns the
# keys of the units that are in the index of idle units but missing.
LOAD = Script(
    _HEADER,
    _OWNED,
    """
    local prefix, enough = tonumber(ARGV[3]), tonumber(ARGV[4])
    local units, missed, bytes = {}, {}, 0
    for i = 4, #KEYS do
      local key, unit = KEYS[i], string.sub(KEYS[i], prefix + 1)
      local fields = call('HGETALL', key)
      for j = 2, #fields, 2 do bytes = bytes + #fields[j] end
      if #fields == 0 then
        if call('HEXISTS', KEYS[2], unit) == 1 then return {'torn', key} end
        if call('ZSCORE', KEYS[3], unit) then missed[#missed + 1] = key end
      end
      units[i - 3] = fields
      if bytes >= enough then break end
    end
    return {'ok', units, missed}
    """,
)

# KEYS: header, waiting, pending, idle, changes, units. ARGV from 3: number, attempt, next offset, highest number, heal offset,
# source, caught-up clock, published, length of the units' prefix, the marker of this commit, the text of the orders, the state of
# the source, the count of fields to add to the pending output; these fields; for each unit its index entry or nothing, the counts
# of fields to remove and to set, and these fields.
#
# The log of changes has an entry for each commit: the units that wait or waited. It begins again where entries were deleted by
# hand. It grows with the number of waiting units, because reading all of these is cheaper than reading a longer log.
COMMIT = Script(
    _HEADER,
    """
    local is_ours = stored[1] == ARGV[1]
    local is_done = is_ours and stored[2] == ARGV[3] and stored[3] == ARGV[4]
    if not is_done and not (is_ours and stored[2] == ARGV[2]) then
      return {'lost', stored[1], stored[2], stored[3]}
    end
    local pack, entries = cmsgpack.pack, call('HLEN', KEYS[5])
    local log = call('HMGET', KEYS[1], 'log_begin', 'log_end', 'log_bytes')
    local first, last, bytes = tonumber(log[1] or 0), tonumber(log[2] or 0), tonumber(log[3] or 0)
    -- A write even if it is done: from Redis 7.2 on, WAIT waits for the last write of its own connection only.
    call('HSET', KEYS[1], 'token', ARGV[1])
    if is_done then return {'done'} end

    local clock, published, prefix = ARGV[9], tonumber(ARGV[10]), tonumber(ARGV[11])
    local at = 16 + ARGV[15]
    in_parts('HSET', KEYS[3], ARGV, 16, at - 1)
    local left = {}
    for _, number in ipairs(call('HKEYS', KEYS[3])) do
      if tonumber(number) <= published then left[#left + 1] = number end
    end
    in_parts('HDEL', KEYS[3], left, 1, #left)

    -- Each unit is in one of the two indexes.
    local idle, waiting_units, waiting, changed = {}, {}, {}, {}
    for i = 6, #KEYS do
      local key, unit = KEYS[i], string.sub(KEYS[i], prefix + 1)
      local waits, gone, came = ARGV[at], ARGV[at + 1] + 0, ARGV[at + 2] + 0
      at = at + 3
      in_parts('HDEL', key, ARGV, at, at + gone - 1)
      at = at + gone
      in_parts('HSET', key, ARGV, at, at + came - 1)
      at = at + came
      if waits == '' then
        if call('HDEL', KEYS[2], unit) == 1 then changed[#changed + 1] = unit end
        idle[#idle + 1] = clock
        idle[#idle + 1] = unit
      else
        changed[#changed + 1] = unit
        waiting_units[#waiting_units + 1] = unit
        waiting[#waiting + 1] = unit
        waiting[#waiting + 1] = waits
      end
    end
    in_parts('ZADD', KEYS[4], idle, 1, #idle)
    in_parts('ZREM', KEYS[4], waiting_units, 1, #waiting_units)
    in_parts('HSET', KEYS[2], waiting, 1, #waiting)

    local count = call('HLEN', KEYS[2])
    if entries ~= last - first then
      call('UNLINK', KEYS[5])
      first, bytes = last, 0
    end
    local entry = #changed > 0 and pack(changed) or ''
    call('HSET', KEYS[5], last, entry)
    last, bytes = last + 1, bytes + #entry + 64
    while bytes > math.min(65536 + 16 * count, 8388608) and first < last do
      bytes = bytes - #(call('HMGET', KEYS[5], first)[1] or '') - 64
      call('HDEL', KEYS[5], first)
      first = first + 1
    end

    call('HSET', KEYS[1], 'log_marker', ARGV[12], 'log_begin', first, 'log_end', last, 'log_bytes', bytes)
    call('HSET', KEYS[1], 'next_offset', ARGV[5], 'highest_number', ARGV[6], 'heal_offset', ARGV[7], 'source', ARGV[8],
      'caught_up_ms', clock, 'waiting', count, 'pending', call('HLEN', KEYS[3]), 'idle', call('ZCARD', KEYS[4]),
      'orders', ARGV[13], 'source_state', ARGV[14], 'attempt', ARGV[4], 'commit', ARGV[3])
    return {'ok'}
    """,
)

# KEYS: header, idle. ARGV from 3: clock, how many to skip, count. Returns idle units that last changed then or before, the oldest
# change first.
DUE = Script(
    _HEADER,
    _OWNED,
    "return {'ok', call('ZRANGE', KEYS[2], '-inf', ARGV[3], 'BYSCORE', 'LIMIT', ARGV[4], ARGV[5])}",
)

# KEYS: header, waiting, idle, units. ARGV from 3: clock, length of the units' prefix. Removes the units that last changed then or
# before from the index, and deletes those in which nothing waits. Returns how many left the index.
# Deletions come first: a server with full memory refuses no write after another write of the same script.
FORGET = Script(
    _HEADER,
    _OWNED,
    """
    local clock, prefix = tonumber(ARGV[3]), tonumber(ARGV[4])
    local gone = {}
    for i = 4, #KEYS do
      local unit = string.sub(KEYS[i], prefix + 1)
      local changed_at = call('ZSCORE', KEYS[3], unit)
      if changed_at and tonumber(changed_at) <= clock then
        if call('HEXISTS', KEYS[2], unit) == 0 then call('UNLINK', KEYS[i]) end
        gone[#gone + 1] = unit
      end
    end
    in_parts('ZREM', KEYS[3], gone, 1, #gone)
    call('HSET', KEYS[1], 'idle', call('ZCARD', KEYS[3]))
    return {'ok', #gone}
    """,
)

# KEYS: header, waiting, idle, an unused key, units. ARGV from 3: clock, length of the units' prefix, whether these are the last
# units. While a slot moves to another node, not all units are found; the missing unused key then makes the script fail.
# Adds the units in which nothing waits, and that the index lacks, as if they had changed now. Returns how many were added.
INDEX = Script(
    _HEADER,
    _OWNED,
    """
    local prefix, joined = tonumber(ARGV[4]), 0
    for i = 5, #KEYS do
      local unit = string.sub(KEYS[i], prefix + 1)
      if call('HEXISTS', KEYS[2], unit) == 0 then
        joined = joined + call('ZADD', KEYS[3], 'NX', ARGV[3], unit)
      end
    end
    if ARGV[5] == '1' then call('HSET', KEYS[1], 'idle', call('ZCARD', KEYS[3])) end
    return {'ok', joined}
    """,
)

# The scripts of the view, which owns nothing: no token is compared.

# KEYS: header. Returns its fields.
VIEW_HEADER = ReadOnlyScript("return redis.call('HGETALL', KEYS[1])")

# KEYS: header, waiting, a unit. ARGV: the unit's id. Returns the header's fields, the unit's fields and its entry in the index.
VIEW_UNIT = ReadOnlyScript(
    "return {redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[3]), redis.call('HGET', KEYS[2], ARGV[1])}"
)

# KEYS: changes. ARGV: the first entry, the last one. Returns these entries of the log, without those that are gone.
VIEW_CHANGES = ReadOnlyScript("""
    local found = {}
    for number = tonumber(ARGV[1]), tonumber(ARGV[2]) do
      found[#found + 1] = redis.call('HGET', KEYS[1], number) or nil
    end
    return found
""")

# KEYS: waiting. ARGV: units. Returns the entry of each unit in the index, nil for one that does not wait.
VIEW_WAITS = ReadOnlyScript("""
    local found = {}
    for i, unit in ipairs(ARGV) do found[i] = redis.call('HGET', KEYS[1], unit) end
    return found
""")

# KEYS: waiting. ARGV: cursor, count. Returns the next cursor and fields. A field that is there throughout comes for certain.
VIEW_SCAN = ReadOnlyScript("return redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])")
