-- Frees the leases of one admission. Doing it again changes nothing.
--
-- KEYS  1 the admission's record, 2… its sets of leases
-- ARGV  1 the time in microseconds (empty: Redis's own), 2 admission, 3 lease time in ms, 4 how much longer keys live in ms,
--       5 0, or the attempt that is given up: its caller did not hear the answer, and it may not even have come yet. Then a
--         mark is left, so that it takes nothing when it comes. Another attempt's yes for the same admission stands.

local OPEN, RELEASED, VOID = 1, 2, 3
local HEAD = 17

local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1e6 + t[2]
end
local admission, ttl, slack, attempt = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local lives = string.format('%.0f', ttl + slack)

local record = redis.call('GET', KEYS[1])
local expires, state, by = 0, 0, 0
if record then
  expires, state, by = struct.unpack('>dBd', record)
end
local live = now < expires
if attempt > 0 and live and state ~= VOID and by ~= attempt then
  return 0
end

for i = 2, #KEYS do
  redis.call('ZREM', KEYS[i], admission)
end
if attempt > 0 then
  if live and state == VOID then
    attempt = math.max(attempt, by)
  end
  redis.call('SET', KEYS[1], struct.pack('>dBd', now + ttl * 1000, VOID, attempt), 'PX', lives)
elseif live and state == OPEN then -- remembered for a while: a late second ask takes nothing
  redis.call('SET', KEYS[1], struct.pack('>dBd', now + ttl * 1000, RELEASED, by) .. string.sub(record, HEAD + 1), 'PX', lives)
end
return 1
