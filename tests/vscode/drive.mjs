// What a user of the extension sees and does, in the editor itself.  Started by drive.py.

import { execFile } from 'node:child_process';
import { readFile, readdir, readlink, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { promisify } from 'node:util';

const given = JSON.parse(process.argv[2]);
const { chromium } = createRequire(import.meta.url)(given.playwright);

/** Everything waits this long at most: a loaded machine is slow, and a wait ends as soon as what it waits for is there. */
const PATIENCE = 60_000;

/** The part of the window that the README shows. */
const PICTURE = { x: 352, y: 36, width: 928, height: 640 };

const browser = await chromium.launch({ executablePath: given.browser });
const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
page.setDefaultTimeout(PATIENCE);

let passed = 0;
let failed = 0;
let pictures = 0;

/** One thing that must hold.  Those after it are tried all the same. */
async function check(what, body) {
    const begun = performance.now();
    let told = 'ok';
    try {
        await body();
        passed += 1;
    } catch (error) {
        failed += 1;
        told = `FAILED: ${error.message}`;
    }
    pictures += 1;
    const name = `${String(pictures).padStart(2, '0')}-${what.replaceAll(/\W+/g, '-')}.png`;
    await page.screenshot({ path: path.join(given.output, name) });
    console.log(`${what}: ${told} (${((performance.now() - begun) / 1000).toFixed(1)} s)`);
    await page.keyboard.press('Escape');
}

/** Waits until `read` gives what `good` wants; the error says what it gave last. */
async function until(what, read, good) {
    const end = performance.now() + PATIENCE;
    let value;
    do {
        value = await read();
        if (good(value)) {
            return value;
        }
        await page.waitForTimeout(100);
    } while (performance.now() < end);
    throw new Error(`no ${what}; last seen: ${JSON.stringify(value)}`);
}

const texts = (selector) => page.locator(selector).allInnerTexts();
const plain = (text) => text.replaceAll('\u00a0', ' ');

async function open(file) {
    await page.locator('.explorer-folders-view .monaco-list-row', { hasText: file }).dblclick();
    await page.locator('.tab.active', { hasText: file }).waitFor();
}

/** Has a command of the palette done. */
async function command(title) {
    await page.keyboard.press('F1');
    await page.locator('.quick-input-box input').fill(`>${title}`);
    await page.locator('.quick-input-list .monaco-list-row.focused', { hasText: title }).waitFor();
    await page.keyboard.press('Enter');
}

/** Puts the cursor before the first `text` on the line of a fixture's mark. */
async function place(file, mark, text) {
    const lines = (await readFile(path.join(given.workspace, file), 'utf8')).split('\n');
    const line = lines.findIndex((each) => each.includes(`# want ${mark}`));
    await page.keyboard.press('Control+KeyP');
    await page.locator('.quick-input-box input').fill(`:${line + 1}:${lines[line].indexOf(text) + 1}`);
    await page.keyboard.press('Enter');
    await page.locator('.quick-input-widget').waitFor({ state: 'hidden' });
}

/** Shows one file's findings, and the places that they refer to, in the Problems panel. */
async function list(file) {
    await command('Problems: Focus on Problems View');
    await page.locator('.panel .monaco-inputbox input').fill(file);
}

async function problems() {
    return (await texts('.markers-panel .monaco-list-row')).map(plain);
}

const badge = () => page.locator('.panel .action-item.checked .badge-content').innerText();

/** How many findings the marks of the workspace ask for. */
async function wanted() {
    const files = (await readdir(given.workspace)).filter((name) => /\.(py|ipynb)$/.test(name));
    const contents = await Promise.all(files.map((name) => readFile(path.join(given.workspace, name), 'utf8')));
    return contents.join('').split('# want ').length - 1;
}

const squiggles = (severity) => page.locator(`.monaco-editor .squiggly-${severity}`).count();

async function status() {
    const item = page.locator('[id="gradlint.gradlint.gradlint.status"], [id="gradlint.gradlint.status"]');
    return (await item.count()) === 0 ? '' : plain(await item.first().innerText());
}

const settled = (what, good) => until(`status bar item that ${what}`, status, good);

/** Applies a quick fix at the cursor. */
async function quickFix(title) {
    await page.keyboard.press('Control+Period');
    const action = page.locator('.action-widget .monaco-list-row', { hasText: title });
    await action.waitFor();
    await page.screenshot({ path: path.join(given.output, `menu-${title.replaceAll(/\W+/g, '-')}.png`) });
    await action.click();
}

/** The Markdown that is shown. */
const preview = () => page.frameLocator('iframe.webview.ready').last().frameLocator('iframe');

/** Waits for a line in an editor. */
async function line(text) {
    const read = async () => (await texts('.view-line')).map(plain);
    await until(`line with ${text}`, read, (all) => all.some((each) => each.includes(text)));
}

/** Settings of the workspace: their file is watched, which code-server does not do with the user's. */
async function settings(changes) {
    await writeFile(path.join(given.workspace, '.vscode', 'settings.json'), JSON.stringify(changes));
}

const notifications = async () => (await texts('.notification-list-item-message')).map(plain);

async function notification(text) {
    const told = await until(`notification about ${text}`, notifications, (all) =>
        all.some((each) => each.includes(text)),
    );
    return told.find((each) => each.includes(text));
}

async function clearNotifications() {
    await command('Notifications: Clear All Notifications');
}

/** The processes of the servers that this editor has started: others on this machine are none of our business. */
async function servers() {
    const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
    const ours = [];
    for (const pid of pids) {
        try {
            const words = (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0').filter(Boolean);
            const cwd = await readlink(`/proc/${pid}/cwd`);
            if (words.at(-1) === 'server' && cwd.startsWith(path.dirname(given.workspace))) {
                ours.push(Number(pid));
            }
        } catch {
            // It has ended.
        }
    }
    return ours;
}

async function kill() {
    const [pid] = await until('one server', servers, (pids) => pids.length === 1);
    process.kill(pid, 'SIGKILL');
    return pid;
}

function expect(holds, what) {
    if (!holds) {
        throw new Error(what);
    }
}

/** Opens the folder, or a file that names several. */
async function load(query = `folder=${given.workspace}`) {
    await page.goto(`${given.address}/?${query}`);
    await page.locator('.monaco-workbench').waitFor();
    await page.locator('.explorer-folders-view .monaco-list-row', { hasText: 'model.py' }).waitFor();
}

await load();

await check('the status bar counts the findings of the file', async () => {
    await open('model.py');
    await settled('counts three', (text) => text.endsWith('gradlint: 3'));
});

await check('findings are underlined', async () => {
    await until('squiggle of an error', () => squiggles('error'), (count) => count > 0);
    await until('squiggle of a warning', () => squiggles('warning'), (count) => count > 0);
});

await check('the problems panel names rules', async () => {
    await list('model.py');
    const rows = await until('three problems', problems, (all) =>
        ['saved-tensor-mutated', 'parameters-behind-cut', 'unregistered-layers'].every((rule) =>
            all.some((row) => row.includes(rule)),
        ),
    );
    expect(
        rows.filter((row) => row.includes('gradlint') && row.includes('parameters-behind-cut')).length === 1,
        `told twice, or without its source: ${JSON.stringify(rows)}`,
    );
});

await check('a finding refers to the places it is about', async () => {
    await list('model.py');
    await until('related place', problems, (all) => all.some((each) => each.includes('kept for backward here')));
});

await check('hovering shows the page of the rule', async () => {
    await command('View: Hide Panel');
    await command('View: Focus First Editor Group');
    await place('model.py', 'parameters-behind-cut', 'detach');
    await command('Show or Focus Hover');
    await until('page in the hover', () => texts('.monaco-hover-content'), (all) => {
        const text = plain(all.join('\n'));
        return text.includes('parameters-behind-cut') && text.includes('never train');
    });
    await page.screenshot({ path: path.join(given.output, 'finding.png'), clip: PICTURE });
});

await check('an edit takes the finding away and brings it back', async () => {
    await place('model.py', 'parameters-behind-cut', '.detach()');
    for (const _ of '.detach()') {
        await page.keyboard.press('Delete');
    }
    await settled('counts two', (text) => text.endsWith('gradlint: 2'));
    await until('no warning underlined', () => squiggles('warning'), (count) => count === 0);
    await page.keyboard.type('.detach()');
    await settled('counts three', (text) => text.endsWith('gradlint: 3'));
    await until('a warning underlined', () => squiggles('warning'), (count) => count > 0);
});

await check('a place is allowed by a quick fix', async () => {
    await place('model.py', 'parameters-behind-cut', 'attention');
    await quickFix('Allow parameters-behind-cut here');
    await line('gradlint: allow[parameters-behind-cut]');
    await settled('counts two', (text) => text.endsWith('gradlint: 2'));
    await page.keyboard.press('Control+KeyZ');
    await settled('counts three', (text) => text.endsWith('gradlint: 3'));
});

await check('a finding is repaired by a quick fix', async () => {
    await place('model.py', 'saved-tensor-mutated', 'y += x');
    await quickFix('Make a new tensor');
    await line('y = y + x');
    await settled('counts two', (text) => text.endsWith('gradlint: 2'));
    await page.keyboard.press('Control+KeyZ');
    await settled('counts three', (text) => text.endsWith('gradlint: 3'));
});

await check('where nothing can be fixed safely, this is said', async () => {
    await command('gradlint: Fix All in File');
    await notification('nothing here can be fixed safely');
    await clearNotifications();
});

await check('all in a file is fixed, by command and on save', async () => {
    await open('engine.py');
    await settled('counts two', (text) => text.endsWith('gradlint: 2'));
    await command('gradlint: Fix All in File');
    await line('running_loss += loss.detach()');
    await settled('counts one', (text) => text.endsWith('gradlint: 1'));
    await command('File: Revert File');
    await settled('counts two', (text) => text.endsWith('gradlint: 2'));
    await settings({ 'editor.codeActionsOnSave': { 'source.fixAll.gradlint': 'explicit' } });
    const file = path.join(given.workspace, 'engine.py');
    const before = await readFile(file, 'utf8');
    await place('engine.py', 'live-graph-kept', 'running_loss');
    await page.keyboard.press('End');
    // The setting may not be known yet, and the editor saves without what takes longer than it likes to wait.
    const saved = async () => {
        await page.keyboard.type('!');
        await page.keyboard.press('Control+KeyS');
        await page.waitForTimeout(2000);
        return readFile(file, 'utf8');
    };
    await until('fix in the file', saved, (text) => text.includes('running_loss += loss.detach()'));
    await settings({});
    await writeFile(file, before);
    await settled('counts two', (text) => text.endsWith('gradlint: 2'));
    await open('model.py');
});

await check('a rule is explained', async () => {
    await place('model.py', 'parameters-behind-cut', 'attention');
    await command('gradlint: Explain Rule');
    // The rule at the cursor comes first.
    await page.locator('.quick-input-list .monaco-list-row.focused', { hasText: 'parameters-behind-cut' }).waitFor();
    await page.keyboard.press('Enter');
    await preview().getByRole('heading', { name: 'never train' }).waitFor();
    await command('View: Close All Editors in Group');
    await place('model.py', 'unregistered-layers', 'self.decoder');
    await quickFix('Explain unregistered-layers');
    await preview().getByRole('heading', { name: 'plain container' }).waitFor();
    await command('View: Close All Editors in Group');
});

await check('the output says what was started', async () => {
    await command('gradlint: Show Output');
    // Long lines are wrapped.
    await until('line about the start', () => texts('.output-view .view-line'), (all) =>
        /starting .*gradlint-torch server/.test(plain(all.join(''))),
    );
});

await check('the server restarts', async () => {
    await open('model.py');
    await settled('counts three', (text) => text.endsWith('gradlint: 3'));
    await command('gradlint: Restart Server');
    await settled('shows a start', (text) => text === 'gradlint' || text === ' gradlint');
    await settled('counts three again', (text) => text.endsWith('gradlint: 3'));
});

await check('a finding is confirmed by running the program', async () => {
    await place('model.py', 'parameters-behind-cut', 'attention');
    await command('gradlint: Confirm Finding');
    await notification('parameters-behind-cut: confirmed');
    await list('model.py');
    await until('verdict in the finding', problems, (all) => all.some((row) => row.includes('confirmed: ')));
});

await check('cells of a notebook are underlined, and nothing is told twice', async () => {
    await clearNotifications();
    await command('File: Revert File');
    await command('View: Close All Editors');
    await open('lab.ipynb');
    await page.locator('.notebookOverlay .cell-list-container').first().waitFor();
    await until('squiggle in a cell', () => page.locator('.notebookOverlay [class*="squiggly-"]').count(), (n) => n > 0);
    await settled('counts one', (text) => text.endsWith('gradlint: 1'));
    await list('lab.ipynb');
    await until('problem of the cell', problems, (all) =>
        all.some((row) => row.includes('missing-zero-grad') && row.includes('Ln 3')),
    );
    const all = await wanted();
    await until('right number on the badge', badge, (text) => Number(text) === all);
});

await check('an edit of a cell is followed', async () => {
    await page.locator('.notebookOverlay .view-line', { hasText: 'for step in range' }).click();
    await page.keyboard.press('End');
    await page.keyboard.press('Enter');
    await page.keyboard.type('optimizer.zero_grad()');
    await settled('counts none', (text) => text === ' gradlint');
    const undone = async () => {
        await page.keyboard.press('Control+KeyZ');
        return (await texts('.notebookOverlay .view-line')).map(plain);
    };
    await until('cell as it was', undone, (all) => !all.some((each) => each.includes('optimizer.zero')));
    await settled('counts one', (text) => text.endsWith('gradlint: 1'));
});

await check('a finding in a cell is repaired', async () => {
    await page.locator('.notebookOverlay .view-line', { hasText: 'loss.backward()' }).click();
    await quickFix('Insert `optimizer.zero_grad');
    await line('optimizer.zero_grad(');
    await settled('counts none', (text) => text === ' gradlint');
    await page.keyboard.press('Control+KeyZ');
    await settled('counts one', (text) => text.endsWith('gradlint: 1'));
});

await check('a change of pyproject.toml on disk is followed', async () => {
    await command('File: Revert File');
    await command('View: Close All Editors');
    await open('model.py');
    await settled('counts three', (text) => text.endsWith('gradlint: 3'));
    const file = path.join(given.workspace, 'pyproject.toml');
    const before = await readFile(file, 'utf8');
    await writeFile(file, `${before}\n[tool.gradlint]\nignore = ["parameters-behind-cut"]\n`);
    await settled('counts two', (text) => text.endsWith('gradlint: 2'));
    await writeFile(file, before);
    await settled('counts three', (text) => text.endsWith('gradlint: 3'));
});

await check('a change of a setting reaches the server', async () => {
    const lenses = () => texts('.codelens-decoration');
    await settings({ 'gradlint.codeLens': true });
    await until('lens', lenses, (all) => all.length > 0);
    await settings({});
    await until('end of the lens', lenses, (all) => all.length === 0);
});

await check('hovering over a tensor says what is known of it, once that is wanted', async () => {
    await settings({ 'gradlint.hover.tensors': true });
    // To the name in the line after it, where there is no finding.
    await place('model.py', 'saved-tensor-mutated', 'y +=');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('End');
    await page.keyboard.press('ArrowLeft');
    const known = async () => {
        await command('Show or Focus Hover');
        await page.waitForTimeout(1000);
        return plain((await texts('.monaco-hover-content')).join('\n'));
    };
    await until('hover on a tensor', known, (text) => text.includes('requires_grad'));
    await settings({});
});

await check('a server that dies is started again', async () => {
    const killed = await kill();
    await until('other server', servers, (pids) => pids.length === 1 && pids[0] !== killed);
    await settled('counts three', (text) => text.endsWith('gradlint: 3'));
});

await check('a gradlint that is not there is told, with what was tried', async () => {
    await settings({ 'gradlint.path': given.impostors.absent });
    const told = await notification('gradlint was not found');
    expect(told.includes('gradlint.path') && told.includes(given.impostors.absent), told);
    await settled('has stopped', (text) => text === ' gradlint');
    const buttons = page.locator('.notification-list-item', { hasText: 'not found' });
    await buttons.getByText('Set Path').waitFor();
    await buttons.getByText('Install Instructions').click();
    await preview().getByText('pip install "gradlint-torch[lsp]"').waitFor();
});

await check('another package of the same name is not started', async () => {
    await clearNotifications();
    await settings({ 'gradlint.path': given.impostors.foreign });
    const told = await notification('gradlint was not found');
    expect(told.includes('1.1.7 has no server'), told);
});

await check('a gradlint without pygls is told in its own words', async () => {
    await clearNotifications();
    await settings({ 'gradlint.path': given.impostors.bare });
    const told = await notification('gradlint-torch[lsp]');
    expect(!told.includes('Traceback'), told);
});

await check('with the setting gone, gradlint runs again', async () => {
    await clearNotifications();
    await settings({});
    await open('model.py');
    await settled('counts three', (text) => text.endsWith('gradlint: 3'));
});

await check('disabled, it shows nothing', async () => {
    await settings({ 'gradlint.enable': false });
    await until('no status bar item', status, (text) => text === '');
    await until('nothing underlined', () => squiggles('error'), (count) => count === 0);
    await settings({});
    await settled('counts three', (text) => text.endsWith('gradlint: 3'));
});

await check('one server serves all folders of a window', async () => {
    await load(`workspace=${given.folders}`);
    await page.keyboard.press('Control+KeyP');
    await page.locator('.quick-input-box input').fill('single.py');
    await page.locator('.quick-input-list .monaco-list-row', { hasText: 'single.py' }).first().click();
    await settled('counts one', (text) => text.endsWith('gradlint: 1'));
    await command('Problems: Focus on Problems View');
    // The notebook is closed, and its text is that of the file.
    const all = await wanted();
    await until('findings of both folders', badge, (text) => Number(text) === all);
    expect((await servers()).length === 1, 'there is more than one server');
});

await check('the interpreter that the Python extension selects comes first', async () => {
    const [node, ...args] = given.installPython;
    await promisify(execFile)(node, args);
    await load();
    await open('model.py');
    await settled('counts three', (text) => text.endsWith('gradlint: 3'));
    await command('gradlint: Show Output');
    const output = async () => plain((await texts('.output-view .view-line')).join(''));
    await until('start from the interpreter', output, (text) => text.includes('from the selected interpreter'));
    // Another one is selected, where there is no gradlint.
    await writeFile(given.interpreter, given.impostors.foreign);
    await until('start from .venv', output, (text) => text.includes('from .venv of the workspace folder'));
    await settled('counts three', (text) => text.endsWith('gradlint: 3'));
});

await check('of an untrusted workspace nothing is started', async () => {
    const before = JSON.parse(await readFile(given.settings, 'utf8'));
    await writeFile(given.settings, JSON.stringify({ ...before, 'security.workspace.trust.enabled': true }));
    await load();
    await open('model.py');
    const told = await notification('gradlint was not found');
    expect(told.includes('the PATH') && told.includes('not trusted') && !told.includes('.venv'), told);
});

await check('what an untrusted workspace holds is not run by a gradlint of the user either', async () => {
    await writeFile(given.machine, JSON.stringify({ 'gradlint.path': given.gradlint }));
    await load();
    await open('model.py');
    await settled('counts three', (text) => text.endsWith('gradlint: 3'));
    await place('model.py', 'parameters-behind-cut', 'attention');
    await quickFix('Confirm parameters-behind-cut by running the program');
    await notification('trust this workspace first');
});

await browser.close();
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
