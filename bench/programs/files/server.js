// Keeps 64 MiB in buffers and many small objects, some of which are replaced all the time.
const crypto = require('crypto');
const http = require('http');

const streams = [[], []];
const data = [];
for (let i = 0; i < 64; i++) {
  const buffer = Buffer.alloc(1 << 20, 'v');
  for (let at = 0; at < buffer.length; at += 64) crypto.createHash('sha256').update(`${i} ${at}`).digest().copy(buffer, at);
  data.push(buffer);
}
const objects = [];
for (let i = 0; i < 200000; i++) objects.push({ id: i, name: `object ${i}`, list: [i, i + 1] });
setInterval(() => {
  for (let i = 0; i < 1000; i++) {
    const id = Math.floor(Math.random() * objects.length);
    objects[id] = { id, name: `object ${id}`, list: [id, id + 1] };
  }
}, 10);

function chain(numbers) {
  let h = 2166136261;
  for (const n of numbers) h = (Math.imul(h, 16777619) ^ n) >>> 0;
  return h;
}

function check() {
  const digest = crypto.createHash('sha256');
  for (const buffer of data) digest.update(buffer);
  digest.update(JSON.stringify(objects));
  const found = streams.map((s) => `${s.length ? s[s.length - 1] : 0} ${chain(s)}`).join(' ');
  return `${found} ${digest.digest('hex')}`;
}

function answer(question) {
  const fields = question.split(' ');
  if (fields[0] === 'w') streams[+fields[1]].push(+fields[2]);
  return fields[0] === 'c' ? check() : 'ok';
}

http.createServer((request, response) => {
  response.end(answer(new URL(request.url, 'http://server').searchParams.get('q')) + '\n');
}).listen(8080);
