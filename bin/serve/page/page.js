// page.js - chat, the queue, and what the machine does. Whatever the model or
// the server says becomes text, never markup.
'use strict';

const $ = (id) => document.getElementById(id);
const make = (tag, name, text) => {
    const e = document.createElement(tag);
    if (name) e.className = name;
    if (text !== undefined) e.textContent = text;
    return e;
};
let key = sessionStorage.getItem('key') || '';
let messages = [];
let running = null; // the AbortController of the answer that comes

async function ask(path, body, signal) {
    const headers = { 'content-type': 'application/json' };
    if (key) headers.authorization = 'Bearer ' + key;
    const r = await fetch(path, { headers, signal,
        method: body ? 'POST' : 'GET', body: body && JSON.stringify(body) });
    if (r.status === 401 && !$('login').open) $('login').showModal();
    return r;
}

// ---- chat ----

function show(role) {
    const box = make('div', 'message ' + role);
    $('log').append(box);
    return box;
}

function bottom() {
    window.scrollTo(0, document.body.scrollHeight);
}

// The boxes of an answer, made when there is something for them.
class Answer {
    constructor() {
        this.box = show('assistant');
        this.wait = make('span', 'wait', 'waiting for the first token');
        this.box.append(this.wait);
        this.message = { role: 'assistant', content: '' };
        this.thoughts = '';
        this.calls = [];
        this.boxes = [];
    }
    thought(text) {
        if (!this.fold) {
            this.fold = make('details');
            this.fold.append(make('summary', '', 'thoughts'));
            this.inside = this.fold.appendChild(make('div'));
            this.box.insertBefore(this.fold, this.box.firstChild);
        }
        this.thoughts += text;
        this.inside.textContent = this.thoughts;
    }
    text(text) {
        if (!this.said) this.said = this.box.appendChild(make('div'));
        this.message.content += text;
        this.said.textContent = this.message.content;
    }
    call(c) {
        if (!this.calls[c.index]) {
            this.calls[c.index] = { id: c.id, type: 'function',
                function: { name: c.function.name, arguments: '' } };
            this.boxes[c.index] = this.box.appendChild(make('pre'));
        }
        const f = this.calls[c.index].function;
        f.arguments += c.function.arguments || '';
        this.boxes[c.index].textContent = f.name + '(' + f.arguments + ')';
    }
    take(data) {
        if (data.error) {
            this.fail(data.error.message);
            return;
        }
        for (const c of data.choices) {
            if (c.delta.reasoning_content) this.thought(c.delta.reasoning_content);
            if (c.delta.content) this.text(c.delta.content);
            for (const t of c.delta.tool_calls || []) this.call(t);
            if (c.finish_reason === 'length')
                this.box.append(make('div', 'wait', 'cut off at max tokens'));
        }
        if (this.thoughts || this.message.content || this.calls.length)
            this.wait.remove();
    }
    progress(p) {
        if (!this.wait.isConnected) return;
        this.wait.textContent = p.state === 'queued'
            ? p.before_in_queue + ' before this one'
            : 'reading, layer ' + (p.layer + 1) + ' of ' + p.layers + ', ' +
              seconds(p.seconds_per_token) + ' a token';
    }
    fail(why) {
        this.wait.remove();
        this.box.append(make('div', 'error', why));
    }
}

async function read(response, answer) {
    const reader = response.body.pipeThrough(new TextDecoderStream())
        .getReader();
    let rest = '';
    for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        rest += value;
        const blocks = rest.split('\n\n');
        rest = blocks.pop();
        for (const block of blocks) {
            const data = block.match(/^data: (.*)$/m)?.[1];
            if (!data || data === '[DONE]') continue;
            if (block.startsWith('event: progress'))
                answer.progress(JSON.parse(data));
            else
                answer.take(JSON.parse(data));
        }
        bottom();
    }
}

function busy(is) {
    $('send').disabled = is;
    $('stop').disabled = !is;
    $('retry').disabled = is || !messages.some((m) => m.role === 'user');
}

async function answer() {
    const a = new Answer();
    const body = { messages, stream: true, thinking: $('think').checked };
    if ($('most').value) body.max_tokens = Number($('most').value);
    running = new AbortController();
    busy(true);
    bottom();
    try {
        const headers = { 'content-type': 'application/json',
                          'x-sluice-progress': '1' };
        if (key) headers.authorization = 'Bearer ' + key;
        const r = await fetch('v1/chat/completions', { method: 'POST', headers,
            body: JSON.stringify(body), signal: running.signal });
        if (r.status === 401) $('login').showModal();
        if (r.ok) await read(r, a);
        else a.fail((await r.json()).error.message);
    } catch (e) {
        a.fail(e.name === 'AbortError' ? 'stopped' : 'the server is gone');
    }
    if (a.calls.length) a.message.tool_calls = a.calls;
    if (a.thoughts) a.message.reasoning_content = a.thoughts;
    if (a.message.content || a.calls.length || a.thoughts)
        messages.push(a.message);
    running = null;
    busy(false);
    $('ask').focus();
}

