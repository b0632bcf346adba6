-- Says that a door is there, and answers how many are, and the name of Redis's memory: what was offered by the door that came
-- first since Redis began to remember.
--
-- KEYS  1 the set of doors, 2 the memory's name
-- ARGV  1 a double: the time in µs (0: Redis's own); 2 the door's name, 3 how long it counts as there in ms, 4 a name for the
--       memory

local now = clock(unpackd('<d', ARGV[1]))
call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
call('ZADD', KEYS[1], string.format('%.0f', now + tonumber(ARGV[3]) * 1000), ARGV[2])
call('PEXPIRE', KEYS[1], ARGV[3])
call('SET', KEYS[2], ARGV[4], 'NX')
return {call('ZCARD', KEYS[1]), call('GET', KEYS[2])}
