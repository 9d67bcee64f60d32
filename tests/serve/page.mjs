// The page in a browser that is led by its debugging protocol.
// Usage: node page.mjs PROGRAM FOLDER CHROME SHOTS
import { spawn } from 'node:child_process';
import fs from 'node:fs';

const [program, folder, chrome, shots] = process.argv.slice(2);
let tests = 0, failed = 0;
function verdict(good, name, why) {
    tests++;
    if (!good) failed++;
    console.log(`${good ? 'ok' : 'not ok'} ${tests} - ${name}`);
    if (!good && why !== undefined)
        console.log('# ' + String(JSON.stringify(why)).slice(0, 1500));
}
async function until(what, seconds = 30) {
    let value;
    for (let i = 0; i < seconds * 20; i++) {
        value = await what();
        if (value) return value;
        await new Promise((r) => setTimeout(r, 50));
    }
    return value;
}

let said = '';
const server = spawn(program, ['serve', `${folder}/model`, '--port', '0', '-m',
    '256M', '--api-key-file', `${folder}/keys`],
    { stdio: ['ignore', 'ignore', 'pipe'] });
server.stderr.on('data', (d) => { said += d; });
const url = await until(() => said.match(/listening on (http:\S+)\n/)?.[1]);
const user = `${folder}/user`;
const browser = spawn(chrome, ['--headless', '--no-sandbox', '--disable-gpu',
    '--no-first-run', '--disable-background-networking', '--disable-sync',
    '--disable-component-update', '--hide-scrollbars',
    '--remote-debugging-port=0', `--user-data-dir=${user}`, 'about:blank'],
    { stdio: 'ignore' });
const port = await until(() => {
    try {
        return fs.readFileSync(`${user}/DevToolsActivePort`, 'utf8')
            .split('\n')[0];
    } catch (e) {
        return null;
    }
}, 60);
const pages = await (await fetch(`http://127.0.0.1:${port}/json`)).json();
const socket = new WebSocket(pages.find((p) => p.type === 'page')
    .webSocketDebuggerUrl);
await new Promise((r) => socket.addEventListener('open', r));
const waiting = new Map(), errors = [], asked = [];
let number = 0;
socket.addEventListener('message', (m) => {
    const d = JSON.parse(m.data);
    if (d.id) waiting.get(d.id)(d);
    if (d.method === 'Runtime.exceptionThrown' ||
        (d.method === 'Log.entryAdded' && d.params.entry.level === 'error'))
        errors.push(d.params.entry?.text ?? d.params.exceptionDetails);
    if (d.method === 'Network.requestWillBeSent')
        asked.push(d.params.request.url);
});
function tell(method, params = {}) {
    return new Promise((r) => {
        waiting.set(++number, (d) => r(d.result ?? d));
        socket.send(JSON.stringify({ id: number, method, params }));
    });
}
async function js(expression) {
    const r = await tell('Runtime.evaluate',
        { expression, awaitPromise: true, returnByValue: true });
    return r.exceptionDetails ?? r.result.value;
}
async function press(key, code) {
    for (const type of ['keyDown', 'keyUp'])
        await tell('Input.dispatchKeyEvent', { type, key, code: key,
            windowsVirtualKeyCode: code, text: key === 'Enter' ? '\r' : '' });
}
const type = (text) => tell('Input.insertText', { text });

for (const domain of ['Page', 'Runtime', 'Log', 'Network'])
    await tell(domain + '.enable');
await tell('Page.navigate', { url });

// ---- the key ----

verdict(await until(() => js(`document.getElementById('login')?.open`)),
        'it asks for the key');
await js(`document.getElementById('key').focus()`);
await type('secret');
await press('Enter', 13);
verdict(await until(() => js(
    `!document.getElementById('login').open &&
     document.getElementById('model').textContent === 'model'`)),
    'and has what it needs with it');
// The answer without the key was an error: that one is expected.
verdict(errors.every((e) => /401/.test(e)), 'no other error', errors);
errors.length = 0;

// ---- chat, by keyboard ----

