-- Judges one admission by all its limits, then writes to all of them or to none. One step: nothing else runs meanwhile.
--
-- The judgement is limits.Decide in Lua, as far as yes or no; a property test holds the two together. How the limits stand is
-- then reckoned by the caller from the same facts.
--
-- KEYS  1 the admission's record, 2… the counters of all its limits, then the sets of leases of those with concurrency
-- ARGV  1 doubles: the time (0: Redis's own), attempt, tokens, lease time, how much longer than needed keys live, in µs
--       2 admission, 3 eight doubles for each limit: what it allows here (of a quota what is left by other spokes, also below 0;
--       0: none), 4 its limits as bytes, 5 how long the record lives in ms
--
-- Answers the new record, which begins with A. Or R, the time, and the counters: refused. Or S and the record: the same
-- admission again. Or X: this attempt was given up before it came.
--
-- It is the path of every request, so it makes few tables, few strings and few calls.

local keys, numbers = KEYS, ARGV[3]
local now, attempt, tokens, ttl, slack = unpackd('<ddddd', ARGV[1])
now = clock(now)
local n = #numbers / 64

-- Phase one: read and judge.

local stored = call('MGET', unpack(keys, 1, n + 1))
if stored[1] then
  local state, expires, by = unpackd('<Bdd', stored[1])
  if now < expires and state ~= VOID then
    if by ~= attempt then -- two attempts share it now: neither may take it back from the other
      call('SETRANGE', keys[1], '9', pack('<d', 0))
    end
    return 'S' .. stored[1]
  elseif now < expires and attempt <= by then
    return 'X'
  end
end

local minute, day, month = floor(now / 6e7), floor(now / 864e8), nil
local expires = now + ttl
local charged = tokens < MOST and tokens or MOST
local refused, at, set = false, 1, n + 1
local after = {}  -- of limit i: its counter if all pass, or the first of it that changes
local longer      -- of limit i: how long its counter is to live from now on, where that is longer than before
local empty       -- sets of leases without any
local refit       -- of limit i: what its bucket owes, where that was written under another limit

for i = 1, n do
  local interval, burst, places, mtokens, drequests, dtokens, yrequests, ytokens
  interval, burst, places, mtokens, drequests, dtokens, yrequests, ytokens, at = unpackd('<dddddddd', numbers, at)
  local full, ns, leases, mt, dr, dt, yr, yt, was, had, soonest, lives, m, d, y
  local s = stored[i + 1]
  if s then
    full, ns, leases, mt, dr, dt, yr, yt, was, had, soonest, lives, m, d, y = unpackd(COUNTER, s)
  else
    full, ns, leases, mt, dr, dt, yr, yt, was, had, soonest, lives, m, d, y = 0, 0, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    stored[i + 1] = string.rep('\0', 120)
  end
  local needed = now -- how long it has something to say
  local same = s     -- all but the counts

  if interval > 0 then -- Bucket.Fit, Bucket.Wait, Bucket.Take
    local debt, span = (full - now) * 1000 + ns, burst * interval
    if debt < 0 then
      debt = 0
    end
    if span > MOST then
      span = MOST
    end
    if was ~= interval or had ~= burst then
      if was ~= interval and was > 0 then
        debt = math.min(math.ceil(debt / was * interval), MOST)
      end
      if debt > span then
        debt = span
      end
      was, had, same = interval, burst, false
      if debt > 0 then
        refit = refit or {}
        refit[i] = debt
      end
    end
    debt = debt + interval
    if debt > span then
      refused = true
    end
    ns = debt % 1000
    full = now + (debt - ns) / 1000
    needed = full
  end

  if places > 0 then
    set = set + 1
    local key = keys[set]
    if leases < 0 or leases > 0 and now >= soonest then -- not known, or the first may have run out: count
      call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now))
      leases = call('ZCARD', key)
      if leases > 0 then
        -- No lease that is taken before the next count lives longer than this.
        call('PEXPIRE', key, string.format('%.0f', (2 * ttl + slack) / 1000))
        soonest, same = tonumber(call('ZRANGE', key, '0', '0', 'WITHSCORES')[2]), false
      end
      stored[i + 1] = string.sub(stored[i + 1], 1, 16) .. pack('<d', leases) .. string.sub(stored[i + 1], 25)
      if s then
        call('SETRANGE', keys[i + 1], '16', pack('<d', leases))
        call('SETRANGE', keys[i + 1], '80', pack('<d', soonest))
      end
    end
    if leases >= places then
      refused = true
    end
    if leases == 0 then
      empty = empty or {}
      empty[set] = true
      soonest, same = expires, false
    elseif expires < soonest then
      soonest, same = expires, false
    end
    leases = leases + 1
    if needed < expires then
      needed = expires
    end
  end

  if mtokens > 0 or drequests ~= 0 or dtokens ~= 0 or yrequests ~= 0 or ytokens ~= 0 then -- Period.Fit, Period.Take
    if m ~= minute and m ~= minute + 1 then
      m, mt, same = minute, 0, false
    end
    if d ~= day then
      month = month or monthOf(day)
      if d ~= day + 1 then
        d, dr, dt = day, 0, 0
      end
      if y ~= month and y ~= month + 1 then
        y, yr, yt = month, 0, 0
      end
      needed, same = now + 31 * 864e8, false -- no month is longer
    end
    if mtokens > 0 and tokens > mtokens - mt or dtokens ~= 0 and tokens > dtokens - dt or ytokens ~= 0 and tokens > ytokens - yt
      or drequests ~= 0 and dr >= drequests or yrequests ~= 0 and yr >= yrequests then
      refused = true
    end
    mt, dr, dt, yr, yt = mt + charged, dr + 1, dt + charged, yr + 1, yt + charged
    if mt > MOST or dr > MOST or dt > MOST or yr > MOST or yt > MOST then
      mt, dt, yt = math.min(mt, MOST), math.min(dt, MOST), math.min(yt, MOST)
      dr, yr = math.min(dr, MOST), math.min(yr, MOST)
    end
  end

  if needed > lives then
    lives = needed + ttl
    longer = longer or {}
    longer[i] = lives + slack - now
    same = false
  end
  if refused then -- it stays as it is
  elseif same then
    after[i] = pack(COUNTS, full, ns, leases, mt, dr, dt, yr, yt)
  else
    after[i] = pack(COUNTER, full, ns, leases, mt, dr, dt, yr, yt, was, had, soonest, lives, m, d, y)
  end
end

-- Phase two: write all, or nothing. Refitting a bucket to a changed limit uses nothing of it.

if refused then
  for i, debt in pairs(refit or {}) do
    call('SETRANGE', keys[i + 1], '0', pack('<dd', now + floor(debt / 1000), debt % 1000))
    call('SETRANGE', keys[i + 1], '64', string.sub(numbers, 64 * i - 63, 64 * i - 48)) -- the interval and the burst
  end
  stored[1] = 'R' .. pack('<d', now)
  return table.concat(stored)
end

for i = 1, n do
  if longer and longer[i] then
    call('SET', keys[i + 1], after[i], 'PX', string.format('%.0f', longer[i] / 1000))
  else
    call('SETRANGE', keys[i + 1], '0', after[i])
  end
end
local score = string.format('%.0f', expires)
for i = n + 2, #keys do
  call('ZADD', keys[i], score, ARGV[2])
  if empty and empty[i] then
    call('PEXPIRE', keys[i], string.format('%.0f', (2 * ttl + slack) / 1000))
  end
end
stored[1] = pack(RECORD, OPEN, expires, attempt, now, tokens) .. ARGV[4]
local record = table.concat(stored)
call('SET', keys[1], record, 'PX', ARGV[5])
return record
