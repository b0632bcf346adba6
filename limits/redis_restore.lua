-- Puts back the leases of one admission that Redis has lost, and its record, so that it can be settled. Quotas count nothing
-- anew.
--
-- KEYS  1 the admission's record, 2… its sets of leases, then as many counters, of the same limits
-- ARGV  1 doubles: the time in µs (0: Redis's own), lease time in µs, when it was admitted in µs, the tokens it reserved
--       2 admission, 3 how long keys live in ms, 4 its limits as bytes
--
-- Answers 1, or 0 when it was released: a lease that was given back stays so.

local now, ttl, at, tokens = unpackd('<dddd', ARGV[1])
now = clock(now)

local record = call('GET', KEYS[1])
if record then
  local state, expires = unpackd('<Bd', record)
  if now < expires then
    return state == OPEN and 1 or 0
  end
end
local score, n = string.format('%.0f', now + ttl), (#KEYS - 1) / 2
for i = 2, n + 1 do
  call('ZADD', KEYS[i], score, ARGV[2])
  call('PEXPIRE', KEYS[i], ARGV[3], 'NX')
  call('PEXPIRE', KEYS[i], ARGV[3], 'GT')
  if call('EXISTS', KEYS[i + n]) == 1 then
    call('SETRANGE', KEYS[i + n], '16', pack('<d', -1)) -- the next ask counts
  end
end
call('SET', KEYS[1], pack(RECORD, OPEN, now + ttl, 0, at, tokens) .. ARGV[4], 'PX', ARGV[3])
return 1
