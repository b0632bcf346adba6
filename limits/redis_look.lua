-- Reads counters, and changes nothing.
--
-- KEYS  1… counters, then as many sets of leases, of the same limits, or none of them
-- ARGV  1 a double: the time in µs (0: Redis's own); 2 how many counters
--
-- Answers the time, and the counters, with the leases that have not expired. One that is not there is all zeros.

local now, n = clock(unpackd('<d', ARGV[1])), tonumber(ARGV[2])
local stored = call('MGET', unpack(KEYS, 1, n))
for i = 1, n do
  stored[i] = stored[i] or string.rep('\0', 120)
  if KEYS[n + i] then
    local leases = call('ZCOUNT', KEYS[n + i], string.format('(%.0f', now), '+inf')
    stored[i] = string.sub(stored[i], 1, 16) .. pack('<d', leases) .. string.sub(stored[i], 25)
  end
end
return pack('<d', now) .. table.concat(stored)