const last = `document.querySelector('#log .assistant:last-child')`;
await js(`document.getElementById('most').value = 40;
          document.getElementById('ask').focus()`);
await type('Hello <b>there</b>');
await press('Enter', 13);
verdict(await until(() => js(`!document.getElementById('send').disabled &&
    ${last}?.querySelector('details') !== null`)), 'Enter sends');
verdict(await js(`${last}.querySelector('details').open === false &&
    ${last}.querySelector('details div').textContent.length > 10`),
    'thoughts are there, folded', await js(`${last}?.outerHTML`));
verdict(await js(`document.querySelector('#log .user').textContent ===
    'Hello <b>there</b>' && !document.querySelector('#log b')`),
    'what was typed is text, not markup');
const first = await js(`${last}.querySelector('details div').textContent`);
await js(`document.getElementById('retry').click()`);
await until(() => js(`!document.getElementById('send').disabled`));
verdict(await js(`document.querySelectorAll('#log .message').length === 2 &&
    ${last}.querySelector('details div').textContent`) === first,
    'Retry asks again, to the same answer');
await js(`document.getElementById('think').checked = false;
          document.getElementById('most').value = 3500;
          document.getElementById('ask').focus()`);
await type('Go on');
await press('Enter', 13);
await until(() => js(`(${last}?.textContent.length ?? 0) > 60 &&
    document.querySelectorAll('#log .message').length === 4`));
await press('Escape', 27);
verdict(await until(() => js(`${last}.textContent.endsWith('stopped') &&
    !document.getElementById('send').disabled`)), 'Escape stops');
verdict(await until(() => js(
    `document.querySelectorAll('#queue tr').length === 0`)),
    'and the request leaves the queue');
verdict(await js(`document.querySelectorAll('#now dd').length >= 9 &&
    document.querySelector('#strip polyline') !== null`),
    'the machine is shown');
verdict(errors.length === 0, 'no error, no violation', errors);
verdict(asked.every((u) => u.startsWith(url)), 'nothing from outside', asked);

// ---- looks ----

for (const scheme of ['light', 'dark'])
    for (const [width, height] of [[1200, 800], [390, 844], [320, 568]]) {
        await tell('Emulation.setDeviceMetricsOverride', { width, height,
            deviceScaleFactor: 1, mobile: width < 400 });
        await tell('Emulation.setEmulatedMedia', { features: [
            { name: 'prefers-color-scheme', value: scheme }] });
        const fits = await js(`document.documentElement.scrollWidth <=
            document.documentElement.clientWidth`);
        const back = await js(
            `getComputedStyle(document.body).backgroundColor`);
        const light = Number(back.match(/\d+/)[0]) > 127;
        const shot = await tell('Page.captureScreenshot');
        fs.writeFileSync(`${shots}/page-${scheme}-${width}.png`,
                         Buffer.from(shot.data, 'base64'));
        verdict(fits && light === (scheme === 'light') &&
                shot.data.length > 8000, `${scheme}, ${width} wide: it fits`,
                [fits, back, shot.data.length]);
    }

// ---- the policy ----

const policy = await js(`new Promise((done) => {
    const seen = [];
    addEventListener('securitypolicyviolation', (e) => {
        seen.push(e.effectiveDirective);
        if (seen.length >= 3) done(seen.join());
    });
    const s = document.createElement('script');
    s.textContent = 'window.broken = true';
    document.body.append(s);
    const i = document.createElement('img');
    i.src = 'http://127.0.0.1:1/x.png';
    document.body.append(i);
    fetch('http://127.0.0.1:1/').catch(() => {});
    setTimeout(() => done(seen.join()), 5000);
})`);
verdict(/script-src/.test(policy) && /img-src/.test(policy) &&
        /connect-src/.test(policy) && await js('window.broken') === undefined,
        'scripts, pictures and connections of others are refused', policy);

await tell('Browser.close');
server.kill('SIGTERM');
verdict(await new Promise((r) => server.on('exit', r)) === 0,
        'SIGTERM ends the server', said);
console.log(`1..${tests}`);
process.exit(failed > 0 ? 1 : 0);
