-- What the scripts have in common; it stands before each of them.
--
-- A limit's counter is one string of doubles, its counts first: see counterLen in redis_facts.go. An admission's record begins with its state, a
-- letter, and four doubles: when it expires, the attempt that made it, when it was admitted, the tokens that it reserved. Then
-- come its limits, and their counters as they stood before it. Moments are in whole microseconds, and no number is above 2^53.

local call, pack, unpackd, floor = redis.call, struct.pack, struct.unpack, math.floor
local RECORD, COUNTER, COUNTS = '<Bdddd', '<ddddddddddddddd', '<dddddddd'
local OPEN, RELEASED, VOID = 65, 68, 86 -- the letters A, D, V
local MOST = 4503599627370496           -- 2^52: maxCount and maxSpan in Go

local function clock(given)
  if given > 0 then
    return given
  end
  local t = call('TIME')
  return t[1] * 1e6 + t[2]
end

-- The month of a day since the epoch, counted from the year 0.
local function monthOf(day)
  local d = day + 719468 -- since the first of March of the year 0, so that a leap day is the last of a year
  local era = floor(d / 146097)
  d = d - era * 146097
  local year = floor((d - floor(d / 1460) + floor(d / 36524) - floor(d / 146096)) / 365)
  local month = floor((5 * (d - 365 * year - floor(year / 4) + floor(year / 100)) + 2) / 153)
  return (era * 400 + year) * 12 + month + 2
end