$('form').addEventListener('submit', (e) => {
    e.preventDefault();
    const text = $('ask').value.trim();
    if (!text || running) return;
    $('ask').value = '';
    messages.push({ role: 'user', content: text });
    show('user').textContent = text;
    answer();
});
$('ask').addEventListener('keydown', (e) => {
    if (e.key !== 'Enter' || e.shiftKey || e.isComposing) return;
    e.preventDefault();
    $('form').requestSubmit();
});
document.addEventListener('keydown', (e) => {
    if (e.key === 'Escape') running?.abort();
});
$('stop').addEventListener('click', () => running?.abort());
$('retry').addEventListener('click', () => {
    while (messages.at(-1)?.role !== 'user') messages.pop();
    while (!$('log').lastChild.classList.contains('user'))
        $('log').lastChild.remove();
    answer();
});
$('new').addEventListener('click', () => {
    running?.abort();
    messages = [];
    $('log').replaceChildren();
    busy(false);
    $('ask').focus();
});
$('loginform').addEventListener('submit', () => {
    key = $('key').value;
    sessionStorage.setItem('key', key);
    $('key').value = '';
    look();
});

// ---- the machine ----

function seconds(s) {
    if (!(s > 0)) return '–';
    if (s < 1) return three(s * 1000) + ' ms';
    if (s < 120) return three(s) + ' s';
    return s < 7200 ? three(s / 60) + ' min' : three(s / 3600) + ' h';
}
// As model/ckpt/figure.h: three digits, and 0 only of nothing.
function three(v) {
    return !v ? '0' : v >= 100 ? v.toFixed(0) : v.toPrecision(3);
}
const gbs = b => three(b / 1e9) + ' GB/s';

function facts(q) {
    const hits = q.expert_requests
        ? (100 * q.expert_hits / q.expert_requests).toFixed(0) + ' %' : '–';
    const rows = [
        ['drive', gbs(q.read_rate) +
            (q.read_limit ? ' of ' + gbs(q.read_limit) : '')],
        ['a pass', seconds(q.seconds_per_pass)],
        ['layer', q.layers ? (q.layer + 1) + ' of ' + q.layers : '–'],
        ['experts in memory', hits],
        ['memory', three(q.memory_bytes / 2 ** 30) + ' of ' +
            three(q.budget_bytes / 2 ** 30) + ' GiB'],
        ['running', q.running + ' of ' + q.places],
        ['waiting', q.queued],
        ['lines of batches', q.batch_lines],
        ['tokens made', q.new_tokens],
    ];
    $('now').replaceChildren(...rows.flatMap(([name, value]) =>
        [make('dt', '', name), make('dd', '', value)]));
    $('layer').max = q.layers || 1;
    $('layer').value = q.running ? q.layer + 1 : 0;
}

const svg = (tag, attributes) => {
    const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const name in attributes) e.setAttribute(name, attributes[name]);
    return e;
};

function strip(q) {
    const h = q.history, top = Math.max(q.read_limit, 1, ...h.map((s) => s[0]));
    const most = Math.max(1, ...h.map((s) => s[1]));
    const from = 300 - h.length;
    const bars = h.map((s, i) => svg('rect', { class: 'reads', x: from + i,
        width: 1, y: 80 - 78 * s[0] / top, height: 78 * s[0] / top }));
    const line = h.map((s, i) => (from + i) + ',' + (80 - 78 * s[1] / most));
    const limit = q.read_limit ? [svg('line', { class: 'limit', x1: 0, x2: 300,
        y1: 80 - 78 * q.read_limit / top, y2: 80 - 78 * q.read_limit / top })]
        : [];
    $('strip').replaceChildren(...bars,
        svg('polyline', { class: 'tokens', points: line.join(' ') }), ...limit);
}

function requests(q) {
    $('queue').replaceChildren(...q.requests.map((r) => {
        const row = make('tr');
        const stop = make('button', '', 'cancel');
        stop.type = 'button';
        stop.addEventListener('click', () =>
            ask('queue/' + r.id + '/cancel', {}).catch(() => {}));
        row.append(
            make('td', '', r.state === 'queued' ? r.before + ' before it'
                                                : r.state),
            make('td', '', r.new_tokens + ' of ' + r.max_tokens),
            make('td', '', seconds(r.seconds_left)), make('td'));
        row.lastChild.append(stop);
        return row;
    }));
    $('others').textContent = q.others ? q.others + ' of others' : '';
}

async function look() {
    try {
        const health = await (await fetch('health')).json();
        const part = health.loaded_bytes / health.bytes_to_load;
        $('state').textContent = health.status +
            (part >= 0 ? ` ${Math.floor(100 * part)} %` : '') +
            (health.error ? ': ' + health.error : '');
        $('state').className = health.status === 'ready' ? '' : 'bad';
        if ($('login').open) return;
        const r = await ask('queue');
        if (!r.ok) return;
        const q = await r.json();
        $('model').textContent = q.model;
        facts(q);
        strip(q);
        requests(q);
    } catch (e) {
        $('state').textContent = 'the server is gone';
        $('state').className = 'bad';
    }
}
setInterval(look, 1000);
look();
$('ask').focus();
