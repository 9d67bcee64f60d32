// The official clients of OpenAI and Anthropic, as they are, against a server.
// Usage: node clients.mjs PROGRAM FOLDER, where FOLDER has model and lines.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import OpenAI from 'openai';
import Anthropic from '@anthropic-ai/sdk';

const [program, folder] = process.argv.slice(2);
let tests = 0, failed = 0;
function verdict(good, name, why) {
    tests++;
    if (!good) failed++;
    console.log(`${good ? 'ok' : 'not ok'} ${tests} - ${name}`);
    if (!good && why !== undefined)
        console.log('# ' + String(JSON.stringify(why)).slice(0, 1500));
}
async function fails(promise, kind) {
    try {
        return [false, await promise];
    } catch (e) {
        return [e instanceof kind, [e.constructor.name, e.status, e.code,
                                    e.message, e.type]];
    }
}
async function until(what, seconds = 30) {
    for (let i = 0; i < seconds * 20; i++) {
        const value = await what();
        if (value) return value;
        await new Promise((r) => setTimeout(r, 50));
    }
}

const server = spawn(program, ['serve', `${folder}/model`, '--port', '0', '-m',
    '256M', '--data', `${folder}/data`, '--api-key-file', `${folder}/keys`],
    { stdio: ['ignore', 'ignore', 'pipe'] });
let said = '';
server.stderr.on('data', (d) => { said += d; });
const url = await until(() => said.match(/listening on (http:\S+)\n/)?.[1]);
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'secret' });
const anthropic = new Anthropic({ baseURL: url, apiKey: 'secret' });
const model = 'model';
const messages = [{ role: 'user', content: 'Hello' }];
async function running() {
    const r = await fetch(`${url}/queue`,
                          { headers: { authorization: 'Bearer secret' } });
    return (await r.json()).requests.length;
}

// ---- openai: chat ----

const whole = await openai.chat.completions.create(
    { model, messages, max_tokens: 12 });
verdict(whole.choices[0].finish_reason === 'length' &&
        whole.usage.completion_tokens === 12, 'openai: chat', whole);
let text = '', last;
for await (const chunk of await openai.chat.completions.create(
    { model, messages, max_tokens: 12, stream: true,
      stream_options: { include_usage: true } })) {
    text += chunk.choices[0]?.delta.reasoning_content ?? '';
    last = chunk;
}
verdict(text === whole.choices[0].message.reasoning_content &&
        last.usage.completion_tokens === 12,
        'openai: the stream says the same', [text, whole]);
const final = await openai.chat.completions.stream(
    { model, messages, max_tokens: 12 }).finalChatCompletion();
verdict(final.choices[0].finish_reason === 'length',
        'openai: the stream helper', final);
const scored = { model, messages, max_tokens: 6, logprobs: true,
                 top_logprobs: 2, reasoning_effort: 'none' };
const [one, other] = await Promise.all([
    openai.chat.completions.create(scored),
    openai.chat.completions.stream(scored).finalChatCompletion()]);
verdict(one.choices[0].logprobs.content.length === 6 &&
        JSON.stringify(one.choices[0].logprobs.content) ===
        JSON.stringify(other.choices[0].logprobs.content),
        'openai: the stream helper has the probabilities', [one, other]);
const tools = [{ type: 'function', function: {
    name: 'weather', parameters: { type: 'object', properties: {
        city: { type: 'string' } } } } }];
const turn = [...messages, { role: 'assistant', content: null, tool_calls: [
    { id: 'call_1', type: 'function', function: {
        name: 'weather', arguments: '{"city":"Rome"}' } }] },
    { role: 'tool', tool_call_id: 'call_1', content: 'sunny' }];
const after = await openai.chat.completions.create(
    { model, messages: turn, tools, max_tokens: 8 });
verdict(after.usage.prompt_tokens > whole.usage.prompt_tokens,
        'openai: a call and its result go back', after);
const city = { type: 'object', additionalProperties: false,
               required: ['city'],
               properties: { city: { enum: ['Rome', 'Oslo'] } } };
