-- KEYS: a stream. ARGV: a group of it, the first entry and the last one that the group delivered
-- at another replica, how many these were; and their consumer, if it need not acknowledge them.
-- The group moves on to the last one, and counts what it has read as redis-server counts.
local key, group, first, last, count, consumer = KEYS[1], unpack(ARGV)

local function fields(list)
  local found = {}
  for i = 1, #list, 2 do found[list[i]] = list[i + 1] end
  return found
end

-- True when id `a` comes before `b`. Numbers of 64 bits are compared as text.
local function before(a, b)
  local a_ms, a_seq = a:match('(%d+)-(%d+)')
  local b_ms, b_seq = b:match('(%d+)-(%d+)')
  if a_ms == b_ms then a_ms, b_ms = a_seq, b_seq end
  if #a_ms ~= #b_ms then return #a_ms < #b_ms end
  return a_ms < b_ms
end

if consumer then
  redis.pcall('XGROUP', 'CREATECONSUMER', key, group, consumer)
  -- None of them is pending: this claims nothing.
  redis.call('XCLAIM', key, group, consumer, '0', last, 'JUSTID', 'LASTID', last)
end
local stream = fields(redis.call('XINFO', 'STREAM', key))
for _, listed in ipairs(redis.call('XINFO', 'GROUPS', key)) do
  local found = fields(listed)
  local read = found['entries-read']
  -- It is false where it is not known, and missing before redis-server 7.0.
  if found['name'] == group and read ~= nil then
    local whole = before(stream['max-deleted-entry-id'], first)
    if whole and read then
      read = read + count
    elseif found['last-delivered-id'] == stream['last-generated-id'] then
      read = stream['entries-added']
    elseif whole and first == stream['recorded-first-entry-id'] then
      read = stream['entries-added'] - stream['length'] + count
    else
      read = -1
    end
    redis.call('XGROUP', 'SETID', key, group, found['last-delivered-id'], 'ENTRIESREAD', read)
  end
end
return 1
