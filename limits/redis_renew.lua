-- Keeps one admission, with its leases, for another lease time.
--
-- KEYS  1 the admission's record, 2… its sets of leases
-- ARGV  1 doubles: the time in µs (0: Redis's own), lease time in µs; 2 admission, 3 how long keys live in ms
--
-- Answers 1, or 0 when it is gone: released, expired, or lost.

local now, ttl = unpackd('<dd', ARGV[1])
now = clock(now)
local till = now + ttl

local record = call('GET', KEYS[1])
local state, expires = 0, 0
if record then
  state, expires = unpackd('<Bd', record)
end
if state ~= OPEN or now >= expires then
  return 0
end

local score = string.format('%.0f', till)
local kept = #KEYS == 1
for i = 2, #KEYS do
  local ends = call('ZSCORE', KEYS[i], ARGV[2])
  if ends and tonumber(ends) > now then -- XX alone would bring back one that has expired and is still there
    call('ZADD', KEYS[i], 'XX', 'GT', score, ARGV[2])
    call('PEXPIRE', KEYS[i], ARGV[3], 'GT')
    kept = true
  end
end
if not kept then
  return 0
end
if till > expires then
  call('SETRANGE', KEYS[1], '1', pack('<d', till))
  call('PEXPIRE', KEYS[1], ARGV[3], 'GT')
end
return 1
