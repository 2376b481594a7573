// Everyday calls of node-redis or ioredis, with default options.
//
// usage: node everyday.js LIBRARY PORT
//
// The calls are those of calls.txt, and a few of the library's own. Prints one line a call. The same run against one redis-server must print the same lines.
const [library, port] = process.argv.slice(2);

const plain = (value) => {
  if (value instanceof Set) return ['set', ...[...value].sort()];
  if (value instanceof Map) return ['map', ...[...value].sort()];
  if (Buffer.isBuffer(value)) return value.toString();
  if (Array.isArray(value)) return value.map(plain);
  if (value && typeof value === 'object') return ['map', ...Object.entries(value).sort()];
  return value;
};

// Transactions have calls of their own in both libraries.
const CALLS = require('fs').readFileSync(require('path').join(__dirname, 'calls.txt'), 'utf8')
  .trim().split('\n').map((line) => line.split(' '))
  .filter(([verb], i, all) => !inTransaction(all, i) && !['MULTI', 'EXEC'].includes(verb));

function inTransaction(calls, i) {
  const verbs = calls.map((call) => call[0]);
  return i > verbs.indexOf('MULTI') && i < verbs.indexOf('EXEC');
}

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
  await print(['mGet'], () => client.mGet(['m4', 'm5', 'absent', 'm6']));
  await print(['multi'], () => client.multi().set('{t}k', '1').incr('{t}k').exec());
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
  await print(['mget'], () => client.mget('m4', 'm5', 'absent', 'm6'));
  await print(['multi'], () => client.multi().set('{t}k', '1').incr('{t}k').exec());
  const pipeline = client.pipeline();
  for (let i = 0; i < 50; i++) pipeline.set(`p${i}`, i).get(`p${i}`);
  await print(['pipeline'], () => pipeline.exec());
  client.disconnect();
};

({ redis: nodeRedis, ioredis })[library]().catch((error) => {
  console.log('failed', error.message);
  process.exit(1);
});
