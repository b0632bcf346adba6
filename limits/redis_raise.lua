-- Brings the counts of one limit in one day, or one month, up to at least what they are known to have been.
--
-- KEYS  1 the counter
-- ARGV  1 doubles: the time in µs (0: Redis's own), lease time and how much longer than needed keys live in µs, the day since
--         the epoch or -1, the month since the year 0 or -1, requests, tokens
--
-- Of a period that is not the current one nothing is written.

local now, ttl, slack, ofDay, ofMonth, requests, tokens = unpackd('<ddddddd', ARGV[1])
now = clock(now)
local day = floor(now / 864e8)
local month = monthOf(day)
if ofDay ~= day and ofMonth ~= month then
  return 0
end

local full, ns, leases, mt, dr, dt, yr, yt, was, had, soonest, lives, m, d, y = 0, 0, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
local stored = call('GET', KEYS[1])
if stored then
  full, ns, leases, mt, dr, dt, yr, yt, was, had, soonest, lives, m, d, y = unpackd(COUNTER, stored)
end
if d ~= day and d ~= day + 1 then
  d, dr, dt = day, 0, 0
end
if y ~= month and y ~= month + 1 then
  y, yr, yt = month, 0, 0
end
if ofDay == d then
  dr, dt = math.max(dr, requests), math.max(dt, tokens)
end
if ofMonth == y then
  yr, yt = math.max(yr, requests), math.max(yt, tokens)
end
lives = math.max(lives, now + 31 * 864e8 + ttl)
call('SET', KEYS[1], pack(COUNTER, full, ns, leases, mt, dr, dt, yr, yt, was, had, soonest, lives, m, d, y),
  'PX', string.format('%.0f', (lives + slack - now) / 1000))
return 1
