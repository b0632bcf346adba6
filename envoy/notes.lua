-- Keeps the last note of a stream that has passed whole, for the access log: what a worker's shim writes after each event says all
-- that the answer has used. Its line begins after a line feed, which stands in no JSON, so that no model can write one. It is ASCII:
-- anything else would be no string to those who read the log.
local mark, most = "\n: spokegate-usage ", 320
local find, sub, min = string.find, string.sub, math.min

local function last(bytes)
  local note, from = nil, 1
  while true do
    local _, before = find(bytes, mark, from, true)
    local after = before and find(bytes, "\n", before + 1, true)
    if not after then return note end
    local text = sub(bytes, before + 1, min(after - 1, before + most))
    if after - before <= most and not find(text, "[^ -~]") then note = text end
    from = after
  end
end

function envoy_on_response(response)
  local rest = "" -- the end of what has passed, where a note may have begun
  for chunk in response:bodyChunks() do
    local size = chunk:length()
    if size > 0 then
      local bytes = rest .. chunk:getBytes(0, size)
      local note = last(bytes)
      if note then response:streamInfo():dynamicMetadata():set("spokegate", "x-spokegate-note", note) end
      rest = sub(bytes, -1) == "\n" and "\n" or sub(bytes, -most)
    end
  end
end
