// An engine that takes 3 s a token, and the official clients as they are: none
// gives up, also after the ten minutes without a byte that they allow.
// Usage: node patient.mjs PROGRAM FOLDER TOKENS, where FOLDER has model.
import { spawn, spawnSync } from 'node:child_process';
import OpenAI from 'openai';
import Anthropic from '@anthropic-ai/sdk';

const [program, folder, tokens] = process.argv.slice(2);
const most = Number(tokens), SECONDS = 3;
let tests = 0, failed = 0;
function verdict(good, name, why) {
    tests++;
    if (!good) failed++;
    console.log(`${good ? 'ok' : 'not ok'} ${tests} - ${name}`);
    if (why !== undefined)
        console.log('# ' + String(JSON.stringify(why)).slice(0, 800));
}
const base = ['serve', `${folder}/model`, '--port', '0', '--sequences', '8',
              '--context', '1024'];
const refused = spawnSync(program, [...base, '-m', '1M']).stderr.toString();
const floor = Number(refused.match(/floor (?:is|of) (\d+) bytes/)[1]);

async function start(...options) {
    const p = spawn(program, [...base, '-m', `${floor + 1500000}`, ...options],
                    { stdio: ['ignore', 'ignore', 'pipe'] });
    let said = '';
    p.stderr.on('data', (d) => { said += d; });
    for (;;) {
        const found = said.match(/listening on (http:\S+)\n/);
        if (found) return [p, found[1]];
        await new Promise((r) => setTimeout(r, 50));
    }
}
async function numbers(url) {
    return await (await fetch(`${url}/queue`)).json();
}

// The bytes of a pass say how slow the drive has to be.
let [p, url] = await start();
const ask = { prompt: 'abc', max_tokens: 6, ignore_eos: true };
await (await fetch(`${url}/v1/completions`,
                   { method: 'POST', body: JSON.stringify(ask) })).json();
const n = await numbers(url);
p.kill('SIGTERM');
await new Promise((r) => p.on('exit', r));
const rate = n.read_bytes / n.passes / SECONDS;
[p, url] = await start('--simulate-drive', (rate / 1e9).toFixed(9));

// Bytes of an answer as they come: when the first came, the longest silence.
async function watch(body) {
    const begin = performance.now();
    const r = await fetch(`${url}/v1/completions`,
                          { method: 'POST', body: JSON.stringify(body) });
    let last = performance.now(), first, gap = 0;
    for await (const _ of r.body) {
        const now = performance.now();
        first ??= now - begin;
        gap = Math.max(gap, now - last);
        last = now;
    }
    return { first, gap, all: last - begin };
}
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none' });
const anthropic = new Anthropic({ baseURL: url, apiKey: 'none' });
const messages = [{ role: 'user', content: 'Hello' }];
const chat = { model: 'model', messages, max_tokens: most, ignore_eos: true };
const begin = performance.now();
const [whole, stream, message, response, bytes, events] = await Promise.all([
    openai.chat.completions.create(chat),
    (async () => {
        let last;
        for await (const c of await openai.chat.completions.create(
            { ...chat, stream: true, stream_options: { include_usage: true } }))
            last = c;
        return last;
    })(),
    anthropic.messages.create({ model: 'model', messages,
                                max_tokens: most / 2 | 0 }),
    openai.responses.create({ model: 'model', input: 'Hello',
                              max_output_tokens: most / 2 | 0 }),
    watch({ ...ask, max_tokens: most }),
    watch({ ...ask, max_tokens: most, stream: true }),
].map((w) => w.catch((e) => e)));
const seconds = (performance.now() - begin) / 1000;
const after = await numbers(url);
verdict(whole.usage?.completion_tokens === most, 'openai: a chat',
        [whole.message, seconds]);
verdict(stream?.usage?.completion_tokens === most, 'openai: a stream',
        stream?.message);
verdict(message.usage?.output_tokens > 0, 'anthropic: a message',
        message.message);
verdict(response.usage?.output_tokens > 0, 'openai: a response',
        response.message);
verdict(bytes.first < seconds * 500 && bytes.gap < seconds * 500,
        'bytes come while an answer is made', bytes);
verdict(events.first < seconds * 500 && events.gap < seconds * 500,
        'and in a stream', events);
const text = await (await fetch(`${url}/metrics`)).text();
const asked = text.match(/requests_total{class="interactive"} (\d+)/)[1];
verdict(asked === '6', 'nobody asked twice', [asked, after.passes,
        after.seconds_per_pass, seconds]);
p.kill('SIGTERM');
verdict(await new Promise((r) => p.on('exit', r)) === 0, 'the server ends');
console.log(`1..${tests}`);
process.exit(failed > 0 ? 1 : 0);
