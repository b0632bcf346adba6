-- Frees the leases of one admission and settles what it reserved. Doing it again changes nothing.
--
-- KEYS  1 the admission's record, 2… the counters of all its limits, then the sets of leases of those that count one
-- ARGV  1 doubles: the time in µs (0: Redis's own), attempt, lease time in µs, tokens used (below 0: not known),
--         1 if no worker took it
--       2 admission, 3 a letter for each counter: L a lease, Q a quota, B both; 4 how long the record lives in ms
--
-- The attempt is 0, or the one that is given up: its caller did not hear the answer, and it may not even have come yet. Then
-- all that it reserved is given back, and a mark is left, so that it takes nothing when it comes. Another attempt's yes for
-- the same admission stands.

local keys, letters = KEYS, ARGV[3]
local now, attempt, ttl, used, unserved = unpackd('<ddddd', ARGV[1])
now = clock(now)
local n = #letters

local stored = call('MGET', unpack(keys, 1, n + 1))
local record = stored[1]
local state, expires, by, at, reserved = 0, 0, 0, 0, 0
if record then
  state, expires, by, at, reserved = unpackd(RECORD, record)
end
local live = now < expires
if attempt > 0 and live and state ~= VOID and by ~= attempt then
  return 0
end

local settles = live and state == OPEN -- so once
local minute, day = floor(at / 6e7), floor(at / 864e8)
local month = monthOf(day)
if attempt > 0 then
  used, unserved = 0, 1
end
local tokens = 0
if used >= 0 then
  tokens = math.min(used, MOST) - math.min(reserved, MOST)
end

local function within(count)
  return math.max(0, math.min(count, MOST))
end

local set = n + 1
for i = 1, n do
  local letter, changed = string.byte(letters, i), false
  local full, ns, leases, mt, dr, dt, yr, yt, was, had, soonest, lives, m, d, y
  if stored[i + 1] then
    full, ns, leases, mt, dr, dt, yr, yt, was, had, soonest, lives, m, d, y = unpackd(COUNTER, stored[i + 1])
  end
  if letter ~= 81 then
    set = set + 1
    if call('ZREM', keys[set], ARGV[2]) == 1 and full and leases > 0 then
      leases, changed = leases - 1, true
    end
  end
  if letter ~= 76 and full and settles and (tokens ~= 0 or unserved > 0) then -- Period.Settle
    if m == minute then
      mt = within(mt + tokens)
    end
    if d == day then
      dr, dt = within(dr - unserved), within(dt + tokens)
    end
    if y == month then
      yr, yt = within(yr - unserved), within(yt + tokens)
    end
    changed = true
  end
  if changed then
    call('SETRANGE', keys[i + 1], '0', pack(COUNTS, full, ns, leases, mt, dr, dt, yr, yt))
  end
end

if attempt > 0 then
  if live and state == VOID then
    attempt = math.max(attempt, by)
  end
  call('SET', keys[1], pack(RECORD, VOID, now + ttl, attempt, 0, 0), 'PX', ARGV[4])
elseif settles then -- remembered for a while: a late second ask takes nothing
  call('SET', keys[1], pack('<Bd', RELEASED, now + ttl) .. string.sub(record, 10), 'PX', ARGV[4])
end
return 1