const formed = await openai.chat.completions.create({ model, messages,
    max_tokens: 200, reasoning_effort: 'none', response_format: {
        type: 'json_schema',
        json_schema: { name: 'city', strict: true, schema: city } } });
verdict(['Rome', 'Oslo'].includes(
            JSON.parse(formed.choices[0].message.content).city),
        'openai: structured output', formed.choices);
const models = [];
for await (const m of openai.models.list()) models.push(m.id);
verdict(models.join() === 'model', 'openai: models', models);
const completion = await openai.completions.create(
    { model, prompt: 'abc', max_tokens: 5 });
verdict(completion.choices[0].text.length > 0, 'openai: completions');

// ---- openai: errors, abort ----

for (const [name, client, body, kind] of [
    ['NotFoundError', openai, { model: 'gpt-4', messages },
     OpenAI.NotFoundError],
    ['BadRequestError', openai, { model, messages, temperature: -1 },
     OpenAI.BadRequestError],
    ['AuthenticationError', new OpenAI({ baseURL: `${url}/v1`, apiKey: 'no' }),
     { model, messages }, OpenAI.AuthenticationError]]) {
    const [good, why] = await fails(client.chat.completions.create(body), kind);
    verdict(good, `openai: ${name}`, why);
}
async function abort(stream, name) {
    for await (const _ of stream) {
        stream.controller.abort();
        break;
    }
    verdict(await until(async () => await running() === 0),
            `${name}: abort in mid stream frees the request`);
}
await abort(await openai.chat.completions.create(
    { model, messages, max_tokens: 3500, stream: true }), 'openai');

// ---- openai: responses ----

const response = await openai.responses.create(
    { model, input: 'Hello', max_output_tokens: 12,
      reasoning: { effort: 'none' } });
verdict(response.output_text.length > 0 && response.status === 'incomplete',
        'openai: responses', response);
let delta = '', completed;
for await (const e of await openai.responses.create(
    { model, input: 'Hello', max_output_tokens: 12, stream: true,
      reasoning: { effort: 'none' } })) {
    if (e.type === 'response.output_text.delta') delta += e.delta;
    if (e.type === 'response.incomplete') completed = e.response;
}
verdict(delta === response.output_text &&
        completed?.output[0].content[0].text === delta,
        'openai: a response in events', [delta, completed]);
const next = await openai.responses.create({ model, max_output_tokens: 4,
    input: [{ role: 'user', content: 'Hello' },
            { type: 'function_call', call_id: 'c1', name: 'weather',
              arguments: '{"city":"Rome"}' },
            { type: 'function_call_output', call_id: 'c1', output: 'sunny' }],
    tools: [{ type: 'function', name: 'weather', strict: false,
              parameters: tools[0].function.parameters }] });
verdict(next.usage.output_tokens === 4, 'openai: a response after a call');

const told = await openai.responses.create({ model, max_output_tokens: 12,
    input: [{ role: 'user', content: 'Hello' }, ...response.output,
            { role: 'user', content: 'And then?' }],
    reasoning: { effort: 'none' }, store: false });
const on = { model, input: 'And then?', max_output_tokens: 12,
             previous_response_id: response.id, reasoning: { effort: 'none' } };
const goesOn = await openai.responses.create(on);
verdict(goesOn.output_text === told.output_text &&
        goesOn.usage.input_tokens === told.usage.input_tokens &&
        goesOn.previous_response_id === response.id,
        'openai: a response goes on from one that is kept', [goesOn, told]);
const inEvents = await openai.responses.stream(on).finalResponse();
verdict(inEvents.output_text === told.output_text,
        'openai: and in events', inEvents);
const found = await openai.responses.retrieve(response.id);
verdict(found.output_text === response.output_text &&
        JSON.stringify(found.output) === JSON.stringify(response.output),
        'openai: a response is kept', found);
await openai.responses.delete(response.id);
for (const [name, call, kind, code] of [
    ['retrieved', () => openai.responses.retrieve(response.id),
     OpenAI.NotFoundError, 'not_found'],
    ['gone on from', () => openai.responses.create(on), OpenAI.BadRequestError,
     'previous_response_not_found'],
    ['kept without store', () => openai.responses.retrieve(told.id),
     OpenAI.NotFoundError, 'not_found']]) {
    const [good, why] = await fails(call(), kind);
    verdict(good && why[2] === code, `openai: what is not there is not ${name}`,
            why);
}

