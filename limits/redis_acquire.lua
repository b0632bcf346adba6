-- Judges one admission by all its limits, then writes to all of them or to none. One step: nothing else runs meanwhile.
--
-- The judgement is limits.Decide in Lua; a property test holds the two together. Numbers are doubles, so all of them stay
-- below 2^53: moments in whole microseconds, and what a bucket owes in whole nanoseconds up to SPAN.
--
-- KEYS  1   the admission's record
--       2…  one for each thing to judge, in order: a bucket, or a set of leases
-- ARGV  1   the time in microseconds; empty: Redis's own
--       2   attempt, 3 admission, 4 lease time in ms, 5 how much longer than needed keys live in ms, 6 memo
--       7   two doubles for each thing to judge: interval in ns and burst of a rate, or 0 and the places of a concurrency limit
--
-- Answers with one letter, then how the binding limit stands, then the memo where it is an old answer:
-- A admitted, R refused, S the same admission again and its first answer, X this attempt was given up before it came.
--
-- It is the path of every request, so it makes few tables and few strings.

local call, pack, unpackd, max, min, floor, ceil = redis.call, struct.pack, struct.unpack, math.max, math.min, math.floor, math.ceil
local SPAN = 2 ^ 52 -- maxSpan in Go
local RETRY = 1e9   -- ConcurrencyRetry in Go, ns
local OPEN, VOID = 1, 3
local HEAD = 17     -- bytes of a record before its answer: expiry, state, attempt

local now = tonumber(ARGV[1])
if not now then
  local t = call('TIME')
  now = t[1] * 1e6 + t[2]
end
local attempt, admission, ttl, slack, memo = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local n = #KEYS - 1
local numbers = {unpackd('>' .. string.rep('dd', n), ARGV[7])} -- of item i: 2i-1 and 2i

-- Phase one: read and judge.

local reads = {KEYS[1]}
for i = 1, n do
  if numbers[2 * i - 1] > 0 then
    reads[#reads + 1] = KEYS[i + 1]
  end
end
local stored = call('MGET', unpack(reads))

if stored[1] then
  local expires, state, by = unpackd('>dBd', stored[1])
  if now < expires and state ~= VOID then
    if by ~= attempt then -- two attempts share it now: neither may take it back from the other
      call('SETRANGE', KEYS[1], HEAD - 8, pack('>d', 0))
    end
    return 'S' .. string.sub(stored[1], HEAD + 1)
  elseif now < expires and attempt <= by then
    return 'X'
  end
end

-- Bucket.Fit: what the bucket owes under this limit, and whether it was written under another.
local function fit(raw, interval, burst)
  if not raw then
    return 0, false
  end
  local us, ns, was, had = unpackd('>dddd', raw)
  local debt = max(0, (us - now) * 1000 + ns)
  if was == interval and had == burst then
    return debt, false
  end
  if was ~= interval then
    debt = min(ceil(debt / was * interval), SPAN)
  end
  return min(debt, burst * interval, SPAN), true
end

local function put(key, debt, interval, burst)
  call('SET', key, pack('>dddd', now + floor(debt / 1000), debt % 1000, interval, burst), 'PX', ceil(debt / 1e6) + slack)
end

-- The binding item and how it stands; by level.stricter the first, or who comes later and is stricter.
local item, most, left, reset, wait = 0, 0, 0, 0, 0
local after = {} -- of item i: what its bucket owes if all pass, or its leases so far
local refit      -- buckets written under other limits, and what they owe
local live = string.format('(%.0f', now)
local rates = 1

for i = 1, n do
  local interval, burst = numbers[2 * i - 1], numbers[2 * i]
  local l, r, w
  if interval > 0 then
    rates = rates + 1
    local debt, changed = fit(stored[rates], interval, burst)
    if changed then
      refit = refit or {}
      refit[i] = debt
    end
    local span = min(burst * interval, SPAN)
    w = max(0, debt + interval - span)
    r = w > 0 and debt or debt + interval
    l = floor(max(0, span - r) / interval)
    after[i] = r
  else
    local used = call('ZCOUNT', KEYS[i + 1], live, '+inf')
    w = used >= burst and RETRY or 0
    r = RETRY
    l = max(0, burst - used - 1)
    after[i] = used
  end
  local stricter = item == 0
  if not stricter then
    if w > 0 or wait > 0 then
      stricter = w > wait
    else
      stricter = l * most < left * burst
    end
  end
  if stricter then
    item, most, left, reset, wait = i, burst, l, r, w
  end
end

local answer = pack('>Bdddd', item, most, left, reset, wait)

-- Phase two: write all, or nothing. Refitting a bucket to a changed limit uses nothing of it.

if wait > 0 then -- who refuses is stricter than all who do not
  for i, debt in pairs(refit or {}) do
    put(KEYS[i + 1], debt, numbers[2 * i - 1], numbers[2 * i])
  end
  return 'R' .. answer
end

local expires, lives = now + ttl * 1000, ttl + slack
local score
for i = 1, n do
  local key, interval = KEYS[i + 1], numbers[2 * i - 1]
  if interval > 0 then
    put(key, after[i], interval, numbers[2 * i])
  else
    score = score or string.format('%.0f', expires)
    if after[i] == 0 or now % 16 == 0 then -- those of dead doors do not count; to take them out can wait
      call('ZREMRANGEBYSCORE', key, '-inf', now)
    end
    call('ZADD', key, score, admission)
    if after[i] == 0 then
      call('PEXPIRE', key, lives)
    else
      call('PEXPIRE', key, lives, 'GT') -- never before the last lease in it
    end
  end
end
call('SET', KEYS[1], pack('>dBd', expires, OPEN, attempt) .. answer .. memo, 'PX', lives)
return 'A' .. answer
