// Everyday calls of node-redis or ioredis, with default options.
//
// usage: node everyday.js LIBRARY PORT
//
// Prints one line a call. The same run against one redis-server must print the same lines.
const [library, port] = process.argv.slice(2);

const plain = (value) => {
  if (value instanceof Set) return ['set', ...[...value].sort()];
  if (value instanceof Map) return ['map', ...[...value].sort()];
  if (Buffer.isBuffer(value)) return value.toString();
  if (Array.isArray(value)) return value.map(plain);
  if (value && typeof value === 'object') return ['map', ...Object.entries(value).sort()];
  return value;
};

const CALLS = [
  ['PING'], ['ECHO', 'hello'],
  ...[...Array(8).keys()].map((i) => ['SET', `s${i}`, `value ${i}`]),
  ['GET', 's3'], ['GET', 'absent'], ['SET', 's0', 'x', 'NX'], ['GETDEL', 's7'],
  ['APPEND', 's1', '!'], ['STRLEN', 's1'], ['GETRANGE', 's1', '0', '3'],
  ['MSET', 'm0', '0', 'm1', '1', 'm2', '2', 'm3', '3', 'm4', '4'],
  ['MGET', 'm0', 'm1', 'm2', 'm3', 'm4', 'absent'],
  ['EXISTS', 'm0', 'm1', 'absent', 'm0'], ['DEL', 'm0', 'm1', 'absent'], ['UNLINK', 'm2'],
  ['INCR', 'n'], ['INCRBY', 'n', '41'], ['INCRBYFLOAT', 'n', '0.5'], ['INCR', 's2'],
  ['SETEX', 't', '1000', 'v'], ['PERSIST', 't'], ['TTL', 't'], ['TTL', 'absent'], ['TYPE', 't'],
  ['HSET', 'h', 'a', '1', 'b', '2'], ['HGET', 'h', 'a'], ['HMGET', 'h', 'a', 'absent'],
  ['HINCRBY', 'h', 'a', '5'], ['HLEN', 'h'], ['HDEL', 'h', 'a'], ['HGETALL', 'h'],
  ['RPUSH', 'l', '1', '2', '3', '4'], ['LRANGE', 'l', '0', '-1'], ['LLEN', 'l'],
  ['LPOP', 'l'], ['RPOP', 'l'], ['LINDEX', 'l', '0'], ['LTRIM', 'l', '0', '1'],
  ['SADD', 'set', 'a'], ['SMEMBERS', 'set'], ['SISMEMBER', 'set', 'a'], ['SCARD', 'set'],
  ['SREM', 'set', 'a'], ['SADD', '{t}1', '1', '2'], ['SADD', '{t}2', '2'],
  ['SINTER', '{t}1', '{t}2'], ['SDIFF', '{t}1', '{t}2'],
  ['ZADD', 'z', '1', 'a', '2.5', 'b'], ['ZSCORE', 'z', 'b'], ['ZRANGE', 'z', '0', '-1'],
  ['ZINCRBY', 'z', '1.5', 'a'], ['ZRANK', 'z', 'b'], ['ZCARD', 'z'],
  ['ZRANGE', 'z', '0', '-1', 'WITHSCORES'],
  ['XADD', 'x', '1-1', 'f', 'v'], ['XLEN', 'x'], ['XRANGE', 'x', '-', '+'],
  ['PFADD', 'pf', 'a', 'b'], ['PFCOUNT', 'pf'],
  ['EVAL', 'return {KEYS[1], ARGV[1]}', '1', 'k', 'v'],
  ['LPUSH', 's1', 'x'], ['NOSUCHCOMMAND', 'a'],
];

const print = async (call, run) => {
  try {
    console.log(call[0], call[1] ?? '', JSON.stringify(plain(await run())));
  } catch (error) {
    console.log(call[0], call[1] ?? '', 'error', error.message);
  }
};

const nodeRedis = async () => {
  const { createClient } = require('redis');
  const client = createClient({ url: `redis://127.0.0.1:${port}` });
  client.on('error', (error) => { console.log('client error', error.message); process.exit(1); });
  await client.connect();
  for (const call of CALLS) await print(call, () => client.sendCommand(call));
  await print(['hGetAll'], () => client.hGetAll('h'));
  await print(['zRangeWithScores'], () => client.zRangeWithScores('z', 0, -1));
  await print(['pipelined'], () => Promise.all([...Array(50).keys()].map((i) =>
    client.set(`p${i}`, String(i)).then(() => client.get(`p${i}`)))));
  client.destroy();
};

const ioredis = async () => {
  const Redis = require('ioredis');
  const client = new Redis(Number(port), '127.0.0.1');
  client.on('error', (error) => { console.log('client error', error.message); process.exit(1); });
  for (const call of CALLS) await print(call, () => client.call(...call));
  await print(['hgetall'], () => client.hgetall('h'));
  const pipeline = client.pipeline();
  for (let i = 0; i < 50; i++) pipeline.set(`p${i}`, i).get(`p${i}`);
  await print(['pipeline'], () => pipeline.exec());
  client.disconnect();
};

({ redis: nodeRedis, ioredis })[library]().catch((error) => {
  console.log('failed', error.message);
  process.exit(1);
});