// ---- openai: files and batches ----

const file = await openai.files.create(
    { file: fs.createReadStream(`${folder}/lines`), purpose: 'batch' });
verdict(file.bytes === fs.statSync(`${folder}/lines`).size, 'openai: a file');
let batch = await openai.batches.create({ input_file_id: file.id,
    endpoint: '/v1/chat/completions', completion_window: '24h' });
await until(async () => {
    batch = await openai.batches.retrieve(batch.id);
    return batch.status === 'completed';
});
const content = await (await openai.files.content(batch.output_file_id)).text();
const answers = content.trim().split('\n').map((l) => JSON.parse(l));
verdict(answers.map((a) => a.custom_id).sort().join() === 'a,b' &&
        batch.request_counts.completed === 2, 'openai: a batch', batch);
verdict(JSON.stringify(answers.find((a) => a.custom_id === 'a').response.body
        .choices) === JSON.stringify(whole.choices),
        'openai: its answers are those of a chat');
const listed = [];
for await (const b of openai.batches.list()) listed.push(b.id);
verdict(listed.join() === batch.id, 'openai: batches are listed', listed);
verdict((await openai.files.delete(file.id)).deleted, 'openai: a file goes');
const [gone, how] = await fails(openai.files.retrieve(file.id),
                                OpenAI.NotFoundError);
verdict(gone, 'openai: and is not found', how);

// ---- anthropic ----

const message = await anthropic.messages.create(
    { model, messages, max_tokens: 12 });
verdict(message.content[0].type === 'text' &&
        message.stop_reason === 'max_tokens', 'anthropic: a message', message);
const streamed = await anthropic.messages.stream(
    { model, messages, max_tokens: 12 }).finalMessage();
verdict(JSON.stringify(streamed.content) === JSON.stringify(message.content) &&
        streamed.usage.output_tokens === 12,
        'anthropic: the stream says the same', streamed);
const thoughts = await anthropic.messages.stream({ model, messages,
    max_tokens: 12, thinking: { type: 'enabled', budget_tokens: 1024 } })
    .finalMessage();
verdict(thoughts.content[0].type === 'thinking', 'anthropic: thoughts',
        thoughts);
const count = await anthropic.messages.countTokens({ model, messages });
verdict(count.input_tokens === message.usage.input_tokens,
        'anthropic: count_tokens', count);
const used = await anthropic.messages.create({ model, max_tokens: 8,
    messages: [...messages,
        { role: 'assistant', content: [{ type: 'tool_use', id: 'toolu_1',
            name: 'weather', input: { city: 'Rome' } }] },
        { role: 'user', content: [{ type: 'tool_result',
            tool_use_id: 'toolu_1', content: 'sunny' }] }],
    tools: [{ name: 'weather',
              input_schema: tools[0].function.parameters }] });
verdict(used.usage.input_tokens > message.usage.input_tokens,
        'anthropic: a call and its result go back', used);
for (const [name, client, body, kind] of [
    ['NotFoundError', anthropic, { model: 'claude', messages, max_tokens: 1 },
     Anthropic.NotFoundError],
    ['BadRequestError', anthropic, { model, messages, max_tokens: 1,
     temperature: -1 }, Anthropic.BadRequestError],
    ['AuthenticationError', new Anthropic({ baseURL: url, apiKey: 'no' }),
     { model, messages, max_tokens: 1 }, Anthropic.AuthenticationError]]) {
    const [good, why] = await fails(client.messages.create(body), kind);
    verdict(good, `anthropic: ${name}`, why);
}
await abort(await anthropic.messages.create(
    { model, messages, max_tokens: 3500, stream: true }), 'anthropic');

server.kill('SIGTERM');
const status = await new Promise((r) => server.on('exit', r));
verdict(status === 0, 'SIGTERM ends the server', [status, said]);
console.log(`1..${tests}`);
process.exit(failed > 0 ? 1 : 0);
