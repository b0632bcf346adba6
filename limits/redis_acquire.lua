-- Judges one admission by all its limits, then writes to all of them or to none. One step: nothing else runs meanwhile.
--
-- The judgement is limits.Decide in Lua; a property test holds the two together. Numbers are doubles, so all of them stay
-- below 2^53: moments in whole microseconds, and what a bucket owes in whole nanoseconds up to SPAN.
--
-- KEYS  1   the admission's record
--       2…  one for each thing to judge, in order: a bucket, or a set of leases
-- ARGV  1   the time in microseconds; empty: Redis's own
--       2   attempt, 3 admission, 4 lease time in ms, 5 how much longer than needed keys live in ms, 6 memo
--       7…  two for each thing to judge: interval in ns and burst of a rate, or 0 and the places of a concurrency limit
--
-- Answers with one letter, then how the binding limit stands, then the memo where it is an old answer:
-- A admitted, R refused, S the same admission again and its first answer, X this attempt was given up before it came.

local SPAN = 2 ^ 52 -- maxSpan in Go
local RETRY = 1e9   -- ConcurrencyRetry in Go, ns
local OPEN, VOID = 1, 3
local HEAD = 17     -- bytes of a record before its answer: expiry, state, attempt

local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1e6 + t[2]
end
local attempt, admission, ttl, slack, memo = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]

-- Phase one: read and judge.

local reads, place = {KEYS[1]}, {}
for i = 2, #KEYS do
  if ARGV[2 * i + 3] ~= '0' then
    reads[#reads + 1] = KEYS[i]
    place[i] = #reads
  end
end
local stored = redis.call('MGET', unpack(reads))

if stored[1] then
  local expires, state, by = struct.unpack('>dBd', stored[1])
  if now < expires and state ~= VOID then
    if by ~= attempt then -- two attempts share it now: neither may take it back from the other
      redis.call('SETRANGE', KEYS[1], HEAD - 8, struct.pack('>d', 0))
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
  local us, ns, was, had = struct.unpack('>dddd', raw)
  local debt = math.max(0, (us - now) * 1000 + ns)
  if was == interval and had == burst then
    return debt, false
  end
  if was ~= interval then
    debt = math.min(math.ceil(debt / was * interval), SPAN)
  end
  return math.min(debt, burst * interval, SPAN), true
end

local function put(key, debt, interval, burst)
  local value = struct.pack('>dddd', now + math.floor(debt / 1000), debt % 1000, interval, burst)
  redis.call('SET', key, value, 'PX', string.format('%.0f', math.ceil(debt / 1e6) + slack))
end

-- level.stricter
local function stricter(l, o)
  if l.wait > 0 or o.wait > 0 then
    return l.wait > o.wait
  end
  return l.left * o.max < o.left * l.max
end

local standings, binding, refused = {}, nil, false
for i = 2, #KEYS do
  local interval, max = tonumber(ARGV[2 * i + 3]), tonumber(ARGV[2 * i + 4])
  local s = {item = i - 1, max = max, interval = interval, wait = 0}
  if interval > 0 then
    local span = math.min(max * interval, SPAN)
    s.debt, s.refit = fit(stored[place[i]], interval, max)
    s.wait = math.max(0, s.debt + interval - span)
    s.reset = s.debt
    if s.wait == 0 then
      s.reset = s.debt + interval
    end
    s.left = math.floor(math.max(0, span - s.reset) / interval)
  else
    s.used = redis.call('ZCOUNT', KEYS[i], string.format('(%.0f', now), '+inf')
    s.reset = RETRY
    if s.used >= max then
      s.wait, s.left = RETRY, 0
    else
      s.left = max - s.used - 1
    end
  end
  refused = refused or s.wait > 0
  standings[i] = s
  if not binding or stricter(s, binding) then
    binding = s
  end
end

local answer = struct.pack('>Bdddd', 0, 0, 0, 0, 0)
if binding then
  answer = struct.pack('>Bdddd', binding.item, binding.max, binding.left, binding.reset, binding.wait)
end

-- Phase two: write all, or nothing. Refitting a bucket to a changed limit uses nothing of it.

if refused then
  for i, s in pairs(standings) do
    if s.refit then
      put(KEYS[i], s.debt, s.interval, s.max)
    end
  end
  return 'R' .. answer
end

local expires = now + ttl * 1000
local score, lives = string.format('%.0f', expires), string.format('%.0f', ttl + slack)
for i = 2, #KEYS do
  local s = standings[i]
  if s.interval > 0 then
    put(KEYS[i], s.reset, s.interval, s.max)
  else
    redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', string.format('%.0f', now))
    redis.call('ZADD', KEYS[i], score, admission)
    if s.used == 0 then
      redis.call('PEXPIRE', KEYS[i], lives)
    else
      redis.call('PEXPIRE', KEYS[i], lives, 'GT') -- never before the last lease in it
    end
  end
end
redis.call('SET', KEYS[1], struct.pack('>dBd', expires, OPEN, attempt) .. answer .. memo, 'PX', lives)
return 'A' .. answer
