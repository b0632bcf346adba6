-- Says that a door is there, and answers how many are.
--
-- KEYS  1 the set of doors
-- ARGV  1 the time in microseconds (empty: Redis's own), 2 the door's name, 3 how long it counts as there in ms

local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1e6 + t[2]
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
redis.call('ZADD', KEYS[1], string.format('%.0f', now + tonumber(ARGV[3]) * 1000), ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return redis.call('ZCARD', KEYS[1])
