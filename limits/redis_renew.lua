-- Keeps the leases of one admission for another lease time, or puts back those that Redis has lost.
--
-- KEYS  1 the admission's record, 2… its sets of leases
-- ARGV  1 the time in microseconds (empty: Redis's own), 2 admission, 3 lease time in ms, 4 how much longer keys live in ms,
--       5 empty, or the answer and memo of the record to put back
--
-- Answers 1, or 0 when the leases are gone: released, expired, or lost.

local OPEN = 1

local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1e6 + t[2]
end
local admission, ttl, slack, back = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local till = now + ttl * 1000
local score, lives = string.format('%.0f', till), string.format('%.0f', ttl + slack)

local record = redis.call('GET', KEYS[1])
local expires, state = 0, 0
if record then
  expires, state = struct.unpack('>dB', record)
end

if back ~= '' then
  if now < expires then -- it stands, or was released: a lease that was given back stays so
    return state == OPEN and 1 or 0
  end
  for i = 2, #KEYS do
    redis.call('ZADD', KEYS[i], score, admission)
    redis.call('PEXPIRE', KEYS[i], lives, 'NX')
    redis.call('PEXPIRE', KEYS[i], lives, 'GT')
  end
  redis.call('SET', KEYS[1], struct.pack('>dBd', till, OPEN, 0) .. back, 'PX', lives)
  return 1
end

if state ~= OPEN or now >= expires then
  return 0
end
local kept = #KEYS == 1
for i = 2, #KEYS do
  local ends = redis.call('ZSCORE', KEYS[i], admission)
  if ends and tonumber(ends) > now then -- XX alone would bring back one that has expired and is still there
    redis.call('ZADD', KEYS[i], 'XX', 'GT', score, admission)
    redis.call('PEXPIRE', KEYS[i], lives, 'GT')
    kept = true
  end
end
if not kept then
  return 0
end
if till > expires then
  redis.call('SETRANGE', KEYS[1], 0, struct.pack('>d', till))
  redis.call('PEXPIRE', KEYS[1], lives, 'GT')
end
return 1
